"""The Tensor table: each row turns an error into OneFlow's result, and torch.Tensor has no other changes."""

import copy
import itertools
import operator
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from tensor_table_cases import T, leaf, original, t

import oneflow as flow
from oneflow._method import Method, _Method, own_attribute
from oneflow._tables.module import MODULE
from oneflow._tables.tensor import TENSOR
from oneflow._upstream.versions import torch_is_before


def m():
    return torch.arange(6.0).reshape(2, 3)


def zero_gradient(f):
    x = leaf()
    y = f(x)
    y.sum().backward()
    return [y.detach(), x.grad]


def complex_gradient():
    x = torch.tensor([1 - 1j, 3.0], requires_grad=True)
    (x * x).sum().backward()
    return x.grad


# call that torch's method refuses -> result of the row
ROWS = {
    "numpy": (lambda: leaf().numpy(), [1.0, 2.0, -3.0]),
    "numpy non-leaf": (lambda: (leaf() * 2).numpy(), [2.0, 4.0, -6.0]),
    "numpy bfloat16": (lambda: t().bfloat16().numpy().astype("float64"), [1.0, 2.0, -3.0]),
    "numpy conj": (lambda: T([1 + 2j]).conj().numpy(), [1 - 2j]),
    "numpy zero": (lambda: torch._efficientzerotensor(2).numpy(), [0.0, 0.0]),
    "numpy dtype": (lambda: t().numpy(flow.int32), [1, 2, -3]),
    "np.array": (lambda: np.array(leaf()), [1.0, 2.0, -3.0]),
    "np.asarray": (lambda: np.asarray(leaf().bfloat16(), dtype="float64"), [1.0, 2.0, -3.0]),
    "uniform_": (lambda: leaf().uniform_(2, 2), [2.0] * 3),
    "uniform_ names": (lambda: t().uniform_(a=1, b=1), [1.0] * 3),
    "uniform_ leaf names": (lambda: leaf().uniform_(a=1, b=1), [1.0] * 3),
    "normal_": (lambda: leaf().normal_(1.0, 0.0), [1.0] * 3),
    "copy_ array": (lambda: t().copy_(np.array([4, 5, 6], dtype="float32")), [4.0, 5.0, 6.0]),
    "copy_ leaf": (lambda: leaf().copy_(torch.zeros(3)), [0.0] * 3),
    "backward": (lambda: complex_gradient(), [2 + 2j, 6.0]),
    "requires_grad_": (lambda: (leaf() * 2).requires_grad_(False), [2.0, 4.0, -6.0]),
    "__deepcopy__": (lambda: copy.deepcopy(leaf() * 2), [2.0, 4.0, -6.0]),
    "__iadd__": (lambda: T([1, 2]).__iadd__(T([1.5, 2.5])), [2, 4]),
    "__isub__": (lambda: T([1, 2]).__isub__(T([0.5, -2.5])), [0, 4]),
    "__imul__": (lambda: T([1, 2]).__imul__(T([1.5, 2.5])), [1, 5]),
    "add_": (lambda: T([1, 2]).add_(T([1.5, 2.5]), alpha=2), [4, 7]),
    "add_ whole": (
        lambda: [T([-5, 5]).add_(T([0.9, -0.9])), T([-5, 5]).add_(T([0.9, -0.9]), alpha=2)],
        [[-5, 5], [-4, 4]],
    ),
    "__isub__ masks": (lambda: operator.isub(T([True, True]), T([True, False])), [False, True]),
    "clamp_": (
        lambda: [
            T([-5, 5]).clamp_(0.5, 3.5),
            T([-5, 5]).clamp_(min=-1.5),
            T([-5, 5]).clamp_(max=T([-1.5, 0.5])),
        ],
        [[0, 3], [-1, 5], [-5, 0]],
    ),
    "clip_": (lambda: T([-5, 5, 2]).clip_(-1.5, 1.5), [-1, 1, 1]),
    "clamp_min_": (lambda: T([-5, 5]).clamp_min_(-1.5), [-1, 5]),
    "clamp_max_ whole": (
        lambda: [T([-5, 5]).clamp_max_(1.5), T([-5, 5]).clamp_max_(min=1.5)],
        [[-5, 1], [-5, 1]],
    ),
    "addcdiv": (lambda: T([1, 2, 3]).addcdiv(T([1, 2, 30]), T([2, 2, 4])), [1.5, 3.0, 10.5]),
    "addcdiv_": (lambda: t().addcdiv_(T([1, 2, 30]), T([2, 2, 4])), [1.5, 3.0, 4.5]),
    "cross": (lambda: T([[1.0, 0.0, 0.0]]).cross(T([0.0, 1.0, 0.0])), [[0.0, 0.0, 1.0]]),
    "squeeze": (lambda: [t()[None].squeeze(dim=None), t()[None].squeeze(None)], [[1.0, 2.0, -3.0]] * 2),
    "logaddexp": (lambda: T([0]).logaddexp(T([0])), [0.6931471824645996]),
    "scatter": (
        lambda: [
            m().scatter(1, T([[2], [0]]), src=9.0),
            m().scatter(1, T([[2], [0]]), src=9.0, reduce="add"),
        ],
        [[[0.0, 1.0, 9.0], [9.0, 4.0, 5.0]], [[0.0, 1.0, 11.0], [12.0, 4.0, 5.0]]],
    ),
    "flip": (lambda: m().flip(dims=1), [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]),
    "scatter_add": (lambda: m().scatter_add(1, T([[2], [0]]), 1.5), [[0.0, 1.0, 3.5], [4.5, 4.0, 5.0]]),
    "neg": (lambda: T([True, False]).neg(), [-1.0, 0.0]),
    "negative": (lambda: T([True, False]).negative(), [-1.0, 0.0]),
    "__floordiv__": (lambda: zero_gradient(lambda x: x // 2), [[0.0, 1.0, -2.0], [0.0, 0.0, 0.0]]),
    "floor_divide": (lambda: zero_gradient(lambda x: x.floor_divide(2)), [[0.0, 1.0, -2.0], [0.0, 0.0, 0.0]]),
    "view_as": (lambda: (m().t() + 1).view_as(torch.ones(6)), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    "view": (
        lambda: [(m().t() + 1).view(-1), (m().t() + 1)[None].view(6), (m().t() + 1).view([6])],
        [[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]] * 3,
    ),
    "mul_": (lambda: T([1, 2]).mul_(T(2.5)), [2, 5]),
    "__matmul__": (lambda: m().int() @ m().t(), [[5.0, 14.0], [14.0, 50.0]]),
    "matmul": (lambda: m().matmul(m(), transpose_b=True), [[5.0, 14.0], [14.0, 50.0]]),
    "mm": (lambda: m().int().mm(m().t()), [[5.0, 14.0], [14.0, 50.0]]),
    "bmm": (lambda: m()[None].bmm(m()[None], False, True, 2.0), [[[10.0, 28.0], [28.0, 100.0]]]),
    "__rsub__ bool": (
        lambda: [1 - T([True, False]), 1.0 - T([True, False]), True - T([True, False])],
        [[0, 1], [0.0, 1.0], [0, 1]],
    ),
    "__sub__ dtypes": (
        lambda: [
            T([True, False]) - T([1, 2], dtype=torch.int8),
            (T([True, False]) - T([1, 2], dtype=torch.uint8)).int(),
            T([1, 2], dtype=torch.int32) - T([True, False]),
        ],
        [[0, -2], [0, 254], [0, 2]],
    ),
    "__sub__ bool": (
        lambda: [T([True, False]) - 1, t()[:2] - T([True, False]), T([True, False]) - T([True, True])],
        [[0, -1], [0.0, 2.0], [False, True]],
    ),
    "sub_ bool": (
        lambda: [t()[:2].sub_(T([True, False])), t()[:2].sub_(T([True, False]), alpha=2)],
        [[0.0, 2.0], [-1.0, 2.0]],
    ),
    "__isub__ bool": (lambda: operator.isub(t()[:2], T([True, False])), [0.0, 2.0]),
    "sub bool": (
        lambda: [
            T([True, False]).sub(0.5),
            T([True, False]).subtract(1, alpha=2),
            flow.sub(T([True, False]), 1),
            flow.sub(1, T([True, False])),
        ],
        [[0.5, -0.5], [-1, -2], [0, -1], [0, 1]],
    ),
    "__gt__ array": (
        lambda: [t() > np.ones(3), np.ones(3) > t()],
        [[False, True, False], [False, False, True]],
    ),
    "__ge__ array": (lambda: t() >= np.ones(3), [True, True, False]),
    "__lt__ array": (lambda: t() < np.ones(3), [False, False, True]),
    "__le__ array": (
        lambda: [t() <= np.ones(3), np.ones(3) <= t()],
        [[True, False, True], [True, True, False]],
    ),
    "__rmatmul__ array": (lambda: np.eye(3, dtype="float32") @ t(), [1.0, 2.0, -3.0]),
    "__rand__ number": (lambda: 2 & T([0.0, 1.0]), [False, True]),
    "__ror__ number": (lambda: 0 | T([0.0, 1.0]), [False, True]),
    "__rxor__ number": (lambda: True ^ T([0.0, 1.0]), [True, False]),
    "__rand__ array": (lambda: np.array([3, 5]) & T([1, 4]), [1, 4]),
    "__ror__ array": (lambda: np.array([3, 5]) | T([1, 2]), [3, 7]),
    "__rxor__ array": (lambda: np.array([True, False]) ^ T([True, True]), [False, True]),
    "__new__ number": (lambda: flow.Tensor(1.5), 1.5),
    "__new__ strides": (lambda: flow.Tensor(np.arange(3.0)[::-1]), [2.0, 1.0, 0.0]),
    "__new__ device": (lambda: flow.Tensor(t(), device="cpu"), [1.0, 2.0, -3.0]),
    "__new__ dtype": (
        lambda: (
            flow.Tensor(np.array([1, 2]), dtype=flow.float32, requires_grad=True)
            * flow.Tensor([2], dtype=flow.int32, device="cpu")
        ),
        [2.0, 4.0],
    ),
    "__new__ global": (
        lambda: flow.Tensor([1, 2], placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast).to_local(),
        [1.0, 2.0],
    ),
    "__new__ other device": (
        lambda: flow.Tensor(2, 3, device="meta").new_ones((2,), device="cpu"),
        [1.0, 1.0],
    ),
    "masked_fill": (lambda: t().masked_fill(T([1, 0, 2]), 9), [9.0, 2.0, 9.0]),
    "masked_fill_": (lambda: t().masked_fill_(T([1, 0, 2]), 9), [9.0, 2.0, 9.0]),
    "masked_select": (lambda: t().masked_select(T([1.0, 0.0, 0.0])), [1.0]),
    "where": (lambda: (t() > 1).where(t(), -t()), [-1.0, 2.0, 3.0]),
    "where int, scalars": (lambda: T([1, 0, 3]).where(1.0, 0.0), [1.0, 0.0, 1.0]),
    "where names": (lambda: (t() > 1).where(x=t(), y=-t()), [-1.0, 2.0, 3.0]),
    "__and__": (lambda: t() & T([1, 0, 1]), [True, False, True]),
    "__or__": (lambda: T([0.0, 0.0]) | T([1, 0]), [True, False]),
    "__xor__": (lambda: T([1.0, 0.0]) ^ 1, [False, True]),
    "argmax": (lambda: m().argmax(1, dtype=flow.int32), [2, 2]),
    "argmin bool": (lambda: T([True, False]).argmin(), 1),
    "topk": (lambda: m().topk(1, None)[0], [[2.0], [5.0]]),
    "cumsum": (lambda: T([1, 2]).cumsum(0, flow.float32), [1.0, 3.0]),
    "cumprod": (lambda: T([1, 2]).cumprod(0, flow.float32), [1.0, 2.0]),
    "median": (lambda: m().median(keepdim=True)[0], [[1.0], [4.0]]),
    "prod": (lambda: (m() + 1).prod([0, 1]), 720.0),
    "std": (lambda: T([1, 2, -3]).std(), 2),
    "var": (lambda: T([1, 3]).var(), 2.0),
    "softmax": (lambda: torch.zeros(2, 2).softmax(), [[0.5, 0.5], [0.5, 0.5]]),
    "log_softmax": (lambda: torch.zeros(1).log_softmax(), [0.0]),
    "quantile": (lambda: m().quantile(0.5, 0, False, "lower"), [0.0, 1.0, 2.0]),
    "unique": (lambda: T([2, 1, 2]).unique(return_counts=True, dtype=flow.int32)[1], [1, 2]),
    "addmm": (lambda: torch.ones(2, 2).addmm(m(), m().t(), 2, 3), [[13.0, 31.0], [31.0, 103.0]]),
    "bernoulli": (lambda: torch.ones(2).bernoulli(dtype=flow.int32), [1, 1]),
    "dot": (lambda: t().dot(other=t()), 14.0),
    "repeat_interleave": (lambda: t().repeat_interleave(T([1, 0, 2]), 0, 3), [1.0, -3.0, -3.0]),
    "split": (lambda: m().split(split_size_or_sections=1)[1], [[3.0, 4.0, 5.0]]),
    "new_zeros": (lambda: t().new_zeros(), [0.0] * 3),
    "new_full": (lambda: t().new_full((2,), 7, flow.int32), [7, 7]),
    "new_tensor": (lambda: t().new_tensor([7, 8], flow.int32), [7, 8]),
    "gather": (lambda: m().gather(1, T([[0], [1]]), False), [[0.0], [4.0]]),
    "index_add": (lambda: torch.zeros(2).index_add(0, T([1]), T([1.0]), 2), [0.0, 2.0]),
    "index_add_": (lambda: torch.zeros(2).index_add_(0, T([1]), T([1.0]), 2), [0.0, 2.0]),
    "nonzero": (lambda: t().nonzero(True)[0], [0, 1, 2]),
    "type_as": (lambda: m().type_as(target=T([1])), [[0, 1, 2], [3, 4, 5]]),
    "swapaxes": (lambda: m().swapaxes(dim0=0, dim1=1), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]),
    "clamp_max_": (lambda: t().clamp_max_(min=1), [1.0, 1.0, -3.0]),
    "unflatten": (lambda: t().unflatten(0, shape=(3, -1)), [[1.0], [2.0], [-3.0]]),
    "broadcast_to": (lambda: t().broadcast_to(shape=(1, 3)), [[1.0, 2.0, -3.0]]),
    "logical_and": (lambda: t().logical_and(0), [False] * 3),
    "logical_or": (lambda: t().logical_or(other=1.0), [True] * 3),
    "logical_xor": (lambda: T([0, 1]).logical_xor(True), [True, False]),
    "bernoulli_": (lambda: torch.zeros(2).bernoulli_(1.0, dtype=flow.float32), [1.0, 1.0]),
    "type": (lambda: t().type("oneflow.LongTensor"), [1, 2, -3]),
    "cast": (lambda: t().cast(flow.int32), [1, 2, -3]),
    "to_numpy": (lambda: t().to_numpy(), [1.0, 2.0, -3.0]),
    "zeros_": (lambda: t().zeros_(), [0.0] * 3),
    "in_top_k": (lambda: T([1]).in_top_k(T([[1.0, 2.0]]), 1), [True]),
    "nms": (lambda: T([[0.0, 0, 9, 9], [0, 0, 9, 8], [20, 20, 30, 30]]).nms(T([0.5, 0.9, 0.1]), 0.5), [1, 2]),
    "softsign": (lambda: t().softsign(), [0.5, 2.0 / 3, -0.75]),
    "_copy_to_numpy": (lambda: arrays()[0], [1.0, 2.0, -3.0]),
    "_copy_from_numpy": (lambda: arrays()[1], [4.0, 4.0, 4.0]),
    "trunc_normal_": (lambda: leaf().trunc_normal_(std=1e-9).round(), [0.0] * 3),
}


def arrays():
    x, array = leaf(), np.zeros(3, "float32")
    x._copy_to_numpy(array), x._copy_from_numpy(np.full(3, 4.0))
    return array, x


def hooked(hook):
    x = torch.ones(2, requires_grad=True)
    x._register_post_grad_accumulation_hook(hook)
    (x.sum() + (x * 2).sum()).backward()
    return x


def test_a_hook_on_the_summed_gradient():
    """Recorded from OneFlow 0.9.0."""
    x = hooked(lambda g: g * 2 + 1)
    assert x.grad.tolist() == [7.0, 7.0]
    x.sum().backward()
    assert x.grad.tolist() == [17.0, 17.0]
    x._zero_grad_()
    assert x.grad.tolist() == [0.0, 0.0]
    x._zero_grad_(set_to_none=True)
    assert x.grad is None and hooked(lambda g: None).grad.tolist() == [3.0, 3.0]
    assert (
        torch.zeros(2, 3)._meta_repr() == "tensor(..., size=(2, 3), dtype=oneflow.float32)"
        and "requires_grad=True" in x._meta_repr()
    )


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    call, want = ROWS[row]
    got = call()
    got = got.detach() if isinstance(got, torch.Tensor) else got
    # float32 against decimal literals
    assert np.allclose(np.asarray(got), np.asarray(want), rtol=1e-6, atol=0)
    if isinstance(want, list) and want and not isinstance(want[0], list):
        assert isinstance(got.tolist()[0], type(want[0]))


@pytest.mark.parametrize("row", [r for r in ROWS if TENSOR.get(r.split()[0], ("",))[0] == "replace"])
def test_torchs_own_method_refuses_what_the_row_accepts(row, monkeypatch):
    """Without the row the call raises: the row adds, it changes nothing."""
    for name, (kind, _, _) in TENSOR.items():
        if kind == "replace":
            monkeypatch.setattr(torch.Tensor, name, original(name))
    with pytest.raises((TypeError, RuntimeError, ValueError)):
        ROWS[row][0]()


def test_a_write_through_a_view_reaches_the_computed_tensor():
    leaf = m().requires_grad_()
    for computed in (m().t() + 1, leaf.t().exp(), leaf.t().relu() * 1):
        want = (computed + 5).tolist()
        computed.view(-1).add_(5.0)
        assert computed.tolist() == want
    computed = leaf.t().exp()
    computed.view(-1).sum().backward()
    assert torch.equal(leaf.grad, leaf.detach().exp())


def test_a_view_that_would_miss_a_write_is_refused_as_in_torch():
    computed, shared = m().t() + 1, (m().t() + 1).share_memory_()
    row, detached, leaf = computed[0], computed.detach(), (m().t() + 1).requires_grad_()
    array = (m().t() + 1).numpy()
    for tensor in (m().t(), computed, computed[None], detached, leaf, shared, torch.from_numpy(array)):
        with pytest.raises(RuntimeError, match="view size"):
            tensor.view(-1)
    del row, detached, tensor
    computed.view(-1).zero_()
    assert computed.sum() == 0 == computed.stride(1) - 1


@pytest.mark.parametrize("export", [torch.from_dlpack, np.from_dlpack])
def test_a_view_leaves_memory_alone_that_another_library_reads(export):
    computed = m().t() + 1
    of_rows = computed[1:]
    exported = export(computed), export(of_rows)
    for tensor in (computed, of_rows):
        with pytest.raises(RuntimeError, match="view size"):
            tensor.view(-1)
    exported[0][2, 1] = exported[1][0, 0] = 9
    assert computed.tolist() == [[1, 4], [9, 5], [3, 9]]


def row_major_and_not(shape, order, steps):
    """Views of a computed tensor, laid out row by row and laid out as its operand; and their tensors."""
    values = torch.arange(float(torch.Size(shape).numel())).view(shape).permute(order)
    tensors = values.contiguous() + 1, values + 1
    views = list(tensors)
    for step in steps:
        views = [step(view) for view in views]
    return views, tensors


STEPS = [
    (),
    (lambda x: x[None],),
    (lambda x: x.unsqueeze(1), lambda x: x.transpose(0, 2)),
    (lambda x: x[1:],),
    (lambda x: x[:, ::2], lambda x: x.squeeze()),
    (lambda x: x[..., 0],),
    (lambda x: x[None, -1].transpose(0, 1),),
]


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_view_of_a_computed_tensor_is_that_of_a_row_major_one(order, steps):
    """Each view that a row-major tensor has is there, shares the memory, and has its gradients."""
    for shape in ((2, 3, 4), (3, 1, 2), (2, 2, 2)):
        for size in ((-1,), (2, -1), (1, -1, 2)):
            views, tensors = row_major_and_not(shape, order, steps)
            try:
                expected = views[0].view(size)
            except RuntimeError:
                continue
            actual, factor = views[1].view(size), torch.rand(expected.shape)
            for written in (expected, actual):
                written.mul_(factor)
            assert torch.equal(actual, expected)
            assert torch.equal(views[1], views[0]) and torch.equal(tensors[1], tensors[0])


def test_gradients_through_a_write_to_a_view_of_a_computed_tensor():
    def gradients(compute):
        leaf, factor = torch.rand(2, 3, 4, generator=torch.manual_seed(0)), torch.rand(4, 6)
        leaf.requires_grad_(), factor.requires_grad_()
        computed = compute(leaf.permute(2, 1, 0) * 2)
        row = computed[None]
        row.view(4, 6).mul_(factor)
        weight = torch.arange(24.0)
        loss = (computed * weight.view(4, 3, 2)).sum() + (row.view(24) * weight).square().sum()
        return torch.autograd.grad(loss, (leaf, factor))

    for expected, actual in zip(gradients(torch.Tensor.contiguous), gradients(lambda x: x), strict=True):
        assert torch.equal(expected, actual)


def test_every_replaced_method_gives_torchs_result_and_torchs_error():
    for name, (kind, _, _) in TENSOR.items():
        # see test_a_tensor_of_an_array_owns_its_memory, test_a_constructor_call_that_neither_library_knows
        if name in ("__init__", "__new__"):
            continue
        if kind == "replace" and name.startswith("__") and name not in ("__deepcopy__", "__format__"):
            assert (
                own_attribute(torch.Tensor, name)(t(), object())
                is original(name)(t(), object())
                is NotImplemented
            )
        elif kind == "replace":
            with pytest.raises(Exception) as ours:
                own_attribute(torch.Tensor, name)(t(), nonsense=1)
            with pytest.raises(Exception) as theirs:
                original(name)(t(), nonsense=1)
            assert type(ours.value) is type(theirs.value) and str(ours.value) == str(theirs.value), name
    x = torch.rand(3, 3)
    for name, args in {
        "softmax": (1,),
        "argmax": (1,),
        "cumsum": (0,),
        "matmul": (x,),
        "std": (0,),
        "where": (x > 0.5, -x),
        "split": (1,),
        "topk": (2,),
        "masked_fill": (x > 0.5, 0.0),
        "new_zeros": ((2, 2),),
        "nonzero": (),
        "type": (torch.float64,),
        "unique": (),
        "prod": (1,),
    }.items():
        a, b = getattr(x, name)(*args), original(name)(x, *args)
        for p, q in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,)):
            assert p.dtype is q.dtype and torch.equal(p, q), name


