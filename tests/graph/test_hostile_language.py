"""Programs that use Python's language in unusual ways: a change between two calls is followed, or was named."""

from __future__ import annotations

import functools
import types
import typing
import weakref

from hostile_cases import verdict


def test_state_of_a_descriptor():

    class Scale:
        def __init__(self):
            self.table = weakref.WeakKeyDictionary()

        def __get__(self, i, o):
            return self.table.get(i, 1.0)

        def __set__(self, i, v):
            self.table[i] = v

    class Owner:
        scale = Scale()

    o = Owner()
    o.scale = 2.0

    def build(x):
        return x * o.scale

    def change():
        o.scale = 3.0

    assert verdict(build, change) == "followed"


def test_module_getattr():
    m = types.ModuleType("hostile562")
    m.__dict__["_t"] = {"scale": 2.0}
    m.__getattr__ = lambda n: m._t[n]

    def change():
        m._t["scale"] = 3.0

    def build(x):
        return x * m.scale

    assert verdict(build, change) == "followed"


def test_replaced_module_getattr():
    m = types.ModuleType("hostile562")
    m.__getattr__ = lambda n: 2.0

    def build(x):
        return x * m.scale

    def change():
        m.__getattr__ = lambda n: 3.0

    assert verdict(build, change) == "followed"


def test_attribute_of_a_class_in_a_closure():

    def make(k):

        class C:
            value = k

            def get(self):
                return k * self.value

        return C

    C = make(2.0)
    o = C()

    def build(x):
        return x * o.get()

    def change():
        C.value = 5.0

    assert verdict(build, change) == "followed"


def test_nonlocal_counter():
    n = 0

    def change():
        nonlocal n
        n += 1

    def build(x):
        return x * (n + 1)

    assert verdict(build, change) == "followed"


def test_class_pattern():

    class P:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a = a
            self.b = b

    p = P(1, 2.0)

    def build(x):
        match p:
            case P(1, b):
                return x * b
            case P(a, b):
                return x * (a + b)

    def change():
        p.a = 4

    assert verdict(build, change) == "followed"


def test_replaced_match_args():

    class P:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a = a
            self.b = b

    p = P(1.0, 2.0)

    def build(x):
        match p:
            case P(first):
                return x * (first + 1)

    def change():
        P.__match_args__ = "b", "a"

    assert verdict(build, change) == "followed"


def test_mapping_pattern():
    d = {"kind": "a", "v": 2.0}

    def build(x):
        match d:
            case {"kind": "a", "v": v, **rest}:
                return x * (v + len(rest))
            case _:
                return x * 9

    def change():
        d.update(z=1)

    assert verdict(build, change) == "followed"


def test_sequence_pattern():
    d = [1.0, 2.0]

    def build(x):
        match d:
            case [a, *rest]:
                return x * (a + len(rest))

    def change():
        d.append(1)

    assert verdict(build, change) == "followed"


def test_assignment_expression():
    d = {"n": 2.0}

    def build(x):
        if (n := d.get("n")) is not None and n > 1:
            return x * n
        return x

    def change():
        d.update(n=0.5) or d.update(n=3.0)

    assert verdict(build, change) == "followed"


def test_singledispatch_registered_later():

    @functools.singledispatch
    def f(a):
        return 2.0

    class A:
        pass

    a = A()

    def build(x):
        return x * f(a)

    def change():
        f.register(A, lambda a: 3.0)

    assert verdict(build, change) == "followed"


def test_singledispatchmethod_registered_later():

    class S:
        @functools.singledispatchmethod
        def f(self, a):
            return 2.0

    s = S()

    def build(x):
        return x * s.f(1)

    def change():
        S.f.register(int, lambda s, a: 3.0)

    assert verdict(build, change) == "followed"


def test_cached_property_that_is_computed_again():

    class C:
        k = 2.0

        @functools.cached_property
        def v(self):
            return self.k * 2

    c = C()
    c.v

    def change():
        c.k = 3.0
        del c.v

    def build(x):
        return x * c.v

    assert verdict(build, change) == "followed"


def test_weak_proxy_is_named():

    class C:
        v = 2.0

    c = C()
    p = weakref.proxy(c)

    def build(x):
        return x * p.v

    def change():
        c.v = 3.0

    assert verdict(build, change) == "named"


def test_entry_of_a_weak_value_dictionary():

    class C:
        def __init__(self, v):
            self.v = v

    keep = [C(2.0), C(3.0)]
    d = weakref.WeakValueDictionary(a=keep[0])

    def build(x):
        return x * d["a"].v

    def change():
        d.__setitem__("a", keep[1])

    assert verdict(build, change) == "followed"


def test_length_of_a_weak_value_dictionary():

    class C:
        pass

    keep = [C(), C()]
    d = weakref.WeakValueDictionary(a=keep[0], b=keep[1])

    def change():
        keep.pop()

    def build(x):
        return x * len(d)

    assert verdict(build, change) == "followed"


def test_elements_of_a_weak_set():

    class C:
        def __init__(self, v):
            self.v = v

    keep = [C(2.0), C(3.0)]
    d = weakref.WeakSet(keep[:1])

    def build(x):
        return x * sum(c.v for c in d)

    def change():
        d.add(keep[1])

    assert verdict(build, change) == "followed"


def test_defaults_of_a_named_tuple():

    class N(typing.NamedTuple):
        a: float = 2.0

    def change():
        N.__new__.__defaults__ = (3.0,)

    def build(x):
        return x * N().a

    assert verdict(build, change) == "followed"
