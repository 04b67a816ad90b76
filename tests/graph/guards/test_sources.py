"""Each sort of source: a guard holds until the source holds another value, in the compiled loop and in
Python.
"""

import collections
import contextvars
import operator
import types
import weakref

import pytest
import torch

from oneflow._graph.guards import sources
from oneflow._graph.guards.checkers import CompiledChecker, PythonChecker
from oneflow._graph.guards.counters import Counter, Step
from oneflow._graph.guards.guard import Guard, Source, grouped
from oneflow._graph.guards.native import probed_features


class Owner:
    value = 1


class Slots:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 1


class Other(Owner):
    pass


def setting():
    answer = "before"

    return lambda: answer


def set_cell(function):
    function.__closure__[0].cell_contents = "after"


def new_class():
    return type("New", (), {"value": 1, "__len__": lambda self: 1})


def referent():
    reference = weakref.ref(owner := Owner())
    KEPT[:] = [owner]
    return reference


KEPT = []  # the objects of weak references
COUNTED = Counter(sources.Item("k"), (Step(operator.add, 1),))
# sort of source: (source, function that makes an owner, change of the owner)
CASES = {
    "item": (sources.Item("k"), lambda: {"k": 1}, lambda owner: owner.update(k=2)),
    "missing item": (sources.Item("k"), dict, lambda owner: owner.update(k=2)),
    "mode": (sources.Mode("k"), lambda: {"k": True}, lambda owner: owner.update(k=False)),
    "contains": (sources.Contains("k"), dict, lambda owner: owner.update(k=2)),
    "size": (sources.SIZE, dict, lambda owner: owner.update(k=2)),
    "keys": (sources.KEYS, dict, lambda owner: owner.update(k=2)),
    "contents of a dict": (sources.CONTENTS, lambda: {"k": 1}, lambda owner: owner.update(k=2)),
    "contents of a list": (sources.CONTENTS, lambda: [1], lambda owner: owner.append(2)),
    "contents of a set": (sources.CONTENTS, lambda: {1}, lambda owner: owner.add(2)),
    "order of a dict": (
        sources.CONTENTS,
        lambda: collections.OrderedDict(a=1, b=2),
        lambda owner: owner.move_to_end("a"),
    ),
    "element": (sources.Element(-1), lambda: [1, 2], lambda owner: owner.append(3)),
    "element of a deque": (sources.Element(0), lambda: collections.deque([1]), lambda owner: owner.clear()),
    "cell": (sources.CELL, lambda: types.CellType(1), lambda owner: setattr(owner, "cell_contents", 2)),
    "attribute": (sources.Attribute("value"), Slots, lambda owner: setattr(owner, "value", 2)),
    "class attribute": (sources.ClassAttribute("value"), new_class, lambda owner: setattr(owner, "value", 2)),
    "special methods": (sources.SPECIAL_METHODS, new_class, lambda owner: delattr(owner, "__len__")),
    "type": (sources.TYPE, Owner, lambda owner: setattr(owner, "__class__", Other)),
    "attributes": (sources.ATTRIBUTES, Owner, lambda owner: setattr(owner, "__dict__", {})),
    "function": (
        sources.FUNCTION,
        lambda: types.FunctionType((lambda x: x).__code__, {}),
        lambda owner: setattr(owner, "__defaults__", (1,)),
    ),
    "flag": (
        sources.Flag("requires_grad"),
        lambda: (torch.zeros(1), torch.zeros(1)),
        lambda owner: [tensor.requires_grad_() for tensor in owner],
    ),
    "layout": (sources.LAYOUT, lambda: torch.zeros(2, 3), lambda owner: owner.t_()),
    "layout of many dimensions": (
        sources.LAYOUT,
        lambda: torch.zeros(1, 1, 1, 1, 2, 3),
        lambda owner: owner.transpose_(4, 5),
    ),
    "answer": (sources.Answer((None, ())), setting, set_cell),
    "state": (
        sources.State((None, ())),
        lambda: torch.get_default_dtype,
        lambda owner: torch.set_default_dtype(torch.float64),
    ),
    "answer of a method": (sources.Answer(("__len__", ())), lambda: [1], lambda owner: owner.append(2)),
    "context variable": (
        sources.CONTEXT,
        lambda: contextvars.ContextVar("variable", default=1),
        lambda owner: owner.set(2),
    ),
    "object of a weak reference": (sources.ALIVE, referent, lambda owner: KEPT.clear()),
    "source of a weak reference": (
        sources.Weak(sources.TYPE),
        referent,
        lambda owner: setattr(owner(), "__class__", Other),
    ),
    "counter": (COUNTED, lambda: {"k": 1}, lambda owner: owner.update(k=1.0)),
}
CHECKERS = {
    "compiled": lambda groups: CompiledChecker(groups, probed_features()),
    "Python": PythonChecker,
}


@pytest.fixture(autouse=True)
def default_dtype():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", CHECKERS)
@pytest.mark.parametrize("name", CASES)
def test_a_guard_holds_until_its_source_changes(name, kind):
    if kind == "compiled" and probed_features() is None:
        pytest.skip("the compiled loop needs a C++ compiler")
    source, make_owner, change = CASES[name]
    guard = guard_of(source, make_owner())
    checker = CHECKERS[kind](grouped([guard]))
    assert guard.holds() and checker.first_change() is None
    change(guard.owner)
    assert not guard.holds() and checker.first_change() == 0
    guard.value = guard.current()
    checker.update(0)
    assert checker.first_change() is None


def guard_of(source, owner):
    guard = Guard(source, owner, None)
    guard.value = guard.current()
    return guard


def test_each_sort_of_source_has_a_case():
    assert sorts_below(Source) - {sources.Writable} == {type(source) for source, *_ in CASES.values()}


def sorts_below(cls):
    return {*cls.__subclasses__()}.union(*map(sorts_below, cls.__subclasses__()))


def test_sources_of_one_tensor_are_equal_and_ask_no_tensor():
    """A comparison of the fields asks `tensor == tensor`, as dataclasses do from Python 3.13 on."""
    tensor = torch.ones(2)
    assert sources.Item(tensor) == sources.Item(tensor) and sources.Item(1) == sources.Item(1)
    assert sources.Item(1) != sources.Item(2) and sources.Item(1) != sources.Contains(1)
    assert sources.Item(tensor) in {sources.Item(tensor): 1}