def test_filling_a_leaf_leaves_it_a_leaf_and_other_changes_still_raise():
    x = leaf()
    assert x.normal_() is x and x.is_leaf and x.requires_grad and x.grad_fn is None
    for change in (lambda: x.add_(1), lambda: x.mul_(2), lambda: x.fill_(0), lambda: x.zero_()):
        with pytest.raises(RuntimeError, match="leaf"):
            change()
    with pytest.raises(ValueError, match="shape"):
        x.copy_(np.ones(4, dtype="float32"))


def test_integer_in_place_keeps_the_tensor_and_numbers_still_raise():
    x = T([1, 2])
    alias = x
    x += T([1.5, 2.5])
    assert x is alias and x.dtype is torch.int64 and x.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="can't be cast"):
        x += 1.5


def test_where_with_a_boolean_condition_argument_stays_torchs():
    x, c = T([True, False]), T([False, True])
    assert x.where(c, ~x).tolist() == [False, False]
    with pytest.raises(RuntimeError):
        t().where(t(), t())


def test_gradients_pass_through_the_rows():
    x = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for f in (
        lambda x: x.softmax(),
        lambda x: x.matmul(x, transpose_a=True),
        lambda x: (x > 0.5).where(x, -x),
        lambda x: x.prod([0, 1]),
        lambda x: x.masked_fill((x > 0.5).int(), 0.0),
        lambda x: x.mish() + x.silu() + x.selu() + x.gelu() + x.softplus(),
        lambda x: x.cast(flow.float64) @ x,
    ):
        assert torch.autograd.gradcheck(f, (x,))


