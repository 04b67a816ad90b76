"""Tensors that build() leaves in caches and other objects have eager's values outside of the program, or
raise an error with the reason.
"""

import copy
import functools
import gc
import warnings
import weakref

import pytest
import torch
from graph_cases import graph_of
from torch import nn

import oneflow as flow


@functools.lru_cache
def rotary(length, size):
    frequency = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
    return torch.cat([torch.outer(torch.arange(length).float(), frequency)] * 2, -1).cos()


MASKS: dict = {}
COUNTS: dict = {}
SEEN: list = []


def mask(length):
    if length not in MASKS:
        MASKS[length] = torch.full((length, length), float("-inf")).triu_(1)
    return MASKS[length]


@pytest.fixture(autouse=True)
def empty_caches():
    rotary.cache_clear()
    for cache in (MASKS, COUNTS, SEEN):
        cache.clear()
    yield
    for cache in (MASKS, COUNTS, SEEN):
        cache.clear()
    rotary.cache_clear()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x) * rotary(x.shape[0], 8)
        return torch.softmax(y @ y.T + mask(x.shape[0]), -1) @ y


def test_cached_tables_have_eager_values():
    module, x = Attention(), torch.randn(5, 8)
    graph = graph_of(module, module=module)
    result = graph(x)
    assert type(MASKS[5]) is torch.Tensor
    assert torch.equal(MASKS[5], torch.full((5, 5), float("-inf")).triu(1))
    assert type(rotary(5, 8)) is torch.Tensor
    assert torch.equal(rotary(5, 8), rotary.__wrapped__(5, 8))
    assert torch.equal(module(x), result)
    assert torch.equal(graph_of(module, module=module)(x), result)
    assert torch.equal(graph(x), result)


def test_tensors_that_share_memory_share_it_afterwards():
    def build(x):
        if not COUNTS:
            table = torch.arange(6.0)
            COUNTS.update(whole=table, rows=table.view(2, 3), last=table[4:])
            table.add_(1)
        return x * COUNTS["rows"].sum()

    x = torch.ones(2)
    graph = graph_of(build)
    assert torch.equal(graph(x), build(x))
    assert COUNTS["rows"].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    COUNTS["whole"][4] = 50.0
    assert COUNTS["last"].tolist() == [50.0, 6.0] and COUNTS["rows"][1, 1] == 50.0
    assert torch.equal(graph(x), build(x))  # the program computed the table, and the caller has written it
    COUNTS["last"].mul_(2)
    assert torch.equal(graph(x), build(x))


def test_cached_tensor_that_build_writes_is_followed():
    def build(x):
        if "n" not in COUNTS:
            COUNTS["n"] = torch.zeros(4)
        COUNTS["n"].add_(1)
        return x * COUNTS["n"]

    x = torch.ones(4)
    with flow_dialect("torch"):
        graph = graph_of(build)
        results = [graph(x).clone() for _ in range(4)]
    got = COUNTS.pop("n")
    expected = [build(x).clone() for _ in range(4)]
    assert all(map(torch.equal, expected, results))
    assert torch.equal(got, COUNTS["n"])


def test_a_kept_constant_and_its_expansion_share_memory():
    def build(x):
        if not SEEN:
            row = torch.arange(3.0)
            SEEN.extend([row, row.expand(2, 3)])
        return x + SEEN[1]

    graph = graph_of(build)
    x = torch.randn(2, 3)
    assert torch.equal(graph(x), x + torch.arange(3.0))
    row, expanded = SEEN
    assert torch.equal(expanded, torch.arange(3.0).expand(2, 3)) and expanded.stride() == (0, 1)
    row[0] = 5.0
    assert expanded[1, 0] == 5.0


def test_an_object_that_build_makes_ends_with_the_call():
    class Scale:
        def __init__(self):
            self.factor = torch.full((3,), 2.0)
            references.append(weakref.ref(self.factor))

        def of(self, x):
            return x * self.factor

    references = []
    graph = graph_of(lambda x: Scale().of(x))
    assert torch.equal(graph(torch.ones(3)), torch.full((3,), 2.0))
    gc.collect()
    assert [reference() for reference in references] == [None]


class flow_dialect:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        flow.set_dialect(self.name)

    def __exit__(self, *exc):
        flow.set_dialect("oneflow")


@pytest.mark.parametrize("keep, holder", [
    (lambda y: SEEN.append(y.detach() * 2), r"a list \(.*SEEN\)"),
    (lambda y: COUNTS.update(last=y.detach() * 2), r"a dict under the key 'last' \(.*COUNTS\)"),
    (lambda y: globals().update(LAST=y.detach() * 2), r"the global name .*LAST"),
], ids=["list", "dict", "global"])  # fmt: skip
def test_tensor_without_values_is_announced_and_raises_when_used(keep, holder):
    def build(x):
        y = x * 3
        keep(y)
        return y

    graph = graph_of(build)
    with pytest.warns(UserWarning, match=rf"shape \(4,\) that build\(\) computed was kept in {holder}"):
        result = graph(torch.ones(4))
    assert torch.equal(result, torch.full((4,), 3.0))
    left = SEEN[0] if SEEN else COUNTS.get("last", globals().get("LAST"))
    globals().pop("LAST", None)
    with pytest.raises(RuntimeError, match="has no values there"):
        left + 1
    assert "test_survivors.py" in repr(left)


def test_ordinary_programs_leave_nothing():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 4))

    def build(x):
        loss = module(x).square().mean()
        loss.backward()
        return loss

    graph = graph_of(build, torch.optim.Adam(module.parameters()), module=module)
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph(torch.randn(3, 4))
    finally:
        gc.enable()


def test_the_tensor_behind_views_that_an_attribute_keeps_is_not_announced():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.cache = nn.Linear(4, 8), None

        def forward(self, x):
            k, v = self.project(x).chunk(2, -1)
            if self.cache is not None:
                k, v = torch.cat([self.cache[0], k], 1), torch.cat([self.cache[1], v], 1)
            self.cache = (k, v)
            return k + v

    module = Attention().requires_grad_(False)
    graph, eager = graph_of(lambda x: module(x), module=module), copy.deepcopy(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (3, 1, 1):
            x = torch.randn(2, n, 4)
            assert torch.equal(graph(x), eager(x))


def test_table_of_a_failed_capture_has_eager_values():
    def build(x):
        y = x * rotary(4, 8)
        raise ValueError("stop")
        return y

    with pytest.raises(ValueError, match="stop"):
        graph_of(build)(torch.ones(4, 8))
    assert torch.equal(rotary(4, 8), rotary.__wrapped__(4, 8))


class Output(dict):
    """As of transformers: a dict whose values are attributes, too."""

    def __init__(self, **values):
        super().__init__(**values)
        vars(self).update(values)


def test_objects_that_only_their_guards_and_cycles_hold_are_no_survivors():
    """A closure that calls itself is in a cycle, which reference counts do not free."""

    def build(x):
        output = Output(hidden=x * 2, layers=[Output(keys=x + 1)])

        def depth(layers):
            return 1 + max(
                map(depth, [layer.layers for layer in layers if hasattr(layer, "layers")]), default=0
            )

        return output.hidden * depth([output]) + output["layers"][0].keys

    step = graph_of(build)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(step(torch.ones(2)), torch.full((2,), 6.0))
    held = [
        g
        for g in step._engine.last_entry.python_guards.guards
        if isinstance(g.owner, Output) or type(g.value) is Output
    ]
    assert not held


def test_an_announcement_that_is_an_error_is_raised():
    step = graph_of(lambda x: SEEN.append(x * 2) or x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="kept in a list"):
            step(torch.ones(2))
