"""Modules that change in unusual ways between two calls: the change is followed."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import types

import torch
from hostile_cases import X, verdict
from torch import nn
from torch.nn.utils import parametrize as P


class M(nn.Module):
    def __init__(s, **k):
        super().__init__()
        torch.manual_seed(0)
        s.l = nn.Linear(4, 4)
        for n, v in k.items():
            setattr(s, n, v)

    def forward(s, x, scale=1.0):
        return s.l(x) * scale


def test_second_parametrization():

    class Two(nn.Module):
        def forward(self, w):
            return w * 2

    m = nn.Linear(4, 4)
    P.register_parametrization(m, "weight", Two())

    def build(x):
        return m(x)

    def change():
        P.register_parametrization(m, "weight", Two())

    assert verdict(build, change, m) == "followed"


def test_removed_parametrization():

    class Two(nn.Module):
        def forward(self, w):
            return w * 2

    m = nn.Linear(4, 4)
    m.weight.detach().clone()
    P.register_parametrization(m, "weight", Two())

    def change():
        P.remove_parametrizations(m, "weight", leave_parametrized=False)

    def build(x):
        return m(x)

    assert verdict(build, change, m) == "followed"


def test_overridden_setattr():

    class S(M):
        def __setattr__(self, n, v):
            super().__setattr__(n, v * 2 if n == "k" else v)

        def forward(self, x):
            return self.l(x) * self.k

    m = S(k=1.0)

    def build(x):
        return m(x)

    def change():
        m.k = 3.0

    assert verdict(build, change, m) == "followed"


def test_hook_that_changes_keyword_arguments():
    m = M()
    h = types.SimpleNamespace(k=2.0)
    m.register_forward_pre_hook(lambda mod, a, kw: (a, {**kw, "scale": h.k}), with_kwargs=True)

    def build(x):
        return m(x)

    def change():
        h.k = 3.0

    assert verdict(build, change, m) == "followed"


def test_hook_of_the_state_dict():
    m = M()
    m._register_state_dict_hook(
        lambda mod, sd, p, l: sd.__setitem__("extra", torch.ones(1)) if getattr(m, "on", 0) else None
    )
    m.on = 0

    def build(x):
        return m(x) * len(m.state_dict())

    def change():
        m.on = 1

    assert verdict(build, change, m) == "followed"


def test_parameter_added_to_a_parameter_dict():

    class P(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})

        def forward(self, x):
            return x * sum(self.p.values())

    m = P()

    def build(x):
        return m(x)

    def change():
        m.p.update({"b": nn.Parameter(torch.full((4,), 2.0))})

    assert verdict(build, change, m) == "followed"


def test_parameter_replaced_in_a_parameter_dict():

    class P(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})

        def forward(self, x):
            return x * sum(self.p.values())

    m = P()

    def build(x):
        return m(x)

    def change():
        m.p.__setitem__("a", nn.Parameter(torch.full((4,), 2.0)))

    assert verdict(build, change, m) == "followed"


def test_buffer_that_becomes_persistent():
    m = M()
    m.register_buffer("b", torch.ones(4), persistent=False)

    def build(x):
        return m(x) * m.b * len(m.state_dict())

    def change():
        m.register_buffer("b", torch.ones(4), persistent=True)

    assert verdict(build, change, m) == "followed"


def test_weights_written_by_apply():
    m = M()

    def ini(mod):
        for p in mod.parameters(recurse=False):
            p.data.fill_(0.5)

    def build(x):
        return m(x)

    def change():
        m.apply(ini)

    assert verdict(build, change, m) == "followed"


def test_dtype_of_a_module():
    m = M()

    def build(x):
        return m(x.to(m.l.weight.dtype)).float()

    def change():
        m.to(torch.float64)

    assert verdict(build, change, m) == "followed"


def test_shallow_copy_that_shares_its_modules():
    m = M(k=2.0)
    c = copy.copy(m)

    def build(x):
        return c(x)

    def change():
        m.l = nn.Linear(4, 4)

    assert verdict(build, change, c) == "followed"


def test_state_set_by_pickle():
    m = pickle.loads(pickle.dumps(nn.Linear(4, 4)))

    def build(x):
        return m(x)

    def change():
        m.__setstate__(
            {**m.__dict__, "_parameters": {"weight": nn.Parameter(torch.ones(4, 4)), "bias": None}}
        )

    assert verdict(build, change, m) == "followed"


def test_bias_of_a_lazy_module():
    m = nn.LazyLinear(4)
    m(X)

    def build(x):
        return m(x)

    def change():
        m.bias = None

    assert verdict(build, change, m) == "followed"


def test_getattr_of_a_module():

    class G(M):
        def __getattr__(self, n):
            if n == "hidden":
                return self.table["v"]
            return super().__getattr__(n)

        def forward(self, x):
            return self.l(x) * self.hidden

    m = G(table={"v": 2.0})

    def build(x):
        return m(x)

    def change():
        m.table.update(v=3.0)

    assert verdict(build, change, m) == "followed"


def test_parameter_registered_later():
    m = M()

    def build(x):
        return m(x) * len(list(m.named_parameters()))

    def change():
        m.register_parameter("z", nn.Parameter(torch.ones(1)))

    assert verdict(build, change, m) == "followed"


def test_module_added_later():
    m = M()

    def build(x):
        return m(x) * len(list(m.modules()))

    def change():
        m.add_module("z", nn.ReLU())

    assert verdict(build, change, m) == "followed"


def test_partial_method():

    class C:
        def f(self, a, k):
            return a * k

        g = functools.partialmethod(f, k=2.0)

    c = C()

    def build(x):
        return c.g(x)

    def change():
        C.g = functools.partialmethod(C.f, k=3.0)

    assert verdict(build, change) == "followed"


def test_context_manager():
    st = [2.0]

    @contextlib.contextmanager
    def cm():
        yield st[-1]

    def build(x):
        with cm() as k:
            return x * k

    def change():
        st.append(3.0)

    assert verdict(build, change) == "followed"