def test_state_and_memory():
    x = m().t()
    assert not x.is_lazy and x.is_eager and x.is_view() and not m().cast(flow.int32).is_view()
    y = x.clone(memory_format=torch.preserve_format)
    assert not y.is_contiguous() and y.contiguous_() is y and y.is_contiguous() and torch.equal(x, y)
    assert x.offload() is x and not x.is_offloaded() and x.load() is x
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert torch.ones(2).is_lazy


def test_initialisers():
    torch.manual_seed(0)
    w = torch.empty(64, 32, requires_grad=True)
    assert w.xavier_uniform_() is w and w.abs().max() <= (6 / 96) ** 0.5
    # 2048 samples: about 6 standard errors
    assert abs(w.kaiming_normal_(nonlinearity="relu").std().item() - (2 / 32) ** 0.5) < 0.02
    assert torch.allclose(w.orthogonal_().T @ w, torch.eye(32), atol=1e-5)  # float32 QR of 64 x 32
    a, b = torch.empty(8, 3, 3, 4), torch.empty(8, 4, 3, 3)
    assert (
        a.kaiming_uniform_(data_format="NHWC").abs().max()
        <= (6 / 36 / 1) ** 0.5
        >= b.kaiming_uniform_().abs().max()
    )
    assert a.xavier_normal_(data_format="NHWC") is a


