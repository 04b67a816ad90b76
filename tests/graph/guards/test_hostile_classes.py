"""Programs with special methods and registries of classes: the graph follows a change between two calls, or a
warning named it.
"""

import abc
import collections
import collections.abc
import enum
import operator
import types

from hostile_cases import verdict


def test_value_of_another_enum_is_followed():

    class Factor(enum.Enum):
        A = 2.0
        B = 2.0

    box = [Factor.B]

    class OtherFactor(enum.Enum):
        A = 3.0

    def build(x):
        return x * box[0].value

    def change():
        box.__setitem__(0, OtherFactor.A)

    assert verdict(build, change) == "followed"


def test_member_of_a_flag_is_followed():

    class Permission(enum.IntFlag):
        READ = 1
        WRITE = 2

    holder = types.SimpleNamespace(permission=Permission.READ)

    def build(x):
        return x * (2.0 if Permission.WRITE in holder.permission else 1.0)

    def change():
        holder.permission = Permission.READ | Permission.WRITE

    assert verdict(build, change) == "followed"


def test_slot_behind_a_property_is_followed():

    class Slotted:
        __slots__ = ("_half",)

        @property
        def doubled(self):
            return self._half * 2

    slotted = Slotted()
    slotted._half = 1.0

    def build(x):
        return x * slotted.doubled

    def change():
        slotted._half = 3.0

    assert verdict(build, change) == "followed"


def test_registry_of_init_subclass_is_followed():

    class Base:
        factors = []

        def __init_subclass__(cls, factor=1.0, **options):
            Base.factors.append(factor)

    class First(Base, factor=2.0):
        pass

    def change():

        class Second(Base, factor=3.0):
            pass

    def build(x):
        return x * sum(Base.factors)

    assert verdict(build, change) == "followed"


def test_subclasses_of_a_class_are_followed():

    class Base:
        pass

    class First(Base):
        pass

    kept = [First]

    def build(x):
        return x * len(Base.__subclasses__())

    def change():
        kept.append(type("B", (Base,), {}))

    assert verdict(build, change) == "followed"


def test_class_registered_with_an_abstract_class_is_followed():

    class Interface(abc.ABC):
        pass

    class Plain:
        pass

    plain = Plain()

    def build(x):
        return x * (3.0 if isinstance(plain, Interface) else 2.0)

    def change():
        Interface.register(Plain)

    assert verdict(build, change) == "followed"


def test_issubclass_of_an_abstract_class_is_followed():

    class Plain:
        pass

    def build(x):
        return x * (3.0 if issubclass(Plain, collections.abc.Sequence) else 2.0)

    def change():
        collections.abc.Sequence.register(Plain)

    assert verdict(build, change) == "followed"


def test_subclasshook_is_followed():

    class Interface(abc.ABC):
        answer = False

        @classmethod
        def __subclasshook__(cls, Plain):
            return cls.answer

    class Plain:
        pass

    def change():
        Interface.answer = True
        Interface._abc_caches_clear()

    def build(x):
        return x * (3.0 if isinstance(Plain(), Interface) else 2.0)

    assert verdict(build, change) == "followed"


def test_instancecheck_of_a_metaclass_is_followed():

    class Meta(type):
        answer = True

        def __instancecheck__(cls, instance):
            return Meta.answer

    class Interface(metaclass=Meta):
        pass

    def build(x):
        return x * (3.0 if isinstance(1, Interface) else 2.0)

    def change():
        Meta.answer = False

    assert verdict(build, change) == "followed"


def test_state_behind_an_operator_is_followed():

    class Number:
        value = 2.0

        def __matmul__(self, other):
            return self.value * other

        __rmul__ = lambda self, other: other * self.value

    number = Number()

    def build(x):
        return x * (number @ 2.0)

    def change():
        number.value = 3.0

    assert verdict(build, change) == "followed"


def test_state_behind_a_reflected_operator_is_followed():

    class Number:
        def __init__(self):
            self.value = 2.0

        def __rmul__(self, other):
            return self.value * other

    number = Number()

    def build(x):
        return 2.0 * number * x

    def change():
        number.value = 3.0

    assert verdict(build, change) == "followed"


def test_state_behind_an_operator_in_place_is_followed():

    class Number:
        def __init__(self):
            self.value = 2.0

        def __iadd__(self, other):
            return self.value + other

    number = Number()

    def build(x):
        total = number
        total += 1
        return x * total

    def change():
        number.value = 3.0

    assert verdict(build, change) == "followed"


def test_index_of_a_list_by_an_object_is_followed():

    class Index:
        def __init__(self):
            self.value = 1

        def __index__(self):
            return self.value

    index = Index()
    numbers = [2.0, 3.0, 4.0]

    def build(x):
        return x * numbers[index]

    def change():
        index.value = 2

    assert verdict(build, change) == "followed"


def test_index_of_a_tensor_by_an_object_is_followed():

    class Index:
        def __init__(self):
            self.value = 1

        def __index__(self):
            return self.value

    index = Index()

    def build(x):
        return x[index] * 1

    def change():
        index.value = 2

    assert verdict(build, change) == "followed"


def test_float_of_an_object_is_followed():

    class Number:
        def __init__(self):
            self.value = 1.0

        def __float__(self):
            return self.value

    number = Number()

    def build(x):
        return x * float(number)

    def change():
        number.value = 2.0

    assert verdict(build, change) == "followed"


def test_length_hint_is_followed():

    class Iterator:
        def __init__(self):
            self.length = 3

        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

        def __length_hint__(self):
            return self.length

    iterator = Iterator()

    def build(x):
        return x * operator.length_hint(iterator)

    def change():
        iterator.length = 2

    assert verdict(build, change) == "followed"


def test_equality_of_a_dict_key_is_followed():

    class Key:
        state = 1

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self.state == 1

    key = Key()
    factors = {Key(): 2.0}

    def change():
        Key.state = 2

    def build(x):
        return x * factors.get(key, 5.0)

    assert verdict(build, change) == "followed"


def test_order_of_objects_is_followed():

    class Number:
        def __init__(self, value):
            self.value = value

        def __lt__(self, other):
            return self.value < other.value

    numbers = [Number(1.0), Number(2.0)]

    def build(x):
        return x * min(numbers).value

    def change():
        numbers[1].value = 0.5

    assert verdict(build, change) == "followed"
