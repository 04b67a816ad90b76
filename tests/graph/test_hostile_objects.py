"""Programs that look at functions, classes and objects of the interpreter: a change between two calls is followed, or was named."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import inspect
import queue
import threading
import types

from hostile_cases import verdict


def test_name_of_the_calling_function():
    box = ["a"]

    def who():
        return len(inspect.stack()[1].function)

    def aa():
        return who()

    def aaaa():
        return who()

    box = [aa]

    def build(x):
        return x * box[0]()

    def change():
        box.__setitem__(0, aaaa)

    assert verdict(build, change) == "followed"


def test_eval_with_locals():
    k = types.SimpleNamespace(v=2.0)

    def build(x):
        w = k.v
        return x * eval("w+1", {}, locals())

    def change():
        k.v = 3.0

    assert verdict(build, change) == "followed"


def test_namespace_of_executed_code():
    ns = {"k": 2.0}
    code = compile("y=k", "<u>", "exec")

    def build(x):
        exec(code, ns)
        return x * ns["y"]

    def change():
        ns.update(k=3.0)

    assert verdict(build, change) == "followed"


def test_replaced_code_of_a_function():

    def f(a):
        return a * 2

    def g(a):
        return a * 3

    def build(x):
        return f(x)

    def change():
        f.__code__ = g.__code__

    assert verdict(build, change) == "followed"


def test_replaced_code_of_a_property():

    class C:
        @property
        def f(self):
            return 2.0

    def g(s):
        return 3.0

    c = C()

    def build(x):
        return x * c.f

    def change():
        C.f.fget.__code__ = g.__code__

    assert verdict(build, change) == "followed"


def test_replaced_code_of_an_operator():

    class C:
        def __mul__(self, o):
            return o * 2.0

    def g(s, o):
        return o * 3.0

    c = C()

    def build(x):
        return c * x

    def change():
        C.__mul__.__code__ = g.__code__

    assert verdict(build, change) == "followed"


def test_defaults_of_a_special_method():

    class C:
        def __getitem__(self, k, d=2.0):
            return d

    c = C()

    def build(x):
        return x * c[0]

    def change():
        C.__getitem__.__defaults__ = (3.0,)

    assert verdict(build, change) == "followed"


def test_keyword_defaults():

    def f(a, *, k=2.0):
        return a * k

    def build(x):
        return f(x)

    def change():
        f.__kwdefaults__.update(k=3.0)

    assert verdict(build, change) == "followed"


def test_contents_of_a_closure_cell():
    k = 2.0

    def f(a):
        return a * k

    def build(x):
        return f(x)

    def change():
        f.__closure__[0].cell_contents = 3.0

    assert verdict(build, change) == "followed"


def test_class_of_a_method():

    class A:
        v = 2.0

        def f(self):
            return __class__.v

    a = A()

    def build(x):
        return x * a.f()

    def change():
        A.v = 3.0

    assert verdict(build, change) == "followed"


def test_state_of_a_metaclass_call():

    class Meta(type):
        k = 2.0

        def __call__(cls, *a):
            o = super().__call__(*a)
            o.v = Meta.k
            return o

    class A(metaclass=Meta):
        pass

    def build(x):
        return x * A().v

    def change():
        Meta.k = 3.0

    assert verdict(build, change) == "followed"


def test_replaced_metaclass_call():

    class Meta(type):
        def __call__(cls, *a):
            o = super().__call__(*a)
            o.v = 2.0
            return o

    class A(metaclass=Meta):
        pass

    def new(c, *a):
        o = type.__call__(c, *a)
        o.v = 3.0
        return o

    def build(x):
        return x * A().v

    def change():
        Meta.__call__ = new

    assert verdict(build, change) == "followed"


def test_replaced_constructor():

    class A:
        def __init__(self):
            self.v = 2.0

    def new(s):
        s.v = 3.0

    def build(x):
        return x * A().v

    def change():
        A.__init__ = new

    assert verdict(build, change) == "followed"


def test_format_of_an_object():

    class A:
        k = "2"

        def __format__(self, spec):
            return self.k + spec

    a = A()

    def build(x):
        return x * float(f"{a:0}")

    def change():
        A.k = "3"

    assert verdict(build, change) == "followed"


def test_text_of_an_object():

    class A:
        def __init__(self):
            self.k = "2"

        def __str__(self):
            return self.k

    a = A()

    def build(x):
        return x * float("%s" % a)

    def change():
        a.k = "3"

    assert verdict(build, change) == "followed"


def test_asynchronous_function_is_named():
    s = types.SimpleNamespace(k=2.0)

    async def f():
        return s.k

    def build(x):
        c = f()
        try:
            c.send(None)
        except StopIteration as e:
            return x * e.value

    def change():
        s.k = 3.0

    assert verdict(build, change) == "named"


def test_data_of_an_exception():
    s = types.SimpleNamespace(k=2.0)

    class E(Exception):
        pass

    def f():
        raise E(s.k)

    def build(x):
        try:
            f()
        except E as e:
            return x * e.args[0]

    def change():
        s.k = 3.0

    assert verdict(build, change) == "followed"


def test_arguments_of_a_kept_exception():
    e = ValueError(2.0)

    def build(x):
        return x * e.args[0]

    def change():
        e.args = (3.0,)

    assert verdict(build, change) == "followed"


def test_kept_view_of_a_dict():
    d = {"a": 2.0}
    v = d.values()

    def build(x):
        return x * sum(v)

    def change():
        d.update(a=3.0)

    assert verdict(build, change) == "followed"


def test_attributes_of_a_class_through_vars():

    class C:
        k = 2.0

    v = vars(C)

    def build(x):
        return x * v["k"]

    def change():
        C.k = 3.0

    assert verdict(build, change) == "followed"


def test_chain_map():
    a, b = ({}, {"k": 2.0})
    c = collections.ChainMap(a, b)

    def build(x):
        return x * c["k"]

    def change():
        a.update(k=3.0)

    assert verdict(build, change) == "followed"


def test_default_of_a_dataclass():

    @dataclasses.dataclass
    class D:
        k: float = 2.0

    def build(x):
        return x * D().k

    def change():
        D.__init__.__defaults__ = (3.0,)

    assert verdict(build, change) == "followed"


def test_fields_of_a_dataclass():

    @dataclasses.dataclass
    class D:
        k: float = 2.0

    def build(x):
        return x * dataclasses.fields(D)[0].default

    def change():
        D.__dataclass_fields__["k"].default = 3.0

    assert verdict(build, change) == "followed"


def test_name_of_a_class():

    class C:
        pass

    def build(x):
        return x * len(C.__name__)

    def change():
        C.__name__ = "CC"

    assert verdict(build, change) == "followed"


def test_names_of_an_object():

    class C:
        pass

    c = C()

    def build(x):
        return x * len([n for n in dir(c) if n[0] != "_"] + [0])

    def change():
        c.z = 1

    assert verdict(build, change) == "followed"


def test_class_of_an_object():

    class A:
        k = 2.0

    class B:
        k = 3.0

    a = A()

    def build(x):
        return x * type(a).k

    def change():
        a.__class__ = B

    assert verdict(build, change) == "followed"


def test_length_of_a_queue():
    q = queue.Queue()
    q.put(2.0)

    def build(x):
        return x * q.qsize()

    def change():
        q.put(1)

    assert verdict(build, change) == "followed"


def test_event_of_a_thread():
    e = threading.Event()

    def build(x):
        return x * (2.0 if e.is_set() else 1.0)

    def change():
        e.set()

    assert verdict(build, change) == "followed"


def test_name_of_a_thread():
    t = threading.current_thread()

    def build(x):
        return x * len(threading.current_thread().name)

    def change():
        t.name = t.name + "x"

    assert verdict(build, change) == "followed"