def test_torch_compile_traces_the_rows():
    @torch.compile(backend="eager", fullgraph=True)
    def f(x, y):
        x = x + 0
        x += y
        x = (x @ y).add_(1).matmul(y).softmax(-1)
        return (
            x.argmax(1),
            x.cumsum(0).split(1),
            x.mish(),
            flow.where(x > 0, x, y),
            flow.cat(inputs=[x, y]),
            flow.zeros(2, dtype=flow.int32),
            flow.std(x, 1),
        )

    assert len(f(torch.ones(2, 2), torch.ones(2, 2))) == 7


@pytest.mark.skipif(torch_is_before("2.13"), reason="Dynamo takes a method of torch.Tensor from its dict")
def test_torch_compile_traces_a_method_of_the_class():
    f = torch.compile(lambda x: torch.Tensor.add_(x + 0, 1), backend="eager", fullgraph=True)
    assert f(torch.ones(2)).tolist() == [2.0, 2.0]


def test_the_table_is_the_whole_difference_of_tensor_and_module():
    code = """
    import sys, os
    env = dict(os.environ)
    import torch
    threads, modules, rng = torch.get_num_threads(), set(sys.modules), torch.get_rng_state().tolist()
    before = {c: {n: id(getattr(c, n)) for n in dir(c)} for c in (torch.Tensor, torch.nn.Module)}
    kept = {c: [getattr(c, n) for n in dir(c)] for c in before}
    spaces = {m: {n: id(v) for n, v in vars(m).items()} for m in (torch, torch.nn, torch.nn.functional, torch.optim, torch.autograd)}
    import oneflow
    from oneflow._tables.tensor import TENSOR
    from oneflow._tables.module import MODULE
    for cls, table in ((torch.Tensor, TENSOR), (torch.nn.Module, MODULE)):
        now = {n: id(getattr(cls, n)) for n in dir(cls)}
        same = {"__dict__", "__doc__", "__init_subclass__", "__subclasshook__", "__class__", "__dir__"}
        new = set(now) - set(before[cls])
        changed = {n for n in before[cls] if now[n] != before[cls][n] and getattr(cls, n) not in kept[cls]} - same
        assert new == {n for n, row in table.items() if row[0] != "replace"}, new ^ set(table)
        assert changed == ({"__new__"} if cls is torch.Tensor else set()), changed
        assert not set(before[cls]) - set(now)
    for m, names in spaces.items():
        assert {n for n in names if id(vars(m)[n]) != names[n]} == set(), m
    assert not torch.cuda.is_initialized() and not torch.distributed.is_initialized()
    assert dict(os.environ) == env and torch.get_num_threads() == threads and torch.get_rng_state().tolist() == rng
    heavy = {"torch._dynamo", "torch._inductor", "torch.distributed.tensor", "sympy", "triton"} & (set(sys.modules) - modules)
    assert not heavy, heavy
    """  # noqa: E501
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr


