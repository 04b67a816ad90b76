"""Programs that use Python's language in unusual ways: the graph follows a change between two calls, or a
warning named it.
"""

import enum
import functools
import types
import typing
import weakref

import pytest
from hostile_cases import verdict


def test_state_of_a_descriptor_is_followed():

    class Scale:
        def __init__(self):
            self.table = weakref.WeakKeyDictionary()

        def __get__(self, instance, owner):
            return self.table.get(instance, 1.0)

        def __set__(self, instance, value):
            self.table[instance] = value

    class Owner:
        scale = Scale()

    owner = Owner()
    owner.scale = 2.0

    def build(x):
        return x * owner.scale

    def change():
        owner.scale = 3.0

    assert verdict(build, change) == "followed"


def test_module_getattr_is_followed():
    module = types.ModuleType("hostile562")
    module.__dict__["_table"] = {"scale": 2.0}
    module.__getattr__ = lambda name: module._table[name]

    def change():
        module._table["scale"] = 3.0

    def build(x):
        return x * module.scale

    assert verdict(build, change) == "followed"


def test_replaced_module_getattr_is_followed():
    module = types.ModuleType("hostile562")
    module.__getattr__ = lambda name: 2.0

    def build(x):
        return x * module.scale

    def change():
        module.__getattr__ = lambda name: 3.0

    assert verdict(build, change) == "followed"


def test_attribute_of_a_class_in_a_closure_is_followed():

    def make_class(factor):

        class Scaled:
            value = factor

            def get(self):
                return factor * self.value

        return Scaled

    Scaled = make_class(2.0)
    scaled = Scaled()

    def build(x):
        return x * scaled.get()

    def change():
        Scaled.value = 5.0

    assert verdict(build, change) == "followed"


def test_nonlocal_counter_is_followed():
    count = 0

    def change():
        nonlocal count
        count += 1

    def build(x):
        return x * (count + 1)

    assert verdict(build, change) == "followed"


def test_class_pattern_is_followed():

    class Pair:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a = a
            self.b = b

    pair = Pair(1, 2.0)

    def build(x):
        match pair:
            case Pair(1, b):
                return x * b
            case Pair(a, b):
                return x * (a + b)

    def change():
        pair.a = 4

    assert verdict(build, change) == "followed"


def test_replaced_match_args_are_followed():

    class Pair:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a = a
            self.b = b

    pair = Pair(1.0, 2.0)

    def build(x):
        match pair:
            case Pair(value):
                return x * (value + 1)

    def change():
        Pair.__match_args__ = "b", "a"

    assert verdict(build, change) == "followed"


def test_mapping_pattern_is_followed():
    table = {"kind": "a", "factor": 2.0}

    def build(x):
        match table:
            case {"kind": "a", "factor": factor, **rest}:
                return x * (factor + len(rest))
            case _:
                return x * 9

    def change():
        table.update(z=1)

    assert verdict(build, change) == "followed"


def test_sequence_pattern_is_followed():
    factors = [1.0, 2.0]

    def build(x):
        match factors:
            case [factor, *rest]:
                return x * (factor + len(rest))

    def change():
        factors.append(1)

    assert verdict(build, change) == "followed"


def test_assignment_expression_is_followed():
    table = {"factor": 2.0}

    def build(x):
        if (factor := table.get("factor")) is not None and factor > 1:
            return x * factor
        return x

    def change():
        table.update(factor=0.5) or table.update(factor=3.0)

    assert verdict(build, change) == "followed"


def test_singledispatch_registered_later_is_followed():

    @functools.singledispatch
    def factor_of(value):
        return 2.0

    class Registered:
        pass

    value = Registered()

    def build(x):
        return x * factor_of(value)

    def change():
        factor_of.register(Registered, lambda value: 3.0)

    assert verdict(build, change) == "followed"


def test_singledispatchmethod_registered_later_is_followed():

    class Scale:
        @functools.singledispatchmethod
        def factor_of(self, value):
            return 2.0

    scale = Scale()

    def build(x):
        return x * scale.factor_of(1)

    def change():
        Scale.factor_of.register(int, lambda scale, value: 3.0)

    assert verdict(build, change) == "followed"


def test_cached_property_that_is_computed_again():

    class Owner:
        factor = 2.0

        @functools.cached_property
        def doubled(self):
            return self.factor * 2

    owner = Owner()
    owner.doubled

    def change():
        owner.factor = 3.0
        del owner.doubled

    def build(x):
        return x * owner.doubled

    assert verdict(build, change) == "followed"


def test_weak_proxy_is_named():

    class Owner:
        factor = 2.0

    owner = Owner()
    proxy = weakref.proxy(owner)

    def build(x):
        return x * proxy.factor

    def change():
        owner.factor = 3.0

    assert verdict(build, change) == "named"


def test_entry_of_a_weak_value_dictionary_is_followed():

    class Owner:
        def __init__(self, factor):
            self.factor = factor

    kept = [Owner(2.0), Owner(3.0)]
    table = weakref.WeakValueDictionary(a=kept[0])

    def build(x):
        return x * table["a"].factor

    def change():
        table.__setitem__("a", kept[1])

    assert verdict(build, change) == "followed"


def test_length_of_a_weak_value_dictionary_is_followed():

    class Owner:
        pass

    kept = [Owner(), Owner()]
    table = weakref.WeakValueDictionary(a=kept[0], b=kept[1])

    def change():
        kept.pop()

    def build(x):
        return x * len(table)

    assert verdict(build, change) == "followed"


def test_elements_of_a_weak_set_are_followed():

    class Owner:
        def __init__(self, factor):
            self.factor = factor

    kept = [Owner(2.0), Owner(3.0)]
    members = weakref.WeakSet(kept[:1])

    def build(x):
        return x * sum(member.factor for member in members)

    def change():
        members.add(kept[1])

    assert verdict(build, change) == "followed"


def test_defaults_of_a_named_tuple():

    class Settings(typing.NamedTuple):
        a: float = 2.0

    def change():
        Settings.__new__.__defaults__ = (3.0,)

    def build(x):
        return x * Settings().a

    assert verdict(build, change) == "followed"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (lambda: Level.LOW.value, lambda patch: patch.setattr(Level.LOW, "_value_", 5)),
        (lambda: Level(1).value, lambda patch: patch.setitem(Level._value2member_map_, 1, Level.HIGH)),
        (lambda: Level["LOW"].value, lambda patch: patch.setitem(Level._member_map_, "LOW", Level.HIGH)),
        (lambda: len(Level), lambda patch: patch.setattr(Level, "_member_names_", ["LOW"])),
        (
            lambda: sum(level.value for level in Level),
            lambda patch: patch.setattr(Level, "_member_names_", ["LOW"]),
        ),
    ],
    ids=["value", "call", "item", "length", "members"],
)
def test_changed_member_of_an_enum_is_followed(monkeypatch, read, change):
    assert verdict(lambda x: x * read(), lambda: change(monkeypatch)) == "followed"
