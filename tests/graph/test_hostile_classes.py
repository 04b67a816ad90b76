"""Programs with special methods, registries of classes and swapped modules: a change between two calls is followed, or was named."""

from __future__ import annotations

import abc
import collections
import collections.abc
import enum
import importlib
import operator
import os
import sys
import types

from hostile_cases import verdict


def test_value_of_another_enum():

    class E(enum.Enum):
        A = 2.0
        B = 2.0

    box = [E.B]

    class E2(enum.Enum):
        A = 3.0

    def build(x):
        return x * box[0].value

    def change():
        box.__setitem__(0, E2.A)

    assert verdict(build, change) == "followed"


def test_member_of_a_flag():

    class P(enum.IntFlag):
        R = 1
        W = 2

    s = types.SimpleNamespace(p=P.R)

    def build(x):
        return x * (2.0 if P.W in s.p else 1.0)

    def change():
        s.p = P.R | P.W

    assert verdict(build, change) == "followed"


def test_slot_behind_a_property():

    class S:
        __slots__ = ("_v",)

        @property
        def v(self):
            return self._v * 2

    s = S()
    s._v = 1.0

    def build(x):
        return x * s.v

    def change():
        s._v = 3.0

    assert verdict(build, change) == "followed"


def test_registry_of_init_subclass():

    class Base:
        reg = []

        def __init_subclass__(cls, k=1.0, **kw):
            Base.reg.append(k)

    class A(Base, k=2.0):
        pass

    def change():

        class B(Base, k=3.0):
            pass

    def build(x):
        return x * sum(Base.reg)

    assert verdict(build, change) == "followed"


def test_subclasses_of_a_class():

    class Base:
        pass

    class A(Base):
        pass

    keep = [A]

    def build(x):
        return x * len(Base.__subclasses__())

    def change():
        keep.append(type("B", (Base,), {}))

    assert verdict(build, change) == "followed"


def test_class_registered_with_an_abstract_class():

    class Interface(abc.ABC):
        pass

    class C:
        pass

    c = C()

    def build(x):
        return x * (3.0 if isinstance(c, Interface) else 2.0)

    def change():
        Interface.register(C)

    assert verdict(build, change) == "followed"


def test_issubclass_of_an_abstract_class():

    class C:
        pass

    def build(x):
        return x * (3.0 if issubclass(C, collections.abc.Sequence) else 2.0)

    def change():
        collections.abc.Sequence.register(C)

    assert verdict(build, change) == "followed"


def test_subclasshook():

    class Interface(abc.ABC):
        ok = False

        @classmethod
        def __subclasshook__(cls, C):
            return cls.ok

    class C:
        pass

    def change():
        Interface.ok = True
        Interface._abc_caches_clear()

    def build(x):
        return x * (3.0 if isinstance(C(), Interface) else 2.0)

    assert verdict(build, change) == "followed"


def test_instancecheck_of_a_metaclass():

    class M(type):
        ok = True

        def __instancecheck__(cls, o):
            return M.ok

    class Interface(metaclass=M):
        pass

    def build(x):
        return x * (3.0 if isinstance(1, Interface) else 2.0)

    def change():
        M.ok = False

    assert verdict(build, change) == "followed"


def test_state_behind_an_operator():

    class V:
        k = 2.0

        def __matmul__(self, o):
            return self.k * o

        __rmul__ = lambda s, o: o * s.k

    v = V()

    def build(x):
        return x * (v @ 2.0)

    def change():
        v.k = 3.0

    assert verdict(build, change) == "followed"


def test_state_behind_a_reflected_operator():

    class V:
        def __init__(self):
            self.k = 2.0

        def __rmul__(self, o):
            return self.k * o

    v = V()

    def build(x):
        return 2.0 * v * x

    def change():
        v.k = 3.0

    assert verdict(build, change) == "followed"


