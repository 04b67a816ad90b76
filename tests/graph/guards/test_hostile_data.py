"""Programs that read containers, buffers and other execution contexts: the graph follows a change between two
calls, or a warning named it.
"""

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import heapq
import itertools
import json
import pickle
import threading
import types
import weakref

import numpy as np
import pytest
import torch
from hostile_cases import verdict

import oneflow as flow


def test_weak_reference_whose_object_dies_is_followed():
    class Item:
        a = 2.0

    o = [Item()]
    r = weakref.ref(o[0])
    assert verdict(lambda x: x * (2.0 if r() is not None else 3.0), o.clear) == "followed"


def test_weak_method_is_followed():
    class Item:
        k = 2.0

        def m(s):
            return s.k

    o = Item()
    wm = weakref.WeakMethod(o.m)
    assert verdict(lambda x: x * wm()(), lambda: setattr(o, "k", 3.0)) == "followed"


def test_generator_that_delegates_is_followed():
    cfg = types.SimpleNamespace(k=2.0)

    def g():
        yield cfg.k
        yield from (cfg.k * i for i in range(2))

    assert verdict(lambda x: x * sum(g()), lambda: setattr(cfg, "k", 3.0)) == "followed"


def test_value_sent_into_a_generator_is_followed():
    cfg = {"k": 2.0}

    def g():
        v = yield 1.0
        yield (v * cfg["k"])

    def build(x):
        it = g()
        next(it)
        return x * it.send(2.0)

    assert verdict(build, lambda: cfg.update(k=3.0)) == "followed"


def test_coroutine_that_build_runs():
    cfg = types.SimpleNamespace(k=2.0)

    async def co():
        return cfg.k

    def build(x):
        c = co()
        try:
            c.send(None)
        except StopIteration as e:
            return x * e.value

    assert verdict(build, lambda: setattr(cfg, "k", 3.0)) == "named"


def test_asynchronous_generator_is_named():
    cfg = types.SimpleNamespace(k=2.0)

    async def ag():
        yield cfg.k

    async def co():
        return [v async for v in ag()][0]

    def build(x):
        c = co()
        try:
            c.send(None)
        except StopIteration as e:
            return x * e.value

    assert verdict(build, lambda: setattr(cfg, "k", 3.0)) == "named"


def test_event_loop_that_build_runs():
    c = types.SimpleNamespace(k=2.0)

    async def co():
        return c.k

    assert verdict(lambda x: x * asyncio.run(co()), lambda: setattr(c, "k", 3.0)) == "named"


def test_variable_of_another_context_is_followed():
    cv = contextvars.ContextVar("cv", default=2.0)
    ctx = contextvars.copy_context()
    assert verdict(lambda x: x * ctx.run(cv.get), lambda: ctx.run(cv.set, 3.0)) == "followed"


def test_variable_of_a_copied_context_is_followed():
    cv = contextvars.ContextVar("cv2")
    cv.set(2.0)
    assert verdict(lambda x: x * contextvars.copy_context()[cv], lambda: cv.set(3.0)) == "followed"


def test_context_manager_made_of_a_generator_is_followed():
    st = types.SimpleNamespace(k=2.0)

    @contextlib.contextmanager
    def cm():
        yield st.k

    def build(x):
        with cm() as k:
            return x * k

    assert verdict(build, lambda: setattr(st, "k", 3.0)) == "followed"


def test_attribute_that_a_thread_changes():
    c = types.SimpleNamespace(k=2.0)

    def ch():
        t = threading.Thread(target=lambda: setattr(c, "k", 3.0))
        t.start()
        t.join()

    assert verdict(lambda x: x * c.k, ch) == "followed"


def test_thread_that_build_starts_is_named():
    c = types.SimpleNamespace(k=2.0)

    def build(x):
        out = []
        t = threading.Thread(target=lambda: out.append(c.k))
        t.start()
        t.join()
        return x * out[0]

    assert verdict(build, lambda: setattr(c, "k", 3.0)) == "named"


