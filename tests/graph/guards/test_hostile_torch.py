"""Programs that use hooks, transforms and subclasses of torch: the graph follows a change between two calls,
or a warning named it.
"""

import types

import torch
import torch.nn.utils.parametrize as parametrize
from hostile_cases import verdict
from torch import nn


def test_closure_of_a_hook_of_a_tensor_is_followed():
    m = nn.Linear(4, 4)
    k = [2.0]

    def build(x):
        y = m(x)
        y.register_hook(lambda g: g * k[0])
        return torch.autograd.grad(y.sum(), m.weight)[0]

    assert verdict(build, lambda: k.__setitem__(0, 3.0), m) == "followed"


def test_closure_of_a_backward_hook_is_followed():
    m = nn.Linear(4, 4)
    k = [2.0]
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * k[0],))

    def build(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(m(x).sum(), x)[0]

    assert verdict(build, lambda: k.__setitem__(0, 3.0), m) == "followed"


def test_closure_of_a_backward_pre_hook_is_followed():
    m = nn.Linear(4, 4)
    k = [2.0]
    m.register_full_backward_pre_hook(lambda mod, go: (go[0] * k[0],))

    def build(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(m(x).sum(), x)[0]

    assert verdict(build, lambda: k.__setitem__(0, 3.0), m) == "followed"


def test_closure_of_a_hook_of_saved_tensors_is_followed():
    k = [2.0]

    def build(x):
        x = x.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * k[0], lambda t: t):
            y = x * x
        return torch.autograd.grad(y.sum(), x)[0]

    assert verdict(build, lambda: k.__setitem__(0, 3.0)) == "followed"


def test_closure_of_a_hook_of_a_node_is_followed():
    k = [2.0]

    def build(x):
        x = x.clone().requires_grad_()
        y = x * 2
        y.grad_fn.register_prehook(lambda g: (g[0] * k[0],))
        return torch.autograd.grad(y.sum(), x)[0]

    assert verdict(build, lambda: k.__setitem__(0, 3.0)) == "followed"


def test_hook_of_all_modules_is_followed(request):
    m = nn.Linear(4, 4)
    hs = []
    from torch.nn.modules.module import register_module_forward_hook

    request.addfinalizer(lambda: hs[0].remove())
    assert (
        verdict(lambda x: m(x), lambda: hs.append(register_module_forward_hook(lambda mod, i, o: o * 2)), m)
        == "followed"
    )


def test_attribute_that_a_custom_backward_reads():
    class Fn(torch.autograd.Function):
        k = 2.0

        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return g * Fn.k

    def build(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(Fn.apply(x).sum(), x)[0]

    assert verdict(build, lambda: setattr(Fn, "k", 3.0)) == "followed"


def test_dict_that_setup_context_reads():
    st = {"k": 2.0}

    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 1.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = st["k"]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k

    def build(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(Fn.apply(x).sum(), x)[0]

    assert verdict(build, lambda: st.update(k=3.0)) == "followed"


def test_closure_of_a_function_that_is_differentiated():
    k = [2.0]
    assert (
        verdict(lambda x: torch.func.grad(lambda v: (v * v * k[0]).sum())(x), lambda: k.__setitem__(0, 3.0))
        == "followed"
    )


def test_closure_of_a_function_that_is_vectorized():
    k = [2.0]
    assert (
        verdict(lambda x: torch.func.vmap(lambda v: v * k[0])(x), lambda: k.__setitem__(0, 3.0)) == "followed"
    )


def test_parameters_of_a_functional_call():
    m = nn.Linear(4, 4)
    ps = {n: p.detach().clone() for n, p in m.named_parameters()}
    assert (
        verdict(
            lambda x: torch.func.functional_call(m, ps, (x,)), lambda: ps.update(weight=torch.zeros(4, 4)), m
        )
        == "followed"
    )


def test_modules_whose_state_is_stacked():
    ms = [nn.Linear(4, 4) for _ in range(2)]

    def build(x):
        p, b = torch.func.stack_module_state(ms)
        return torch.vmap(lambda w: x @ w.T)(p["weight"]).sum(0)

    assert verdict(build, lambda: ms.append(nn.Linear(4, 4))) == "followed"


def test_attribute_of_a_parametrization_is_followed():
    class P(nn.Module):
        k = 2.0

        def forward(s, w):
            return w * s.k

    m = nn.Linear(4, 4)
    p = P()
    parametrize.register_parametrization(m, "weight", p)
    assert verdict(lambda x: m(x), lambda: setattr(p, "k", 3.0), m) == "followed"


def test_attribute_of_a_cached_parametrization_is_followed():
    class P(nn.Module):
        k = 2.0

        def forward(s, w):
            return w * s.k

    m = nn.Linear(4, 4)
    p = P()
    parametrize.register_parametrization(m, "weight", p)

    def build(x):
        with parametrize.cached():
            return m(x) + m(x) * 0

    assert verdict(build, lambda: setattr(p, "k", 3.0), m) == "followed"


def test_number_of_elements_of_a_sparse_tensor_is_followed():
    st = types.SimpleNamespace(s=torch.eye(4).to_sparse())
    assert (
        verdict(lambda x: (st.s @ x.T).T, lambda: setattr(st, "s", torch.ones(4, 4).to_sparse()))
        == "followed"
    )


def test_torch_function_of_a_subclass_is_followed():
    class T(torch.Tensor):
        k = 2.0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            args = [a.as_subclass(torch.Tensor) if isinstance(a, T) else a for a in args]
            return func(*args, **kwargs or {}) * cls.k

    t = torch.ones(4).as_subclass(T)
    assert verdict(lambda x: x * t, lambda: setattr(T, "k", 3.0)) == "followed"


def test_swapped_parameter_is_followed():
    m = nn.Linear(4, 4)
    assert (
        verdict(lambda x: m(x), lambda: torch.utils.swap_tensors(m.weight, nn.Parameter(torch.ones(4, 4))), m)
        == "followed"
    )


def test_parameter_with_another_storage_is_followed():
    m = nn.Linear(4, 4)

    def ch():
        with torch.no_grad():
            m.weight.set_(torch.ones(4, 4))

    assert verdict(lambda x: m(x), ch, m) == "followed"


def test_parameter_in_shared_memory_is_followed():
    m = nn.Linear(4, 4)
    assert (
        verdict(lambda x: m(x) * (2.0 if m.weight.is_shared() else 3.0), lambda: m.share_memory(), m)
        == "followed"
    )


def test_memory_format_of_a_module_is_followed():
    convolution = nn.Conv2d(3, 4, 2)

    def build(x):
        return x * convolution.weight.stride(1)

    assert (
        verdict(build, lambda: convolution.to(memory_format=torch.channels_last), convolution) == "followed"
    )


def test_buffer_that_becomes_a_parameter_is_followed():
    m = nn.Module()
    m.register_buffer("b", torch.ones(4))

    def ch():
        del m.b
        m.b = nn.Parameter(torch.ones(4) * 3)

    assert verdict(lambda x: (x * m.b).detach(), ch, m) == "followed"


def test_parameter_of_a_distribution_is_followed():
    import torch.distributions as D

    h = types.SimpleNamespace(s=2.0)
    assert verdict(lambda x: D.Normal(x, h.s).log_prob(x), lambda: setattr(h, "s", 3.0)) == "followed"


def test_node_of_a_registered_pytree_is_followed():
    import torch.utils._pytree as pt

    class C:
        def __init__(s, v):
            s.v = v

    pt.register_pytree_node(C, lambda c: ([c.v], None), lambda v, _: C(*v))
    c = C(2.0)
    assert (
        verdict(lambda x: x * pt.tree_map(lambda v: v * 2, c).v, lambda: setattr(c, "v", 3.0)) == "followed"
    )


def test_closure_of_a_compiled_function_is_followed():
    k = [2.0]
    f = torch.compile(lambda x: x * k[0], backend="eager")
    assert verdict(lambda x: f(x), lambda: k.__setitem__(0, 3.0)) == "followed"


def test_closure_of_a_recomputed_function_is_followed():
    from torch.utils.checkpoint import checkpoint

    k = [2.0]
    assert (
        verdict(
            lambda x: checkpoint(lambda v: v * k[0], x, use_reentrant=False), lambda: k.__setitem__(0, 3.0)
        )
        == "followed"
    )


def test_edited_graph_of_fx_is_followed():
    m = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def ch():
        for n in m.graph.nodes:
            if n.op == "call_module" and n.target == "1":
                n.op, n.target, n.args = ("call_function", torch.tanh, n.args)
        m.recompile()

    assert verdict(lambda x: m(x), ch, m) == "followed"
