"""Programs whose attribute lookups run Python: the graph follows a change between two calls, or a warning
named it.
"""

import dataclasses
import enum
import functools
import inspect
import types
import typing

from hostile_cases import verdict
from torch import nn


def test_name_that_a_descriptor_was_given():
    class D:
        def __set_name__(s, o, n):
            s.n = n

        def __get__(s, i, o):
            return {"a": s.k}[s.n]

        k = 2.0

    class C:
        a = D()

    c = C()
    assert verdict(lambda x: x * c.a, lambda: setattr(D, "k", 3.0)) == "followed"


def test_instance_attribute_that_hides_a_descriptor_is_followed():
    class D:
        def __get__(s, i, o):
            return 2.0

    class C:
        a = D()

    c = C()
    assert verdict(lambda x: x * c.a, lambda: c.__dict__.update(a=3.0)) == "followed"


def test_property_added_to_a_class_is_followed():
    class C:
        pass

    c = C()
    c.a = 2.0
    assert verdict(lambda x: x * c.a, lambda: setattr(C, "a", property(lambda s: 3.0))) == "followed"


def test_overridden_getattribute_that_refuses_other_names():
    class C:
        t = {"a": 2.0}

        def __getattribute__(s, n):
            return type(s).t[n]

    c = C()
    assert verdict(lambda x: x * c.a, lambda: C.t.update(a=3.0)) == "followed"


def test_attribute_behind_two_proxies_is_followed():
    class Inner:
        a = 2.0

    class P:
        def __init__(s, i):
            s.__dict__["_i"] = i

        def __getattr__(s, n):
            return getattr(s._i, n)

    p = P(P(Inner()))
    assert verdict(lambda x: x * p.a, lambda: setattr(Inner, "a", 3.0)) == "followed"


def test_getattr_of_a_metaclass_is_followed():
    class M(type):
        v = {"q": 2.0}

        def __getattr__(cls, n):
            return M.v[n]

    class C(metaclass=M):
        pass

    assert verdict(lambda x: x * C.q, lambda: M.v.update(q=3.0)) == "followed"


def test_property_of_a_metaclass_is_followed():
    class M(type):
        s = 2.0

        @property
        def q(cls):
            return cls.s

    class C(metaclass=M):
        pass

    assert verdict(lambda x: x * C.q, lambda: setattr(C, "s", 3.0)) == "followed"


def test_iteration_of_a_class_is_followed():
    class M(type):
        def __iter__(cls):
            return iter(cls.items)

        def __len__(cls):
            return len(cls.items)

    class C(metaclass=M):
        items = [2.0]

    assert verdict(lambda x: x * len(C) * sum(C), lambda: C.items.append(3.0)) == "followed"


def test_item_of_a_class_whose_metaclass_has_it():
    class M(type):
        def __getitem__(cls, k):
            return cls.d[k]

        def __contains__(cls, k):
            return k in cls.d

    class C(metaclass=M):
        d = {"a": 2.0}

    assert verdict(lambda x: x * (C["a"] if "a" in C else 5.0), lambda: C.d.clear()) == "followed"


def test_class_getitem_is_followed():
    class C:
        d = {"a": 2.0}

        def __class_getitem__(cls, k):
            return cls.d[k]

    assert verdict(lambda x: x * C["a"], lambda: C.d.update(a=3.0)) == "followed"


def test_property_that_gives_another_class():
    class L:
        k = 2.0

        @property
        def __class__(s):
            return nn.Module

    l = L()
    assert verdict(lambda x: x * l.k, lambda: setattr(L, "k", 3.0)) == "followed"


def test_inherited_slot_is_followed():
    class A:
        __slots__ = ("k",)

    class B(A):
        __slots__ = ("j",)

    b = B()
    b.k = 2.0
    b.j = 1.0
    assert verdict(lambda x: x * b.k * b.j, lambda: setattr(b, "k", 3.0)) == "followed"


def test_deleted_slot_that_getattr_replaces_is_followed():
    class A:
        __slots__ = ("k",)

        def __getattr__(s, n):
            return 3.0

    a = A()
    a.k = 2.0
    assert verdict(lambda x: x * a.k, lambda: delattr(a, "k")) == "followed"


def test_class_of_an_object_that_is_assigned():
    class A:
        def m(s, x):
            return x * 2.0

    class B:
        def m(s, x):
            return x * 3.0

    a = A()

    def ch():
        a.__class__ = B

    assert verdict(lambda x: a.m(x), ch) == "followed"


def test_bases_of_a_class_that_are_assigned():
    class A:
        def m(s, x):
            return x * 2.0

    class A2:
        def m(s, x):
            return x * 3.0

    class B(A):
        pass

    b = B()

    def ch():
        B.__bases__ = (A2,)

    assert verdict(lambda x: b.m(x), ch) == "followed"


def test_bases_of_an_exception_that_is_caught():
    class A(Exception):
        pass

    class B(A):
        pass

    class A2(Exception):
        pass

    def build(x):
        try:
            raise B
        except A:
            return x * 2.0
        except Exception:
            return x * 3.0

    def ch():
        B.__bases__ = (A2,)

    assert verdict(build, ch) == "followed"