def test_executor_that_build_starts_is_named():
    import concurrent.futures as cf

    c = types.SimpleNamespace(k=2.0)

    def build(x):
        with cf.ThreadPoolExecutor(1) as ex:
            return x * ex.submit(lambda: c.k).result()

    assert verdict(build, lambda: setattr(c, "k", 3.0)) == "named"


def test_keys_that_two_dicts_share_are_followed():
    d = {"a": 1, "b": 2}
    e = {"a": 0}
    assert verdict(lambda x: x * (1 + len(d.keys() & e.keys())), lambda: e.update(b=1)) == "followed"


def test_order_of_a_reversed_dict_is_followed():
    d = {"a": 2.0, "b": 3.0}

    def build(x):
        for k in reversed(d):
            x = x * d[k] + 1
        return x

    def ch():
        v = d.pop("a")
        d["a"] = v

    assert verdict(build, ch) == "followed"


def test_missing_of_a_subclass_of_dict_is_followed():
    class D(dict):
        k = 2.0

        def __missing__(s, n):
            return s.k

    d = D()
    assert verdict(lambda x: x * d["zz"], lambda: setattr(D, "k", 3.0)) == "followed"


def test_factory_of_a_default_dict_is_followed():
    d = collections.defaultdict(lambda: 2.0)

    def build(x):
        r = d["q"]
        del d["q"]
        return x * r

    assert verdict(build, lambda: setattr(d, "default_factory", lambda: 3.0)) == "followed"


def test_order_of_a_set_is_followed():
    s = {1.0, 2.0, 3.0}

    def build(x):
        for v in s:
            x = x * v + 1
        return x

    def ch():
        s.clear()
        s.update([8.0, 1.0])

    assert verdict(build, ch) == "followed"


def test_most_common_element_is_followed():
    c = collections.Counter("aab")
    assert verdict(lambda x: x * ord(c.most_common(1)[0][0]), lambda: c.update("bbbb")) == "followed"


def test_product_of_lists_is_followed():
    a = [1.0, 2.0]
    assert (
        verdict(lambda x: x * sum((p * q for p, q in itertools.product(a, a))), lambda: a.append(3.0))
        == "followed"
    )


def test_smallest_of_a_list_is_followed():
    h = [5.0, 2.0]
    assert verdict(lambda x: x * heapq.nsmallest(1, h)[0], lambda: h.append(1.5)) == "followed"


def test_key_of_a_sort_is_followed():
    l = [types.SimpleNamespace(v=1.0, k=2), types.SimpleNamespace(v=5.0, k=3)]
    assert (
        verdict(lambda x: x * sorted(l, key=lambda o: o.k)[0].v, lambda: setattr(l[0], "k", 9)) == "followed"
    )


def test_lengths_of_objects_are_followed():
    class Item:
        k = 2

        def __len__(s):
            return s.k

    o = [Item()]
    assert verdict(lambda x: x * sum(map(len, o)), lambda: setattr(Item, "k", 3)) == "followed"


def test_truth_of_objects_is_followed():
    class Item:
        b = True

        def __bool__(s):
            return s.b

    l = [Item()]
    assert (
        verdict(lambda x: x * (1 + len(list(filter(None, l)))), lambda: setattr(l[0], "b", False))
        == "followed"
    )


def test_equality_of_nested_lists_is_followed():
    a, b = ([[1], [2]], [[1], [2]])
    assert verdict(lambda x: x * (2.0 if a == b else 3.0), lambda: b[1].append(1)) == "followed"


def test_text_of_a_deep_list_is_followed():
    a = [[[[[1]]]]]
    assert verdict(lambda x: x * len(repr(a)), lambda: a[0][0][0][0].append(12)) == "followed"


def test_deep_dict_as_json_is_followed():
    d = {"a": {"b": {"c": {"d": {"e": {"f": 2.0}}}}}}
    assert (
        verdict(
            lambda x: x * json.loads(json.dumps(d))["a"]["b"]["c"]["d"]["e"]["f"],
            lambda: d["a"]["b"]["c"]["d"]["e"].update(f=3.0),
        )
        == "followed"
    )


