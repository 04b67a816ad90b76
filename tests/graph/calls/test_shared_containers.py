"""Lists, dicts and objects that a step leaves in several places, and lists and dicts in attributes of its
object: after each call they are what eager mode leaves, and one list is one list.
"""

import copy
import dataclasses

import pytest
import torch
from torch import nn

import oneflow as flow

pytestmark = pytest.mark.eager_calls


@dataclasses.dataclass
class Output:
    total: torch.Tensor
    parts: list


LAYER = nn.BatchNorm1d(2)


class Keeper(nn.Module):
    """An object whose methods are steps. It is a module, or holds one, or neither: that must not matter."""

    def __init__(self):
        super().__init__()
        self.history, self.latest, self.entries = [], None, {"n": 0}

    # -- in several places
    def keeps_and_returns_a_dict(self, x):
        log = {"sum": x.sum().item(), "n": 3}
        self.history.append(log)
        self.latest = log
        return log

    def keeps_a_list_under_two_names(self, x):
        self.latest = self.entries["latest"] = [x * 2]

    def keeps_a_list_in_a_tuple(self, x):
        parts = [x * 2]
        self.latest = (parts, {"parts": parts})
        return parts

    def keeps_an_object(self, x):
        self.latest = Output(x.sum(), [x * 2])
        return self.latest, self.latest.parts

    def keeps_a_list_and_returns_it_twice(self, x):
        self.latest = [x * 2]
        return self.latest, (self.latest, {"parts": self.latest})

    def keeps_a_list_in_two_tuples(self, x):
        parts = [x * 2]
        self.latest, self.entries["latest"] = (parts, 1), (2, parts)

    # -- of older containers, and of dicts that hold constants only
    def keeps_its_own_list(self, x):
        self.history.append(x.sum().item())
        self.entries["history"] = self.history

    def keeps_its_own_dict_in_a_new_one(self, x):
        self.entries["sum"] = x.sum().item()
        self.history.append({"entries": self.entries, "history": [self.history]})

    def keeps_a_dict_of_constants(self, x):
        inner = {}
        inner["n"] = 1
        self.entries["log"] = {"inner": inner, "sum": x.sum()}
        self.history.append(copy.deepcopy({"inner": {"n": 2}}))

    def keeps_a_dict_with_attributes(self, x):
        self.history.append(copy.deepcopy(LAYER.state_dict()))
        self.entries["state"] = copy.deepcopy(LAYER.state_dict())

    # -- in a list or dict of an attribute
    def appends(self, x):
        self.history.append(x.sum().item())

    def appends_constants_too(self, x):
        self.history += [("step", 1), None]
        self.history.append(x.sum())
        self.history.append({"n": 1})

    def keeps_a_window(self, x):
        self.history.append(x.sum())
        if len(self.history) > 2:
            self.history.pop(0)
        return torch.stack(self.history).sum()

    def clears(self, x):
        self.history.clear()
        self.history += [x.sum(), 1.5]

    def inserts(self, x):
        self.history.insert(0, x.sum())

    def replaces_by_a_constant(self, x):
        if len(self.history) < 2:
            self.history.append(x.sum())
        else:
            self.history[0], self.history[1] = x.sum(), 7

    def fills_lists_of_a_dict(self, x):
        for name, value in {"sum": x.sum().item(), "one": 1.0}.items():
            self.entries.setdefault(name, []).append(value)

    def adds_entries(self, x):
        self.entries["a"], self.entries["sum"], self.entries["c"] = (1, 2), x.sum(), [3]

    def takes_entries_out(self, x):
        self.entries.pop("n", None)
        self.entries["sum"] = x.sum()


class Holder:
    """A plain object with the same steps."""

    def __init__(self):
        self.__dict__.update(Keeper().__dict__)


STEPS = [name for name in vars(Keeper) if not name.startswith("_")]
for _name in STEPS:
    setattr(Holder, _name, vars(Keeper)[_name])


def picture(value, seen):
    """Return the values, and which lists, dicts and objects are the same."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, dict, Output)):
        if id(value) in seen:
            return f"same as {seen[id(value)]}"
        seen[id(value)] = len(seen)
    if isinstance(value, Output):
        value = vars(value)
    if isinstance(value, dict):
        return {key: picture(part, seen) for key, part in value.items()}
    return [picture(part, seen) for part in value] if isinstance(value, (list, tuple)) else value


def pictures(make, name, compile_step):
    keeper = make()
    step = compile_step(getattr(keeper, name))
    held, found = [], []
    for i in range(7):
        if i == 4:  # equal objects in the places of those that the program knows
            keeper.history, keeper.entries = copy.copy(keeper.history), copy.copy(keeper.entries)
        result = step(torch.tensor([1.0, i]))
        held += [result, keeper.latest]
        if isinstance(result, dict):
            result["epoch"] = i
        found.append(repr(picture([held, keeper.history, keeper.entries], {})))
    return found, step


@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize("make", [Keeper, Holder])
@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_keeps_is_that_of_eager_mode(name, make):
    expected, _ = pictures(make, name, lambda step: step)
    found, _ = pictures(make, name, lambda step: flow.compile_step(step, backend="aten"))
    assert found == expected


@pytest.mark.parametrize(
    "name", ["appends", "keeps_and_returns_a_dict", "keeps_an_object", "keeps_a_list_and_returns_it_twice"]
)
def test_a_list_that_only_grows_needs_one_program(name):
    keeper = Holder()
    step = flow.compile_step(getattr(keeper, name), backend="aten", strict=True)
    for i in range(5):
        step(torch.tensor([1.0, i]))
    assert len(step.graph._engine.programs) == 1


def test_a_list_of_a_graph_that_only_grows_needs_one_program():
    class Appends(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.sums = []

        def build(self, x):
            self.sums.append(x.sum().item())
            return x * 2

    graph = Appends()
    for i in range(4):
        graph(torch.tensor([1.0, i]))
    assert graph.sums == [1.0, 2.0, 3.0, 4.0] and len(graph._engine.programs) == 1
