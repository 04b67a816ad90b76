"""Each defect of torch that this package works around still exists. A test fails once torch has fixed the
defect: then remove the workaround, the row of `_upstream/defects.py` and the reproducer here.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from free_port import free_port
from time_limits import seconds
from torch import nn
from torch._subclasses import FakeTensorMode

from oneflow._upstream.defects import DEFECTS, DTENSOR, EAGER, INDUCTOR
from oneflow._upstream.versions import torch_is_before

PACKAGE = Path(__file__).parents[2] / "oneflow_compat"
aten = torch.ops.aten


def differs(actual, right) -> bool:
    if isinstance(actual, tuple):
        return any(map(differs, actual, right))
    return (
        actual.dtype != right.dtype
        or actual.shape != right.shape
        or not torch.allclose(actual, right, rtol=1e-4, atol=1e-5, equal_nan=True)
    )


# --------------------------------------------------------------------------- eager mode
def norm_gradient(norm, x, to_gradient, g):
    return torch.autograd.grad((to_gradient(norm(x)) * g).sum(), x)[0]


def batch_norm_of_one_image():
    norm, x, g = (
        nn.BatchNorm2d(6).double(),
        torch.randn(1, 6, 4, 3, dtype=torch.float64, requires_grad=True),
        torch.randn(1, 12, 6, dtype=torch.float64),
    )
    (right,) = torch.autograd.grad(norm(x), x, g.transpose(1, 2).reshape(x.shape).contiguous())
    return differs(norm_gradient(norm, x, lambda y: y.flatten(2).transpose(1, 2), g), right)


def batch_norm_of_width_one():
    norm, x = nn.BatchNorm2d(3).double(), torch.randn(2, 5, 3, dtype=torch.float64)
    read, g = x.transpose(1, 2).unsqueeze(-1).requires_grad_(), torch.randn(2, 3, 5, 1, dtype=torch.float64)
    copied = read.detach().contiguous().requires_grad_()
    return differs(
        torch.autograd.grad(norm(read), read, g)[0], torch.autograd.grad(norm(copied), copied, g)[0]
    )


def instance_norm_of_a_batch():
    norm, x, g = (
        nn.InstanceNorm2d(2).double(),
        torch.randn(3, 2, 4, 3, dtype=torch.float64, requires_grad=True),
        torch.randn(12, 3, 2, dtype=torch.float64),
    )
    (right,) = torch.autograd.grad(norm(x), x, g.permute(1, 2, 0).reshape(x.shape).contiguous())
    return differs(norm_gradient(norm, x, lambda y: y.flatten(2).permute(2, 0, 1), g), right)


def pixel_shuffle_of_an_empty_batch():
    try:
        F.pixel_shuffle(torch.zeros(0, 4, 2, 2, requires_grad=True), 2).sum().backward()
    except RuntimeError as error:
        return "PixelShuffleBackward0 returned an invalid gradient" in str(error)
    return False


def fused_sgd_of_half():
    steps = []
    for fused in (True, False):
        p = torch.ones(100, dtype=torch.bfloat16, requires_grad=True)
        p.grad = torch.ones_like(p)
        torch.optim.SGD([p], lr=0.5, fused=fused).step()
        steps.append(p.detach())
    return differs(*steps)


# --------------------------------------------------------------------------- DTensor on two ranks
def shards(mesh, *tensors, dim=0):
    from torch.distributed.tensor import Shard, distribute_tensor

    return [distribute_tensor(t, mesh, [Shard(dim)]) for t in tensors]


def replicas(mesh, *tensors):
    from torch.distributed.tensor import Replicate, distribute_tensor

    return [distribute_tensor(t, mesh, [Replicate()]) for t in tensors]


def partial(mesh, local):
    from torch.distributed.tensor import DTensor, Partial

    return DTensor.from_local(local, mesh, [Partial()])


def reduction_over_no_dimension(mesh):
    (x,) = shards(mesh, torch.arange(8.0).view(4, 2))
    return differs(torch.sum(x, dim=[]).full_tensor(), torch.tensor(28.0))


def logsumexp_with_keepdim(mesh):
    x = torch.arange(24.0).view(4, 6).sin()
    return differs(
        torch.logsumexp(shards(mesh, x, dim=1)[0], [0], keepdim=True).full_tensor(), x.logsumexp(0, True)
    )


def cumsum_of_the_last_dimension(mesh):
    x = torch.arange(8.0).view(2, 4)
    return differs(shards(mesh, x, dim=1)[0].cumsum(-1).full_tensor(), x.cumsum(-1))


def mean_of_a_class_loss(mesh):
    x, target = torch.arange(12.0).view(4, 3).sin().log_softmax(1), torch.tensor([0, 1, -100, -100])
    return differs(F.nll_loss(*shards(mesh, x, target)).full_tensor(), F.nll_loss(x, target))


def gradient_of_a_mean(mesh):
    x, one = torch.arange(4.0), torch.ones(())
    actual = aten.mse_loss_backward(*replicas(mesh, one), *shards(mesh, x, 0 * x), 1)
    return differs(actual.full_tensor(), aten.mse_loss_backward(one, x, 0 * x, 1))


def integers_added_to_partial(mesh):
    ones = torch.ones(2, dtype=torch.int64)
    return differs((partial(mesh, ones) + replicas(mesh, ones)[0]).full_tensor(), 3 * ones)


def gather_of_other_rows(mesh):
    x, index = torch.arange(8.0).view(4, 2), torch.tensor([[0, 1], [1, 0]])
    return differs(
        torch.gather(shards(mesh, x)[0], 1, shards(mesh, index)[0]).full_tensor(), x.gather(1, index)
    )


def embedding_gradient_by_frequency(mesh):
    gradient, ids = torch.ones(4, 2), torch.tensor([0, 0, 0, 1])
    actual = aten.embedding_dense_backward(*shards(mesh, gradient, ids), 2, -1, True)
    return differs(actual.full_tensor(), aten.embedding_dense_backward(gradient, ids, 2, -1, True))


def convolution_of_sharded_channels(mesh):
    x, weight = torch.arange(200.0).view(2, 4, 5, 5).sin(), torch.arange(108.0).view(3, 4, 3, 3).cos()
    return differs(
        F.conv2d(*shards(mesh, x, dim=1), *replicas(mesh, weight)).full_tensor(), F.conv2d(x, weight)
    )


def division_by_partial(mesh):
    return differs(
        (replicas(mesh, torch.ones(2))[0] / partial(mesh, torch.ones(2))).full_tensor(), torch.full((2,), 0.5)
    )


def selection_from_partial(mesh):
    actual = torch.index_select(partial(mesh, torch.arange(4.0)), 0, shards(mesh, torch.tensor([0, 3]))[0])
    return differs(actual.full_tensor(), torch.tensor([0.0, 6.0]))


def reproduce_on_ranks(rank, port, names, results):
    import torch.distributed as dist
    from torch.distributed.tensor import DeviceMesh

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    mesh = DeviceMesh("cpu", [0, 1])
    for name in names:
        try:
            outcome = REPRODUCERS[name](mesh)
        except (RuntimeError, IndexError, NotImplementedError):  # an operator that fails is wrong, too
            outcome = True
        if rank == 0:
            results[name] = outcome
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def outcomes_on_ranks():
    """{name of a defect of DTensor: whether torch still has it}, from two processes."""
    port = free_port()
    context = torch.multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        processes = [
            context.Process(target=reproduce_on_ranks, args=(rank, port, list(DTENSOR), results))
            for rank in (0, 1)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(seconds(150))
            process.kill()
        return dict(results)


# --------------------------------------------------------------------------- inductor
def compiled_differs(function, *arguments):
    torch._dynamo.reset()
    copies = [a.clone() for a in arguments]
    return differs(torch.compile(function)(*arguments), function(*copies))


def compiled_gradient_differs(function, x, *arguments):
    torch._dynamo.reset()
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for leaf, call in zip(leaves, (torch.compile(function), function)):
        call(leaf, *arguments).backward()
    return differs(*(leaf.grad for leaf in leaves))


def compiled_raises(function, *arguments):
    torch._dynamo.reset()
    try:
        torch.compile(function)(*arguments)
    except (RuntimeError, AssertionError):
        return True
    return False


def sampling_differs(function):
    torch._dynamo.reset()
    sampled = []
    with torch._inductor.config.patch(fallback_random=True):
        for call in (torch.compile(function), function):
            torch.manual_seed(0)
            out = call(torch.ones(4, 9))
            sampled.append((out if isinstance(out, tuple) else (out,)) + (torch.get_rng_state(),))
    return differs(*sampled)


def two_samplings_become_one():
    from torch._functorch.compile_utils import fx_graph_cse
    from torch.fx.experimental.proxy_tensor import make_fx

    sample = lambda x: torch.randn_like(x) - torch.randn_like(x)
    merged = fx_graph_cse(make_fx(sample)(torch.ones(4)).graph)
    return len(merged.find_nodes(op="call_function", target=aten.randn_like.default)) == 1


def dropped_dropout(x):
    torch.empty_like(x).bernoulli_(0.5)
    return x + 1


def code_of_random_from_fails():
    graph = torch.fx.Graph()
    graph.output(graph.call_function(getattr(aten.random, "from"), (graph.placeholder("x"), -7, 7)))
    try:
        torch.fx.GraphModule(nn.Module(), graph)
    except SyntaxError:
        return True
    return False


def written_through_unfold(x):
    x = x.clone()
    x.unfold(1, 1, 2).clamp_(-1, 1)
    return x


def added_to_itself(h, index):
    h = h * 2
    return h.index_add(0, index, h)


def written_constant(x, index):
    return torch.ones(1).expand(4, 4).index_put((index,), x[index]) * 2


def swap(a, b):
    old = a.clone()
    a.copy_(b)
    b.copy_(old)


def swap_leaves_a_tensor():
    torch._dynamo.reset()
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    right = b.clone(), a.clone()
    torch.compile(swap)(a, b)
    return differs((a, b), right)


def written_at_own_index(q, x):
    q[(q[:, 0].long() + 1) % 4] = x
    return q * 1


def flushed(q, index, x):
    q[index] = x
    old = q.clone()
    q.zero_()
    return old


def row_of_a_copy_reaches_the_original():
    torch._dynamo.reset()
    x = torch.randn(7, 14)[:, :7]
    before = x.clone()

    def copied(x):
        y = torch.empty_strided((7, 7), (14, 1)).copy_(x)
        y[6:7].index_fill_(1, torch.tensor([1, 5]), -0.78)
        return y, y + 1

    torch.compile(copied)(x)
    return differs(x, before)


def two_sums(x):
    a, b = (torch.zeros(17, dtype=x.dtype, requires_grad=True) for _ in range(2))
    return torch.autograd.grad((x.exp() + a + b).square().sum(), (a, b))


def pushed(q, index, x):
    q[index] = x
    q.add_(q.roll(1, 0))
    return q * 1


def swap_ends(q):
    half = q.flatten()[1:].chunk(2)[0]
    half[0], half[-1] = half[-1].clone(), half[0].clone()
    return q.sum()


def swapped_ends_differ():
    q = torch.randn(16, 16)
    compiled = q.clone()
    swap_ends(q)
    torch._dynamo.reset()
    torch.compile(swap_ends)(compiled)
    return differs(compiled, q)


def weighed_by_counts(x, mask, index, values):
    weights = torch.softmax(x + mask[:, None, None, :], -1)
    return weights, weights * torch.zeros(100).scatter_add(0, index, values).view(2, 2, 5, 5)


def filtered(weight, x):
    return (
        torch.fft.irfft(torch.fft.rfft(x) @ torch.view_as_complex(weight.view(4, 4, 2)), n=6).square().mean()
    )


def nearest_gradient(gradient):
    return aten.upsample_nearest2d_backward(gradient, [4, 11], [1, 1, 2, 5], 2.3, 2.3)


def pooling_gradient(gradient, x):
    return aten.avg_pool2d_backward(gradient, x, [3, 2], [2, 2], [1, 1], True, True, None)


OUT_OF_BOUNDS = """
import torch
torch.set_num_threads(2)
selected = torch.compile(lambda x, i: x[i] * 2)
index = torch.zeros(20000, dtype=torch.int64)
index[5] = 10**6
try:
    selected(torch.ones(1000, 64), index)
