"""Objects as arguments: their tensors are inputs, their other values are guarded, they end as in eager."""

import collections
import dataclasses
import threading
import types
import weakref

import numpy as np
import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch.nn import functional as F

import oneflow as flow


class Cache:
    """A cache of keys that grows, as those of language models do."""

    def __init__(self):
        self.keys = None
        self.layers = []
        self.by_name = {}
        self.count = 0

    def update(self, x):
        self.keys = x if self.keys is None else torch.cat([self.keys, x])
        self.layers.append(types.SimpleNamespace(keys=x * 2))
        self.by_name[f"call {self.count}"] = self.layers[-1]
        self.count += 1
        return self.keys.sum()


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 2.0
    act: object = None
    extra: object = None


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x, y=None):
        self.x, self.y = x, y


def state(value):
    """Return all that a value holds, with a number for each object, so that shared objects are seen."""
    numbers = {}

    def walk(value):
        if isinstance(value, torch.Tensor):
            return numbers.setdefault(id(value), len(numbers)), value.tolist()
        if id(value) in numbers:
            return numbers[id(value)]
        if isinstance(value, (list, tuple, dict, types.SimpleNamespace)) or hasattr(value, "__dict__"):
            numbers[id(value)] = len(numbers)
        if isinstance(value, dict):
            return {k: walk(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [walk(v) for v in value]
        if isinstance(value, type) or not hasattr(value, "__dict__"):
            return value
        return type(value), walk(vars(value))

    return walk(value)


def both_ways(build, make, calls):
    """Call build() with one object again and again, in eager mode and in a graph; return the graph."""
    graph = graph_of(build)
    eager, own = make(), make()
    for args in calls:
        expected, result = build(eager, *args), graph(own, *args)
        assert torch.equal(result, expected)
        assert state(own) == state(eager)
    return graph


def test_a_cache_that_build_changes_ends_as_in_eager_mode():
    calls = [(torch.full((2,), float(k)),) for k in range(4)]
    both_ways(Cache.update, Cache, calls)


def test_a_cache_of_the_same_structure_needs_no_other_program():
    graph, x = graph_of(Cache.update), torch.ones(2)
    for _ in range(3):
        cache = Cache()
        graph(cache, x)
        assert cache.count == 1 and cache.keys.tolist() == [1.0, 1.0]
    assert len(graph._engine.programs) == 1


def test_an_argument_that_is_returned_is_the_callers_object():
    def build(cache, x):
        cache.update(x)
        return cache, cache.layers[-1], cache.layers

    graph = graph_of(build)
    cache = Cache()
    for k in range(3):
        same, layer, layers = graph(cache, torch.ones(2))
        assert same is cache and layers is cache.layers and layer is cache.layers[k]


def change_attribute(value, x):
    value.extra = x * 2


def delete_attribute(value, x):
    del value.extra


def change_type(value, x):
    value.extra = [x, {"n": 3}]


def swap(value, x):
    value.x, value.act = x * 3, value.x


def write_in_place(value, x):
    value.x.mul_(2).add_(x)


def write_into_view(value, x):
    value.x[1:] = x[1:]


def keep_argument(value, x):
    value.extra = x


def share(value, x):
    value.extra = value.act = [x * 2]


def set_back(value, x):
    value.scale = value.scale * 1.0


@pytest.mark.parametrize(
    "change",
    [
        change_attribute,
        delete_attribute,
        change_type,
        swap,
        write_in_place,
        write_into_view,
        keep_argument,
        share,
        set_back,
    ],
)
def test_changes_of_an_object_are_eagers(change):
    def build(value, x):
        change(value, x)
        return value.x + 1

    graph = graph_of(build)
    for k in (1.0, 2.0):
        x = torch.tensor([k, 4.0])
        eager, own = Batch(torch.ones(2), extra=torch.zeros(2)), Batch(torch.ones(2), extra=torch.zeros(2))
        assert torch.equal(graph(own, x), build(eager, x))
        assert state(own) == state(eager)
    assert len(graph._engine.programs) == 1


@pytest.mark.parametrize("change", [
    lambda c, x: c.append(x), lambda c, x: c.insert(0, x), lambda c, x: c.pop(), lambda c, x: c.clear(),
    lambda c, x: c.reverse(), lambda c, x: c.__setitem__(0, x * 2),
], ids=["append", "insert", "pop", "clear", "reverse", "set"])  # fmt: skip
@pytest.mark.parametrize("cls", [list, collections.deque])
def test_changes_of_a_sequence_in_an_object_are_eagers(change, cls):
    def build(value, x):
        change(value.extra, x)
        return sum(value.extra, x)

    graph = graph_of(build)
    for k in (1.0, 2.0):
        kept = [torch.ones(2), torch.full((2,), 3.0)]
        eager, own = (Batch(torch.ones(2), extra=cls(kept)) for _ in range(2))
        container, x = own.extra, torch.tensor([k, 4.0])
        assert torch.equal(graph(own, x), build(eager, x))
        assert own.extra is container and list(map(torch.Tensor.tolist, container)) == [
            t.tolist() for t in eager.extra
        ]
        assert [any(t is old for old in kept) for t in container] == [
            any(t is old for old in kept) for t in eager.extra
        ]


def test_changes_of_a_dict_and_a_set_in_an_object_are_eagers():
    def build(value, x):
        value.extra["new"] = x * 2
        del value.extra["old"]
        value.act.add("b")
        return x

    graph = graph_of(build)
    value = Batch(torch.ones(2), act={"a"}, extra={"old": torch.ones(1), "kept": 3})
    contents = value.extra
    graph(value, torch.ones(2))
    assert value.extra is contents and list(contents) == ["kept", "new"]
    assert contents["new"].tolist() == [2.0, 2.0] and value.act == {"a", "b"}


def test_slots_and_dicts_and_lists_of_users_classes():
    class Named(dict):
        pass

    class Table(collections.UserDict):
        pass

    def build(slotted, named, table):
        slotted.y = slotted.x + 1
        named["y"] = named["x"] + 2
        table["y"] = table["x"] + 3
        return slotted.y * 2

    x, graph = torch.ones(2), graph_of(build)
    for _ in range(2):
        slotted, named, table = Slotted(x), Named(x=x), Table(x=x)
        assert graph(slotted, named, table).tolist() == [4.0, 4.0]
        assert slotted.y.tolist() == [2.0, 2.0] and slotted.x is x
        assert named["y"].tolist() == [3.0, 3.0] and table["y"].tolist() == [4.0, 4.0]


# -- guards ----------------------------------------------------------------------------------
def first(batch):
    x = batch.x
    if batch.act is not None:
        x = batch.act(x)
    if isinstance(batch.extra, list):
        x = x * len(batch.extra)
        if len(batch.extra) == 2 and batch.extra[0] is batch.extra[1]:
            batch.extra[0].x.add_(1)
            x = x + batch.extra[1].x
    return x * batch.scale


ONE, TWO = Slotted(torch.ones(2)), Slotted(torch.ones(2))


@pytest.mark.parametrize(
    "others",
    [
        [dict(scale=2.0), dict(scale=3.0), dict(scale=2.0)],
        [dict(scale=1), dict(scale=1.0), dict(scale=True)],
        [dict(scale=0.0), dict(scale=-0.0)],
        [dict(act=F.relu), dict(act=torch.tanh), dict(act=None)],
        [dict(extra=[1]), dict(extra=[1, 2]), dict(extra=[1, 2, 3])],
        [
            dict(extra=lambda: [Slotted(torch.ones(2)), Slotted(torch.ones(2))]),
            dict(extra=lambda: [Slotted(torch.ones(2))] * 2),
        ],
    ],
    ids=["number", "type of a number", "sign of zero", "function", "length", "identity"],
)
def test_another_constant_or_structure_has_another_program(others):
    graph, x = graph_of(first), torch.tensor([-1.0, 2.0])
    for options in others + others:
        make = lambda: Batch(
            x,
            **{
                k: v() if type(v) is types.LambdaType and v.__name__ == "<lambda>" else v
                for k, v in options.items()
            },
        )
        result, expected = graph(make()), first(make())
        assert result.dtype == expected.dtype and torch.equal(result, expected)
        assert torch.equal(1 / result, 1 / expected)
    assert len(graph._engine.programs) > 1


def test_another_class_has_another_program():
    class Double(Batch):
        def of(self):
            return self.x * 2

    class Triple(Batch):
        def of(self):
            return self.x * 3

    graph, x = graph_of(lambda batch: batch.of()), torch.ones(1)
    assert [graph(cls(x)).item() for cls in (Double, Triple, Double)] == [2, 3, 2]


def test_a_tensor_that_occurs_twice_is_one_tensor():
    def build(a, b, x):
        a.x.add_(1)
        return b.x * 2 + x, b.x is x

    graph = graph_of(build)
    for is_same in (True, False, True):
        x = torch.ones(2)
        a, b = Slotted(x), Slotted(x if is_same else torch.ones(2))
        result, same = graph(a, b, x)
        expected = build(Slotted(y := torch.ones(2)), Slotted(y if is_same else torch.ones(2)), y)
        assert same is expected[1] and torch.equal(result, expected[0])


def test_sizes_that_vary_share_a_program():
    graph = graph_of(lambda batch: batch.x.sum(0) * batch.scale)
    for n in (3, 5, 7, 9):
        assert torch.equal(graph(Batch(torch.ones(n, 2))), torch.full((2,), 2.0 * n))
    assert len(graph._engine.programs) == 2


class Mark:
    pass


UNSET = Mark()


def test_a_mark_compared_by_identity_is_an_error():
    graph = graph_of(lambda batch: batch.x if batch.extra is UNSET else batch.x * 2)
    with pytest.raises(RuntimeError, match="class Mark by identity with an argument"):
        graph(Batch(torch.ones(2), extra=UNSET))
    assert graph(Batch(torch.ones(2), extra=Mark())).tolist() == [2.0, 2.0]


def test_a_plain_object_as_a_mark_keeps_its_identity():
    mark = object()
    graph = graph_of(lambda batch: batch.x if batch.extra is mark else batch.x * 2)
    assert graph(Batch(torch.ones(1), extra=mark)).item() == 1
    assert graph(Batch(torch.ones(1), extra=object())).item() == 2


class Node:
    """A node of a tree that calls back and knows its parent."""

    def __init__(self, x, parent=None):
        self.x, self.on_change = x, self.double
        self.parent = None if parent is None else weakref.ref(parent)
        self.child = None

    def double(self):
        self.x = self.x * 2


def test_methods_and_weak_references_of_an_argument_are_its_own():
    def build(node):
        node.child.on_change()
        node.child.parent().x = node.x + node.child.x
        return node.x.sum()

    graph = graph_of(build)
    for k in (1.0, 2.0):
        node = Node(torch.tensor([k]))
        node.child = Node(torch.tensor([3.0]), node)
        assert graph(node).item() == node.x.item() == k + 6
        assert node.child.x.item() == 6
    assert len(graph._engine.programs) == 1


def test_arguments_are_not_kept_after_a_call():
    graph = graph_of(Cache.update)
    for _ in range(2):
        cache = Cache()
        reference = weakref.ref(cache)
        graph(cache, torch.ones(2))
        del cache
        assert reference() is None


# -- training, errors, lists -------------------------------------------------------------------
def test_training_over_a_memory_has_eagers_bits():
    torch.manual_seed(0)
    batches, results = [torch.randn(4, 3) for _ in range(4)], []
    for is_graph in (False, True):
        torch.manual_seed(1)
        model = nn.GRUCell(3, 5)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        memory = types.SimpleNamespace(hidden=torch.zeros(4, 5), steps=0)

        def build(memory, x, model=model):
            hidden = model(x, memory.hidden)
            loss = hidden.square().mean()
            loss.backward()
            memory.hidden = hidden.detach()
            memory.steps = memory.steps + 1 if memory.steps < 1 else memory.steps
            return loss

        step = graph_of(build, optimizer, model=model) if is_graph else build
        losses = []
        for x in batches:
            optimizer.zero_grad()
            losses.append(step(memory, x).detach().clone())
            if not is_graph:
                optimizer.step()
        assert memory.steps == 1
        results.append([*losses, memory.hidden, *(p.detach().clone() for p in model.parameters())])
    assert all(map(torch.equal, *results))


def test_an_error_of_build_leaves_the_object_as_it_was():
    def build(cache, x):
        cache.update(x)
        raise ValueError("later")

    cache = Cache()
    with pytest.raises(ValueError, match="later"):
        graph_of(build)(cache, torch.ones(2))
    assert vars(cache) == {"keys": None, "layers": [], "by_name": {}, "count": 0}


@pytest.mark.parametrize(
    "value, text",
    [
        (
            threading.Lock(),
            r"argument 'value'\.extra\['k'\]\[0\] \(in .*Batch\) of build\(\) has the type _thread\.lock",
        ),
        (np.ones(2), r"argument 'value'\.extra\['k'\]\[0\] .* type numpy.ndarray.*flow.from_numpy"),
        (nn.Linear(1, 1), r"argument 'value'\.extra\['k'\]\[0\] .*Linear"),
    ],
    ids=["lock", "array", "module"],
)
def test_the_error_names_the_part_and_its_class(value, text):
    class Named(flow.nn.Graph):
        def build(self, value):
            return value.x

    with pytest.raises(TypeError, match=f"(?s){text}"):
        Named()(Batch(torch.ones(2), extra={"k": [value]}))


def test_micro_batches_refuse_to_change_an_object():
    model = nn.Linear(2, 2)

    def build(batch):
        loss = model(batch.x).sum()
        loss.backward()
        batch.extra = loss
        return loss

    graph = graph_of(build, torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    graph.config.set_gradient_accumulation_steps(2)
    with pytest.raises(RuntimeError, match="in a step of several micro batches"):
        graph(Batch(torch.ones(4, 2)))


def test_a_list_beside_an_object_stays_the_callers():
    def build(parts, batch):
        parts.append(batch.x)
        return sum(parts)

    graph, parts = graph_of(build), [torch.ones(2)]
    with pytest.warns(UserWarning, match="changes a list or dict among its arguments"):
        assert graph(parts, Batch(torch.ones(2))).tolist() == [2.0, 2.0]
    assert len(parts) == 1


def test_saving_a_graph_that_changes_an_argument_is_refused(tmp_path):
    graph = graph_of(Cache.update)
    graph(Cache(), torch.ones(2))
    with pytest.raises(RuntimeError, match="changes or returns an object among its arguments"):
        graph.save(tmp_path / "g")
    with pytest.raises(RuntimeError, match="changes or returns an object among its arguments"):
        graph.export(tmp_path / "g.pt2")