def test_classes_of_exceptions_that_are_caught():
    h = types.SimpleNamespace(t=(ValueError,))

    def build(x):
        try:
            try:
                raise ValueError
            except h.t:
                return x * 2.0
        except ValueError:
            return x * 3.0

    assert verdict(build, lambda: setattr(h, "t", (TypeError,))) == "followed"


def test_method_that_makes_a_class_fit_a_protocol():
    @typing.runtime_checkable
    class P(typing.Protocol):
        def q(self): ...

    class B:
        pass

    b = B()
    assert (
        verdict(lambda x: x * (3.0 if isinstance(b, P) else 2.0), lambda: setattr(B, "q", lambda s: 1))
        == "followed"
    )


def test_annotations_of_a_class_are_followed():
    class C:
        a: int

    assert (
        verdict(lambda x: x * len(typing.get_type_hints(C)), lambda: C.__annotations__.update(b=int))
        == "followed"
    )


def test_defaults_that_a_signature_shows_are_followed():
    def f(a, b=2.0):
        return b

    h = types.SimpleNamespace(f=f)
    assert (
        verdict(
            lambda x: x * inspect.signature(h.f).parameters["b"].default,
            lambda: setattr(f, "__defaults__", (3.0,)),
        )
        == "followed"
    )


def test_overridden_dir_is_followed():
    class C:
        names = ["a"]

        def __dir__(s):
            return s.names

    c = C()
    assert verdict(lambda x: x * len(dir(c)), lambda: C.names.append("b")) == "followed"


def test_bound_method_of_another_object_is_followed():
    class C:
        def __init__(s, k):
            s.k = k

        def m(s, x):
            return x * s.k

    a, b = (C(2.0), C(3.0))
    a2 = types.SimpleNamespace(m=a.m)
    assert verdict(lambda x: a2.m(x), lambda: setattr(a2, "m", b.m)) == "followed"


def test_function_under_a_wrapper_is_followed():
    def f(x):
        return x * 2.0

    @functools.wraps(f)
    def w(x):
        return w.__wrapped__(x)

    assert verdict(lambda x: w(x), lambda: setattr(w, "__wrapped__", lambda x: x * 3.0)) == "followed"


def test_class_of_a_module_that_is_assigned():
    m = types.ModuleType("usermod_y")
    m.v = 2.0

    class M(types.ModuleType):
        @property
        def v2(self):
            return 3.0

        def __getattribute__(self, n):
            return 3.0 if n == "v" else super().__getattribute__(n)

    def ch():
        m.__class__ = M

    assert verdict(lambda x: x * m.v, ch) == "followed"


def test_builtins_of_executed_code_are_followed():
    g = {"__builtins__": {"abs": lambda v: 2.0}}
    exec("def f(x):\n    return x * abs(-1)\n", g)
    assert verdict(lambda x: g["f"](x), lambda: g["__builtins__"].update(abs=lambda v: 3.0)) == "followed"


def test_key_with_its_own_equality_is_followed():
    class K:
        h = 1

        def __init__(s, v):
            s.v = v

        def __hash__(s):
            return s.h

        def __eq__(s, o):
            return s.v == o.v

    d = {K(1): 2.0}
    k = K(1)

    def build(x):
        return x * d.get(k, 3.0)

    assert verdict(build, lambda: setattr(k, "v", 9)) == "followed"


def test_cached_property_of_a_class_attribute_is_followed():
    class C:
        b = 2.0

        @functools.cached_property
        def k(s):
            return s.b

    c = C()

    def ch():
        C.b = 3.0
        c.__dict__.pop("k")

    assert verdict(lambda x: x * c.k, ch) == "followed"


def test_cache_that_is_cleared():
    b = [2.0]

    @functools.lru_cache
    def f():
        return b[0]

    def ch():
        b[0] = 3.0
        f.cache_clear()

    assert verdict(lambda x: x * f(), ch) == "followed"


def test_size_of_a_cache_is_followed():
    @functools.lru_cache
    def f(a):
        return a

    f(1)
    assert verdict(lambda x: x * f.cache_info().currsize, lambda: f(2)) == "followed"


def test_attribute_of_a_member_of_an_enum_is_followed():
    class E(enum.Enum):
        A = 1

        @property
        def k(s):
            return s._k

    E.A._k = 2.0
    assert verdict(lambda x: x * E.A.k, lambda: setattr(E.A, "_k", 3.0)) == "followed"


def test_global_that_post_init_reads():
    g = {"k": 2.0}

    @dataclasses.dataclass
    class S:
        a: float = 1.0

        def __post_init__(s):
            s.b = g["k"]

    assert verdict(lambda x: x * S().b, lambda: g.update(k=3.0)) == "followed"


def test_return_value_of_a_mock_is_named():
    from unittest import mock

    m = mock.Mock(return_value=2.0)
    assert verdict(lambda x: x * m(), lambda: setattr(m, "return_value", 3.0)) == "named"
