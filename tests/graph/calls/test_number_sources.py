"""The objects that hold the numbers of a program: others take their places, get new keys, or are returned.

A program reads its numbers from one dict or object, and stores them there. An equal object in its place,
which other guards accept, has numbers of its own.
"""

import copy
import types

import pytest
import torch
from test_number_inputs import Slotted, shown

import oneflow as flow

pytestmark = [
    pytest.mark.eager_calls,
    pytest.mark.filterwarnings("ignore:.*no program can hold this call"),
]
CALLS = 8


def places(**values):
    """An object whose attribute `place` holds a dict, an object or a module that the step reads."""
    return types.SimpleNamespace(place=values)


class Pair:
    __slots__ = ("factor", "n")


def pair():
    made = Pair()
    made.n, made.factor = 1, 2
    return made


def number_of_a_dict():
    box = places(n=1, factor=2)

    def step(x):
        box.place["n"] = box.place["n"] * 2
        return x * box.place["n"] * box.place["factor"]

    return box, step, lambda: dict(box.place)


def number_of_an_object():
    box = types.SimpleNamespace(place=types.SimpleNamespace(n=1, factor=2))

    def step(x):
        box.place.n = box.place.n * 2
        return x * box.place.n * box.place.factor

    return box, step, lambda: dict(vars(box.place))


def number_in_a_slot():
    box = types.SimpleNamespace(place=pair())

    def step(x):
        box.place.n = box.place.n * 2
        return x * box.place.n * box.place.factor

    return box, step, lambda: (box.place.n, box.place.factor)


def number_of_a_module():
    box = types.SimpleNamespace(place=torch.nn.Identity())
    box.place.n, box.place.factor = 1, 2

    def step(x):
        box.place.n = box.place.n * 2
        return box.place(x) * box.place.n * box.place.factor

    return box, step, lambda: box.place.n


def value_stored_in_a_dict():
    box = places(factor=2)

    def step(x):
        box.place["loss"] = x.sum().item() * box.place["factor"]
        return x

    return box, step, lambda: dict(box.place)


def tensor_stored_in_a_dict():
    box = places(factor=2)

    def step(x):
        box.place["last"] = x * box.place["factor"]
        return x

    return box, step, lambda: dict(box.place)


def value_stored_in_a_slot():
    box = types.SimpleNamespace(place=pair())

    def step(x):
        box.place.n = x.sum().item() * box.place.factor
        return x

    return box, step, lambda: box.place.n


OWNERS = [
    number_of_a_dict, number_of_an_object, number_in_a_slot, number_of_a_module, value_stored_in_a_dict,
    tensor_stored_in_a_dict, value_stored_in_a_slot,
]  # fmt: skip


def outcomes(make, change, is_compiled):
    box, step, read = make()
    run = flow.compile_step(step, backend="aten") if is_compiled else step
    for call in range(CALLS):
        change(box, call)
        yield shown(run(torch.ones(2) * (call + 1))), shown(read())


def assert_follows(make, change):
    expected = list(outcomes(make, change, False))
    for call, (actual, wanted) in enumerate(zip(outcomes(make, change, True), expected)):
        assert actual == wanted, f"call {call}"


@pytest.mark.parametrize("make", OWNERS)
def test_an_equal_object_in_the_place_of_the_owner_gets_the_values(make):
    def change(box, call):
        if call in (3, 6):
            box.place = copy.copy(box.place)

    assert_follows(make, change)


@pytest.mark.parametrize("make", OWNERS)
def test_another_object_in_the_place_of_the_owner_is_followed(make):
    def change(box, call):
        if call not in (3, 6):
            return
        box.place = copy.copy(box.place)
        if type(box.place) is dict:
            box.place["factor"] = 5
        else:
            box.place.factor = 5

    assert_follows(make, change)


def values_in_order():
    box = places(n=1, a=2)

    def step(x):
        box.place["n"] = box.place["n"] * 2
        for key, value in box.place.items():
            x = x * value if key != "n" else x + 1
        return x * box.place["n"]

    return box, step, lambda: list(box.place.items())


def count_of_keys():
    box = places(n=1, a=2)

    def step(x):
        box.place["n"] = box.place["n"] * 2
        return x * sum(box.place.values()) * len(box.place), list(box.place), {**box.place}

    return box, step, lambda: list(box.place.items())


def names_of_attributes():
    box = types.SimpleNamespace(place=torch.nn.Identity())
    box.place.n = 1

    def step(x):
        box.place.n = box.place.n * 2
        return x * box.place.n * (1 + sum(name.startswith("b") for name in vars(box.place)))

    return box, step, lambda: box.place.n


def comparison_of_the_dict():
    box = places(n=1, a=2)

    def step(x):
        box.place["n"] = box.place["n"] * 2
        return x * (3 if box.place == {"n": 8, "a": 2} else 1)

    return box, step, lambda: dict(box.place)


@pytest.mark.parametrize(
    "make", [values_in_order, count_of_keys, names_of_attributes, comparison_of_the_dict]
)
def test_a_new_key_beside_a_number_is_followed(make):
    def change(box, call):
        entries = box.place if type(box.place) is dict else vars(box.place)
        if call == 3:
            entries["b"] = 5
        if call == 5:
            del entries["b"]
        if call == 6 and "a" in entries:  # the same keys in another order
            entries["a"] = entries.pop("a")

    assert_follows(make, change)


def returns_the_dict():
    box = places(n=1)

    def step(x):
        box.place["n"] += 1
        return x * box.place["n"], (box.place,)

    return box, step, lambda: dict(box.place)


def returns_the_attributes():
    box = types.SimpleNamespace(place=types.SimpleNamespace(n=1, t=1.0))

    def step(x):
        box.place.n += 1  # nothing else reads the two, so the program only counts
        box.place.t *= 0.5
        return x, {"of": vars(box.place)}

    return box, step, lambda: dict(vars(box.place))


def returns_the_object():
    box = types.SimpleNamespace(place=Slotted(1))

    def step(x):
        box.place.n = box.place.n + 1
        return x * box.place.n, [box.place.n]

    return box, step, lambda: box.place.n


@pytest.mark.parametrize("make", [returns_the_dict, returns_the_attributes, returns_the_object])
def test_a_number_of_a_returned_container_is_that_of_the_call(make):
    assert_follows(make, lambda box, call: None)


@pytest.mark.parametrize("exponent", [2, -3, 2.0, 40])
def test_a_negative_number_of_a_tensor_is_raised_to_a_whole_power(exponent):
    def power(x):
        return (-x.sum().item()) ** exponent

    compiled = flow.compile_step(power, backend="aten", strict=True)
    for value in (0.3, -1.7, 2.5):
        x = torch.full((3,), value)
        assert repr(compiled(x)) == repr(power(x))
    assert len(compiled.graph._engine.programs) == 1


def test_a_power_that_may_be_complex_is_that_of_eager_mode():
    def power(x):
        return x.sum().item() ** 0.5

    compiled = flow.compile_step(power, backend="aten")
    for value in (0.3, -1.7, 2.5):
        x = torch.full((3,), value)
        assert repr(compiled(x)) == repr(power(x))
