"""Objects that build() makes and returns: each call makes new ones, of the same class and with its own
tensors.
"""

import collections
import dataclasses
import threading
import types
import weakref

import pytest
import torch
import torch.utils._pytree as pytree
from graph_cases import graph_of
from torch import nn
from torch.nn import functional as F

import oneflow as flow


class Cache:
    """Keys of layers, as a cache of a language model holds them."""

    constructions = 0

    def __init__(self):
        type(self).constructions += 1
        self.layers = []
        self.length = 0
        self.function = F.relu
        self.layer_class = Layer

    def add(self, x):
        self.layers.append(self.layer_class(x))
        self.length += 1


class Layer:
    __slots__ = ("keys", "unset", "__weakref__")

    def __init__(self, keys):
        self.keys = keys


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    scale: float = 2.0


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    pair: tuple


class Named(dict):
    pass


class Many(list):
    pass


class Table(collections.UserDict):
    pass


class Readonly:
    def __init__(self, x):
        object.__setattr__(self, "x", x)

    def __setattr__(self, name, value):
        raise AttributeError(name)


def named(x):
    value = Named(x=x)
    value.extra = x * 3
    return value


def many(x):
    value = Many([x, 1])
    value.extra = {"k": x * 3}
    return value


def default(x):
    value = collections.defaultdict(list)
    value["a"].append(x)
    return value


def holder(value):
    instance = types.SimpleNamespace()
    instance.value = value
    return instance


def parts_of(value):
    """Return what a value consists of, with the values of its tensors."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (dict, collections.UserDict)):
        own = {k: parts_of(v) for k, v in value.items()}
    elif isinstance(value, (list, tuple, collections.deque)):
        own = [parts_of(v) for v in value]
    elif isinstance(value, (int, float, str, set, frozenset, type, types.FunctionType)):
        return value
    else:
        own = None
    public = [n for n in dir(value) if n[0] != "_" and hasattr(value, n)]
    names = [n for n in public if not callable(getattr(value, n))]
    return type(value), own, {n: parts_of(getattr(value, n)) for n in names if own is None or n == "extra"}


@pytest.mark.parametrize(
    "make",
    [
        Readonly,
        Frozen,
        Layer,
        named,
        many,
        default,
        lambda x: Slotted(x, (x + 1, [x])),
        lambda x: Table(a=x, b=[x * 2]),
        lambda x: holder(collections.deque([x, x + 1], maxlen=3)),
        lambda x: holder({"names": {"a", "b"}, "fixed": frozenset([1])}),
        lambda x: [{"deep": (Layer(x), Frozen(x * 2))}],
    ],
    ids=[
        "no setattr",
        "frozen",
        "slots",
        "dict",
        "list",
        "defaultdict",
        "dataclass with slots",
        "UserDict",
        "deque",
        "sets",
        "nested",
    ],
)
def test_each_call_makes_a_new_object(make):
    graph = graph_of(lambda x: make(x * 2))
    results = [(graph(x), make(x * 2)) for x in (torch.tensor([1.0, k]) for k in (2.0, 3.0, 4.0))]
    for result, expected in results:
        assert parts_of(result) == parts_of(expected)
    assert len({id(result) for result, _ in results}) == 3
    assert len(graph._engine.programs) == 1


def test_the_constructor_runs_in_the_capture_only():
    def build(x):
        cache = Cache()
        cache.add(x + 1)
        cache.add(x + 2)
        return cache

    graph, Cache.constructions = graph_of(build), 0
    caches = [graph(torch.tensor([float(k)])) for k in range(3)]
    assert Cache.constructions == 1
    assert [[layer.keys.item() for layer in cache.layers] for cache in caches] == [[1, 2], [2, 3], [3, 4]]
    assert all(c.length == 2 and c.function is F.relu and c.layer_class is Layer for c in caches)
    caches[0].layers.append(None)
    assert len(graph(torch.ones(1)).layers) == 2
    assert not hasattr(caches[0].layers[0], "unset")


def test_what_occurs_twice_stays_one():
    def build(x):
        layer, y = Layer(x * 2), x + 1
        first, second = holder([layer, y]), holder({"layer": layer, "y": y})
        first.other, second.other = second, first  # a cycle
        return first, second, y

    graph = graph_of(build)
    for k in range(3):
        first, second, y = graph(torch.tensor([float(k)]))
        assert first.other is second and second.other is first
        assert first.value[0] is second.value["layer"]
        assert first.value[1] is second.value["y"] is y and y.item() == k + 1


def test_methods_and_weak_references_are_those_of_the_new_objects():
    def build(x):
        cache = Cache()
        cache.add(x + 1)
        cache.again = cache.add
        cache.layers[0].keys = holder(cache.layers[0].keys)
        cache.layers[0].keys.owner = weakref.ref(cache)
        return cache

    graph = graph_of(build)
    for k in (1.0, 2.0):
        cache = graph(torch.tensor([k]))
        cache.again(torch.ones(1))
        assert len(cache.layers) == 2 and cache.layers[0].keys.value.item() == k + 1
        assert cache.layers[0].keys.owner() is cache


def test_tensors_that_share_memory_share_it_in_each_call():
    def build(x):
        whole = x * 2
        return holder([whole, whole[1:]])

    graph = graph_of(build)
    for _ in range(2):
        whole, part = graph(torch.ones(3)).value
        part.fill_(7.0)
        assert whole.tolist() == [2.0, 7.0, 7.0]


def test_an_object_that_was_there_before_is_returned_itself():
    older, config = Layer(torch.ones(2)), Named(a=1)

    def build(x):
        layer = holder(x + older.keys)
        layer.config = config
        return layer, older

    graph = graph_of(build)
    for _ in range(2):
        layer, returned = graph(torch.ones(2))
        assert returned is older and layer.config is config and layer.value.tolist() == [2.0, 2.0]


def test_numbers_of_sizes_that_depend_on_values_are_those_of_the_call():
    graph = graph_of(lambda x, mask: holder([x[mask], x[mask].shape[0]]))
    for flags in ([True, False, True], [True, True, True], [False, True, False]):
        rows, count = graph(torch.arange(3.0), torch.tensor(flags)).value
        assert count == sum(flags) == len(rows) and type(count) is int


class Registered:
    """A class that its author has registered with torch's pytree."""

    def __init__(self, x):
        self.x, self.rebuilt = x, False