def test_pickled_namespace_is_followed():
    c = types.SimpleNamespace(k=[2.0])
    assert (
        verdict(lambda x: x * pickle.loads(pickle.dumps(c)).k[0], lambda: c.k.__setitem__(0, 3.0))
        == "followed"
    )


def test_pickled_objects_in_objects_are_followed():
    class A:
        pass

    globals()["PA"] = A
    A.__qualname__ = "PA"
    A.__module__ = __name__
    a = A()
    a.b = A()
    a.b.c = A()
    a.b.c.d = A()
    a.b.c.d.e = A()
    a.b.c.d.e.k = 2.0
    assert (
        verdict(lambda x: x * pickle.loads(pickle.dumps(a)).b.c.d.e.k, lambda: setattr(a.b.c.d.e, "k", 3.0))
        == "followed"
    )


def test_object_that_reduces_itself_is_followed():
    class C:
        k = 2.0

        def __reduce__(s):
            return (float, (s.k,))

    c = C()
    assert verdict(lambda x: x * pickle.loads(pickle.dumps(c)), lambda: setattr(c, "k", 3.0)) == "followed"


def test_array_whose_memory_a_tensor_shares_is_followed():
    a = np.ones(4, dtype=np.float32)
    t = torch.from_numpy(a)
    assert verdict(lambda x: x * t, lambda: a.__setitem__(0, 5.0)) == "followed"


def test_strided_view_of_an_array_is_followed():
    a = np.arange(8.0)
    v = a[::2]
    assert verdict(lambda x: x * v.sum(), lambda: a.__setitem__(0, 7.0)) == "followed"


def test_mask_of_an_array_is_followed():
    a = np.ma.array([1.0, 2.0], mask=[0, 1])
    assert verdict(lambda x: x * float(a.sum()), lambda: a.mask.__setitem__(1, False)) == "followed"


def test_error_state_of_numpy_is_followed(request):
    def build(x):
        return x * (2.0 if np.geterr()["divide"] == "warn" else 3.0)

    old = np.geterr()
    request.addfinalizer(lambda: np.seterr(**old))
    assert verdict(build, lambda: np.seterr(divide="ignore")) == "followed"


def test_print_options_of_numpy_are_followed(request):
    old = np.get_printoptions()
    a = np.array([1.23456789])
    request.addfinalizer(lambda: np.set_printoptions(**old))
    assert verdict(lambda x: x * len(str(a)), lambda: np.set_printoptions(precision=2)) == "followed"


def test_object_that_is_an_array():
    class A:
        v = np.array([2.0], dtype=np.float32)

        def __array__(s, dtype=None, copy=None):
            return s.v

    a = A()
    assert (
        verdict(
            lambda x: x * float(np.asarray(a)[0]), lambda: setattr(A, "v", np.array([3.0], dtype=np.float32))
        )
        == "followed"
    )


def test_memory_behind_a_pointer_of_ctypes_is_named():
    c = ctypes.c_float(2.0)
    p = ctypes.pointer(c)
    assert verdict(lambda x: x * p.contents.value, lambda: setattr(c, "value", 3.0)) == "named"


def test_cast_view_of_memory_is_followed():
    b = bytearray(b"\x02")
    m = memoryview(b).cast("b")
    assert verdict(lambda x: x * m[0], lambda: b.__setitem__(0, 3)) == "followed"


def test_dict_behind_a_proxy_is_followed():
    d = {"k": 2.0}
    p = types.MappingProxyType(d)
    assert verdict(lambda x: x * p["k"], lambda: d.update(k=3.0)) == "followed"


def test_counter_in_a_list_that_build_reads_is_named():
    count = [0]

    def build(x):
        count[0] += 1
        return x * (2.0 if count[0] % 2 else 3.0)

    class Counts(flow.nn.Graph):
        def build(self, x):
            return build(x)

    with pytest.warns(UserWarning, match="count"):
        Counts()(torch.ones(2))