def test_state_behind_an_operator_in_place():

    class V:
        def __init__(self):
            self.k = 2.0

        def __iadd__(self, o):
            return self.k + o

    v = V()

    def build(x):
        a = v
        a += 1
        return x * a

    def change():
        v.k = 3.0

    assert verdict(build, change) == "followed"


def test_index_of_a_list_by_an_object():

    class V:
        def __init__(self):
            self.k = 1

        def __index__(self):
            return self.k

    v = V()
    l = [2.0, 3.0, 4.0]

    def build(x):
        return x * l[v]

    def change():
        v.k = 2

    assert verdict(build, change) == "followed"


def test_index_of_a_tensor_by_an_object():

    class V:
        def __init__(self):
            self.k = 1

        def __index__(self):
            return self.k

    v = V()

    def build(x):
        return x[v] * 1

    def change():
        v.k = 2

    assert verdict(build, change) == "followed"


def test_float_of_an_object():

    class V:
        def __init__(self):
            self.k = 1.0

        def __float__(self):
            return self.k

    v = V()

    def build(x):
        return x * float(v)

    def change():
        v.k = 2.0

    assert verdict(build, change) == "followed"


def test_length_hint():

    class V:
        def __init__(self):
            self.k = 3

        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

        def __length_hint__(self):
            return self.k

    v = V()

    def build(x):
        return x * operator.length_hint(v)

    def change():
        v.k = 2

    assert verdict(build, change) == "followed"


def test_equality_of_a_dict_key():

    class V:
        k = 1

        def __hash__(self):
            return 1

        def __eq__(self, o):
            return self.k == 1

    v = V()
    d = {V(): 2.0}

    def change():
        V.k = 2

    def build(x):
        return x * d.get(v, 5.0)

    assert verdict(build, change) == "followed"


def test_order_of_objects():

    class V:
        def __init__(self, v):
            self.v = v

        def __lt__(self, o):
            return self.v < o.v

    l = [V(1.0), V(2.0)]

    def build(x):
        return x * min(l).v

    def change():
        l[1].v = 0.5

    assert verdict(build, change) == "followed"


def test_swapped_module_of_an_import_statement():
    a = types.ModuleType("hostile_mod")
    a.K = 2.0
    b = types.ModuleType("hostile_mod")
    b.K = 3.0
    sys.modules["hostile_mod"] = a

    def build(x):
        import hostile_mod

        return x * hostile_mod.K

    def change():
        sys.modules.__setitem__("hostile_mod", b)

    assert verdict(build, change) == "followed"


def test_swapped_module_of_import_module():
    a = types.ModuleType("hostile_mod3")
    a.K = 2.0
    b = types.ModuleType("hostile_mod3")
    b.K = 3.0
    sys.modules["hostile_mod3"] = a

    def build(x):
        return x * importlib.import_module("hostile_mod3").K

    def change():
        sys.modules.__setitem__("hostile_mod3", b)

    assert verdict(build, change) == "followed"


def test_reloaded_module(tmp_path, monkeypatch):
    d = tmp_path
    monkeypatch.syspath_prepend(d)
    p = os.path.join(d, "hostile_rel.py")
    open(p, "w").write("K=2.0\ndef f(): return K\n")
    import hostile_rel

    def change():
        open(p, "w").write("K=333.0\ndef f(): return K*1.0\n")
        importlib.invalidate_caches()
        importlib.reload(hostile_rel)

    def build(x):
        return x * hostile_rel.f()

    assert verdict(build, change) == "followed"


def test_function_imported_from_a_reloaded_module(tmp_path, monkeypatch):
    d = tmp_path
    monkeypatch.syspath_prepend(d)
    p = os.path.join(d, "hostile_rel2.py")
    open(p, "w").write("K=2.0\ndef f(): return K\n")
    import hostile_rel2
    from hostile_rel2 import f

    def change():
        open(p, "w").write("K=333.0\ndef f(): return K*1.0\n")
        importlib.invalidate_caches()
        importlib.reload(hostile_rel2)

    def build(x):
        return x * f()

    assert verdict(build, change) == "followed"