def rebuild(children, context):
    value = Registered(*children)
    value.rebuilt = True
    return value


@pytest.fixture
def registered():
    pytree.register_pytree_node(Registered, lambda value: ([value.x], None), rebuild)
    yield
    pytree._deregister_pytree_node(Registered)


def test_nodes_of_torchs_pytree_are_honored(registered):
    graph = graph_of(lambda x: holder([Registered(x * 2)]))
    for k in (1.0, 2.0):
        (node,) = graph(torch.tensor([k])).value
        assert node.rebuilt and node.x.item() == 2 * k


def test_training_returns_objects_with_eagers_bits():
    torch.manual_seed(0)
    batches = [torch.randn(4, 3) for _ in range(4)]
    results = []
    for is_graph in (False, True):
        torch.manual_seed(1)
        model = nn.Linear(3, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def build(x, model=model):
            cache = Cache()
            cache.add(model(x))
            loss = cache.layers[0].keys.square().mean()
            loss.backward()
            return loss, cache

        step = graph_of(build, optimizer, model=model) if is_graph else build
        outs = []
        for x in batches:
            optimizer.zero_grad()
            loss, cache = step(x)
            if not is_graph:
                optimizer.step()
            outs += [loss.detach().clone(), cache.layers[0].keys.detach().clone()]
        results.append([*outs, *(p.detach().clone() for p in model.parameters())])
    assert all(map(torch.equal, *results))


def test_a_result_keeps_no_memory_of_the_capture():
    references = []

    def build(x):
        layer = Layer(x * 2)
        references.append(weakref.ref(layer))
        return layer

    graph = graph_of(build)
    graph(torch.ones(2))
    assert [reference() for reference in references] == [None]


# -- what cannot be made again ---------------------------------------------------------------
def closure(x):
    return lambda: x


@pytest.mark.parametrize(
    "make, text",
    [
        (
            lambda x: holder({"lock": [threading.Lock()]}),
            r"\.value\['lock'\]\[0\] \(in .*SimpleNamespace\).*_thread\.lock",
        ),
        (lambda x: Frozen(x, (i for i in ())), r"\.scale \(in .*Frozen\).* type generator"),
        (lambda x: holder(x.numpy), r"\.value \(in .*SimpleNamespace\).* type (method|builtin)"),
        (lambda x: holder(closure(x * 2)), r"\.value \(in .*\).* type function"),
        (lambda x: {"a": holder({x})}, r"\['a'\]\.value \(in .*\).* type set"),
    ],
    ids=["lock", "generator", "method", "closure over a tensor", "set of tensors"],
)
def test_the_error_names_the_part_and_its_class(make, text):
    with pytest.raises(TypeError, match=text):
        graph_of(make)(torch.ones(2))


def test_tensors_put_into_an_older_object_are_no_result():
    older = Layer(None)

    def build(x):
        older.keys = x * 2
        return older

    with pytest.raises(
        RuntimeError, match=r"(?s)class Layer that was there before.*Pass the object as an argument"
    ):
        graph_of(build)(torch.ones(2))


def test_a_saved_graph_gives_dicts_for_objects(tmp_path):
    import oneflow as flow

    def build(x):
        cache = Cache()
        cache.add(x * 2)
        return cache

    graph = graph_of(build)
    graph(torch.ones(2))
    graph.save(tmp_path / "g")
    assert str(flow.load_graph(tmp_path / "g")(torch.full((2,), 2.0))) == str(
        {"layers": [{"keys": torch.tensor([4.0, 4.0])}], "length": 1}
    )


# -- identity of results -----------------------------------------------------------------------
def view_and_whole(x):
    y = x * 2
    return y.view(-1), y, y.detach(), y


def views_of_an_argument(x):
    return x.view(-1), x, x.detach()


def list_twice(x):
    part = [x * 2]
    return {"a": part, "b": (part, [1, 2]), "c": [part]}


def pairs_that_are_one(result):
    leaves = [part for part in pytree.tree_leaves(result) if isinstance(part, torch.Tensor)]
    return [(i, j) for i, a in enumerate(leaves) for j, b in enumerate(leaves[:i]) if a is b]


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize("step", [view_and_whole, views_of_an_argument])
def test_results_in_one_memory_are_objects_of_their_own(step, backend):
    run, x = flow.compile_step(step, backend=backend), torch.arange(3.0)
    expected = step(x)
    for _ in range(2):
        results = run(x)
        assert pairs_that_are_one(results) == pairs_that_are_one(expected)
        assert len({result.data_ptr() for result in results}) == 1
        results[0].unsqueeze_(0)
        assert [result.shape for result in results[1:]] == [x.shape] * (len(results) - 1)
        assert all(torch.equal(a.reshape(-1), b) for a, b in zip(results, expected))


def test_a_list_that_occurs_twice_in_the_result_is_one_list():
    run = flow.compile_step(list_twice, backend="aten")
    for value in (1.0, 3.0):
        results = run(torch.tensor(value))
        assert results["a"] is results["b"][0] is results["c"][0]
        assert results["a"][0].item() == 2 * value and results["b"][1] == [1, 2]