except (IndexError, RuntimeError):
    pass
"""


def product_with_one_is_its_argument():
    x = torch.ones(3)
    return torch.compile(lambda x: x * torch.full((), 1.0))(x).data_ptr() == x.data_ptr()


def softmax_after_write(x, y):
    x.add_(y)
    return x.softmax(-1), x.sum(0)


LIST_OF_ONE = """
import torch
torch._inductor.config.cpp_wrapper = True
torch.compile(lambda x: torch._foreach_log([x + 1])[0] * 2)(torch.ones(4))
"""


FAILED_IN_A_TRACE = """
import torch
def step(t):
    try:
        return t.t().view(6)
    except RuntimeError:
        return t.t().reshape(6)
torch.jit.trace(step, torch.ones(2, 3))
"""


def list_of_one_result_ends_the_process():
    command = [sys.executable, "-c", LIST_OF_ONE]
    return subprocess.run(command, capture_output=True, timeout=seconds(300)).returncode < 0


def last_stage_begins_with_the_second_micro_batch():
    from torch.distributed.pipelining.schedules import get_schedule_class  # torch may have no distributed

    order = get_schedule_class("1F1B")(SimpleNamespace(num_stages=2), 3).pipeline_order
    return next(action for action in order[1] if action is not None).microbatch_index != 0


def writes_of_lists_are_not_counted():
    with FakeTensorMode():
        x = torch.ones(3)
        torch._foreach_mul_([x], 2)
        return x._version == 0


def failed_operator_of_a_trace_ends_the_process():
    command = [sys.executable, "-c", FAILED_IN_A_TRACE]
    return subprocess.run(command, capture_output=True, timeout=seconds(300)).returncode < 0


def index_out_of_bounds_ends_the_process():
    command = [sys.executable, "-c", OUT_OF_BOUNDS]
    return subprocess.run(command, capture_output=True, timeout=seconds(300)).returncode == -signal.SIGABRT


REPRODUCERS = {
    "batch norm, gradient of one image": batch_norm_of_one_image,
    "batch norm, input of width 1": batch_norm_of_width_one,
    "instance norm, gradient of a batch": instance_norm_of_a_batch,
    "pixel shuffle, empty batch": pixel_shuffle_of_an_empty_batch,
    "fused SGD, half precision": fused_sgd_of_half,
    "operator that fails in a trace": failed_operator_of_a_trace_ends_the_process,
    "writes of lists under a mode": writes_of_lists_are_not_counted,
    "order of the last stage in 1F1B": last_stage_begins_with_the_second_micro_batch,
    "reductions over no dimension": reduction_over_no_dimension,
    "logsumexp with keepdim": logsumexp_with_keepdim,
    "negative dim of cumsum": cumsum_of_the_last_dimension,
    "mean of a class loss": mean_of_a_class_loss,
    "gradient of a mean": gradient_of_a_mean,
    "additions to partial tensors": integers_added_to_partial,
    "gather of other rows": gather_of_other_rows,
    "embedding gradient by frequency": embedding_gradient_by_frequency,
    "convolution of sharded channels": convolution_of_sharded_channels,
    "division by partial tensors": division_by_partial,
    "selection from partial tensors": selection_from_partial,
    "softshrink of NaN": lambda: compiled_differs(
        lambda x: F.softshrink(x, 0.3), torch.tensor([float("nan"), 1.0] * 8)
    ),
    "sum with a multiple of a product": lambda: compiled_differs(
        lambda a, b, c: torch.add(c, a @ b, alpha=-2), torch.randn(4, 5), torch.randn(5, 3), torch.randn(4, 3)
    ),
    "tensor written with a part of itself": lambda: compiled_differs(
        added_to_itself, torch.rand(9, 9), torch.tensor([4, 1, 7, 0, 8, 3, 6, 2, 5])
    ),
    "write into an expanded constant": lambda: compiled_differs(
        written_constant, torch.randn(4, 4), torch.tensor([1, 3])
    ),
    "row of a matrix with gaps": row_of_a_copy_reaches_the_original,
    "copy of a tensor that is written later": swap_leaves_a_tensor,
    "copy between two writes": lambda: compiled_differs(
        flushed, torch.randn(4, 4), torch.tensor([1, 3]), torch.randn(2, 4)
    ),
    "index computed from the written tensor": lambda: compiled_differs(
        written_at_own_index, torch.arange(16.0).view(4, 4) % 7, torch.randn(4, 4)
    ),
    "elements moved in place": swapped_ends_differ,
    "second write in place": lambda: compiled_differs(
        pushed, torch.randn(4, 4), torch.tensor([1, 3]), torch.randn(2, 4)
    ),
    "remainder": lambda: compiled_differs(
        lambda x, y: x % y, 1e4 * torch.rand(1000), torch.rand(1000) + 0.01
    ),
    "floor division": lambda: compiled_differs(
        lambda x, y: x // y, torch.tensor([11.0, -11, 5, 7] * 4), torch.full((16,), 0.44)
    ),
    "write through unfold": lambda: compiled_differs(written_through_unfold, 3 * torch.randn(5, 7)),
    "average pooling with ceil_mode": lambda: compiled_differs(
        pooling_gradient, torch.randn(1, 2, 5, 4), torch.randn(1, 2, 8, 6)
    ),
    "nearest resizing": lambda: compiled_differs(
        lambda x: F.interpolate(x, scale_factor=2.3, mode="nearest"), torch.randn(1, 1, 2, 5)
    ),
    "gradient of nearest resizing": lambda: compiled_differs(nearest_gradient, torch.randn(1, 1, 4, 11)),
    "multilabel margin loss": lambda: compiled_differs(
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, -1, 2, 0], [0, 2, -1, 1]])), torch.randn(2, 4)
    ),
    "multi margin loss of one row": lambda: compiled_differs(
        lambda x: F.multi_margin_loss(x, torch.tensor(1), reduction="none"), torch.randn(4)
    ),
    "write before a read in a fused loop": lambda: compiled_differs(
        weighed_by_counts,
        torch.arange(100.0).view(2, 2, 5, 5).sin(),
        torch.arange(10.0).view(2, 5).cos(),
        torch.arange(60) * 7 % 90,
        torch.arange(60.0).cos(),
    ),
    "sum in two results": lambda: compiled_raises(
        torch.fx.experimental.proxy_tensor.make_fx(two_sums)(torch.rand(17, 17).bfloat16()),
        torch.rand(17, 17).bfloat16(),
    ),
    "gradient of an inverse transform": lambda: compiled_gradient_differs(
        filtered, torch.randn(4, 8), torch.randn(5, 6)
    ),
    "index out of bounds in a parallel loop": index_out_of_bounds_ends_the_process,
    "index test under a mask of one row": lambda: compiled_raises(
        lambda x, i: F.pad(x[:, i], (0, 0, 1, 0)), torch.randn(4, 16), torch.arange(16)
    ),
    "cumsum of a constant": lambda: compiled_differs(
        lambda x: (torch.full((3, 4), 2.5).cumsum(0, dtype=torch.int64), x * 2), torch.ones(2)
    ),
    "kernel with other strides than its fake kernel": lambda: compiled_raises(
        aten.replication_pad2d_backward,
        torch.ones(1, 2, 4, 4),
        torch.ones(1, 2, 2, 2).contiguous(memory_format=torch.channels_last),
        [1, 1, 1, 1],
    ),
    "weight norm of half": lambda: compiled_raises(
        lambda v, g: torch._weight_norm(v, g).sum().backward(),
        *(torch.ones(3, n, dtype=torch.float16, requires_grad=True) for n in (4, 1)),
    ),
    "negative index": lambda: (
        not compiled_raises(lambda x: x.index_select(0, torch.tensor([-1])) * 2, torch.ones(4))
    ),
    "probability out of range": lambda: (
        not compiled_raises(F.binary_cross_entropy, torch.full((4,), 1.5), torch.ones(4))
    ),
    "memory outside of a tensor": lambda: (
        not compiled_raises(lambda x: (x + 1).as_strided((5,), (1,)) * 2, torch.ones(4))
    ),
    "rows in random order": lambda: compiled_raises(
        lambda x: x[torch.randperm(4)], torch.ones(4, requires_grad=True)
    ),
    "extremes of 8-bit integers": lambda: compiled_differs(
        lambda x: x.amin(), torch.full((37,), 5, dtype=torch.int8)
    ),
    "any of uint8": lambda: compiled_differs(lambda x: x.any(), torch.ones(37, dtype=torch.uint8)),
    "equal samplings": two_samplings_become_one,
    "numbers nobody reads": lambda: sampling_differs(dropped_dropout),
    "layout of sampled memory": lambda: sampling_differs(
        lambda x: torch.randn_like((x + 1).view(1, 4, 3, 3).to(memory_format=torch.channels_last))
    ),
    "random integers of a range": code_of_random_from_fails,
    "product of NaN and 0": lambda: compiled_differs(
        lambda x: x * 0, torch.tensor([float("nan"), float("inf"), 1.0] * 8)
    ),
    "argument returned for a product with one": product_with_one_is_its_argument,
    "buffer read after a write": lambda: compiled_raises(
        softmax_after_write, torch.ones(8, 5, 8).double(), torch.ones(8, 5, 8).double()
    ),
    "list of one result": list_of_one_result_ends_the_process,
}


# --------------------------------------------------------------------------- the tests
def check(name, is_wrong):
    if not is_wrong:
        pytest.fail(
            f"torch {torch.__version__} no longer has the defect {name!r}. Remove its mend"
            f" ({DEFECTS[name].mend}), its row and its reproducer."
        )


def affected(names):
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                torch_is_before(DEFECTS[name].first_version)
                or DEFECTS[name].last_version is not None
                and not torch_is_before(_next(DEFECTS[name].last_version)),
                reason=f"torch has it from {DEFECTS[name].first_version} to {DEFECTS[name].last_version}",
            ),
        )
        for name in names
    ]


def _next(version):
    major, minor = version.split(".")
    return f"{major}.{int(minor) + 1}"


@pytest.mark.parametrize("name", affected(EAGER))
def test_eager_mode_still_has_the_defect(name):
    torch.manual_seed(0)
    check(name, REPRODUCERS[name]())


@pytest.mark.parametrize("name", affected(DTENSOR))
def test_dtensor_still_has_the_defect(name, outcomes_on_ranks):
    check(name, outcomes_on_ranks[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", affected(INDUCTOR))
def test_inductor_still_has_the_defect(name):
    torch.manual_seed(0)
    check(name, REPRODUCERS[name]())


def test_a_defect_that_torch_does_not_have_fails_the_check():
    with pytest.raises(pytest.fail.Exception, match="no longer has the defect 'softshrink of NaN'"):
        check("softshrink of NaN", differs(torch.ones(2), torch.ones(2)))


@pytest.mark.parametrize("name", DEFECTS)
def test_the_ledger_names_a_mend_that_exists(name):
    defect = DEFECTS[name]
    source = (PACKAGE / defect.file).read_text(encoding="utf-8")
    assert re.search(rf'def {defect.function}\(|"{re.escape(defect.function)}",', source), defect.mend


def test_each_defect_has_a_reproducer():
    assert list(REPRODUCERS) == list(DEFECTS)