def test_einops_and_torch_function_subclasses_still_behave():
    einops = pytest.importorskip("einops")
    assert einops.rearrange(m(), "a b -> b a").tolist() == m().t().tolist()
    assert einops.reduce(m(), "a b -> a", "sum").tolist() == [3.0, 12.0]
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = m().as_subclass(Watching)
    assert isinstance(x.matmul(x.t()), Watching) and isinstance(x + x, Watching)
    assert seen == ["t", "matmul", "add"]
    assert MODULE and all(len(row) == 3 and row[2] for row in TENSOR.values())


def test_a_hook_gives_a_handle():
    x, seen = leaf(), []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    x.sum().backward()
    handle.remove()
    x.sum().backward()
    assert seen == [[1.0, 1.0, 1.0]]


def test_true_is_subtracted_as_one():
    x, i = torch.tensor([0.5]), torch.tensor([3])
    assert [
        (x - True).item(),
        x.sub(True).item(),
        (True - x).item(),
        (i - True).item(),
        (True - i).item(),
    ] == [-0.5, -0.5, 0.5, 2, -2]
    assert (i - True).dtype is torch.int64 and (x - True).dtype is torch.float32


@pytest.mark.parametrize("method_class", [Method, _Method])
def test_a_method_is_torchs_on_the_class_and_takes_more_on_a_tensor(method_class):
    """The compiled class, and the Python class of an installation without a compiler."""

    def fallback(original, error, *args, **kwargs):
        return (type(error), args[1:], kwargs) if "more" in args else NotImplemented

    class Tensor(torch.Tensor):
        pass

    for name in ("add", "__radd__"):
        setattr(Tensor, name, method_class(getattr(torch.Tensor, name), fallback))
    x = t().as_subclass(Tensor)
    assert Tensor.add is torch.Tensor.add and x.add(1).tolist() == [2.0, 3.0, -2.0]
    assert x.add("more", a=1) == (TypeError, ("more",), {"a": 1})
    assert "more" + x == (type(None), ("more",), {})
    with pytest.raises(TypeError, match="argument 'other'"):
        x.add("less")
    with pytest.raises(TypeError, match="can only concatenate str"):
        "less" + x
    method = vars(Tensor)["add"]
    assert method == torch.Tensor.add != torch.Tensor.sub and hash(method) == hash(torch.Tensor.add)
    assert method_class(method, lambda *args: "always", True)(x) == "always"


def test_backward_of_a_complex_number_starts_from_one():
    x = torch.zeros(1, requires_grad=True)
    (x * (2 + 0.5j)).backward()
    assert x.grad.tolist() == [2.0]


def test_a_tensor_lacks_the_names_of_global_tensors_and_blobs():
    x = t()
    names = ("placement", "sbp", "op_name", "logical_blob_name", "_tensor_buffer_shapes_and_dtypes")
    assert [hasattr(x, name) for name in names] == [False] * 5 and getattr(x, "sbp", None) is None
    with pytest.raises(RuntimeError, match="TensorBuffer"):
        x._tensor_buffer_shapes_and_dtypes
    with pytest.raises(RuntimeError, match="local tensor has no placement"):
        x.placement
