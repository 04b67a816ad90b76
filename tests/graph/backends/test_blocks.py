"""Optimizer updates block by block (_graph/compile/update_blocks.py) give the same bits in a few calls."""

import copy

import pytest
import torch
from graph_cases import assert_same_training
from torch import nn
from torch.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop

import oneflow as flow
from oneflow._graph.compile import update_blocks, update_steps
from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason="needs the kernel library (csrc/build.py)")

# optimizer: the steps of a parameter once its state has begun
OPTIMIZERS = {
    "sgd": (lambda p: SGD(p, lr=0.1), 1),
    "momentum": (lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01), 4),
    "nesterov": (lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), 5),
    "adam": (lambda p: Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True), 9),
    "adamw": (lambda p: AdamW(p, lr=0.01), 8),
    "maximize": (lambda p: AdamW(p, lr=0.01, maximize=True), 9),
    "rmsprop": (lambda p: RMSprop(p, lr=0.01, centered=True, momentum=0.9), 9),
    "adagrad": (lambda p: Adagrad(p, lr=0.01, lr_decay=0.1), 5),
    "adadelta": (lambda p: Adadelta(p), 11),
    "adamax": (lambda p: Adamax(p), 6),
    "nadam": (lambda p: NAdam(p), 8),
    "radam": (lambda p: RAdam(p), 12),
    "asgd": (lambda p: ASGD(p), 3),
    "oneflow": (lambda p: flow.optim.AdamW(p, lr=0.01, weight_decay=0.01), 8),
}


class Net(nn.Module):
    """Weights longer than a block and not a multiple of a vector."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(61, 301), nn.BatchNorm1d(301), nn.Linear(301, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.norm(self.a(x))))


def loss_of(model, x):
    return model(x.to(next(model.parameters()).dtype)).pow(2).mean()


def batches(n=10, *shape):
    torch.manual_seed(1)
    return [(torch.randn(8, *(shape or (61,))),) for _ in range(n)]


def calls(graph):
    """The calls of blocks_ in the graph's program, and the remaining elementwise operators except those of
    counters.
    """
    nodes = [
        n
        for n in update_blocks.in_blocks(graph.program).graph.nodes
        if n.op == "call_function" and n.meta.get("phase") == "update"
    ]
    block_calls = [n.target for n in nodes if isinstance(n.target, update_blocks.Blocks)]
    return block_calls, [
        n for n in nodes if any(step.to.meta["tensor"].shape != () for step in update_steps.steps_of(n))
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_step_rounds_as_torchs_operator(dtype):
    assert [name for name in update_steps.STEPS if not update_steps.is_exact(name, dtype)] == []


WRONG_STEPS = {  # step: the same function with other last bits, or another sign of zero
    "add": lambda x, s: x[0] + x[1] * s,
    "addcmul": lambda x, s: x[0].addcmul(x[1] * x[2], torch.full_like(x[0], s)),
    "tanh_backward": lambda x, s: x[0] * (1 - x[1] * x[1]),
    "sigmoid_backward": lambda x, s: x[0] * (x[1] - x[1] * x[1]),
    "tanh": lambda x, s: 2 / (1 + (-2 * x[0]).exp()) - 1,
    "exp": lambda x, s: torch.exp2(x[0] * 1.4426950408889634),
    "sqrt": lambda x, s: 1 / x[0].rsqrt(),
    "erf": lambda x, s: 1 - x[0].erfc(),
    "relu": lambda x, s: x[0] * (x[0] > 0),
    "maximum": lambda x, s: torch.where(x[0] > x[1], x[0], x[1]),
    "threshold_backward": lambda x, s: torch.where(x[1] < s, 0.0, x[0]),
    "neg": lambda x, s: 0 - x[0],
}


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_wrong_step_is_found(name, monkeypatch):
    monkeypatch.setattr(update_steps, "_run_step", lambda name, x, s: WRONG_STEPS[name](x, s))
    assert not update_steps.is_exact.__wrapped__(name, torch.float32)


def test_refused_step_is_not_exact(monkeypatch):
    """Without MKL, the library refuses the steps that call it."""

    def refuse(name, operands, number):
        raise RuntimeError("code[0] must be a step without MKL")

    monkeypatch.setattr(update_steps, "_run_step", refuse)
    assert not update_steps.is_exact.__wrapped__("tanh", torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bit_for_bit(name, dtype):
    make, steps = OPTIMIZERS[name]
    torch.manual_seed(0)
    graph = assert_same_training(Net().to(dtype), make, loss_of, batches())
    block_calls, left = calls(graph)
    assert [(call.lanes, len(call.code) // 6) for call in block_calls] == [(6, steps)] and not left


@pytest.mark.parametrize("skip, runs_in_blocks", [([], True), (["in_blocks"], False)])
def test_the_update_in_blocks_is_a_pass_that_can_be_skipped(skip, runs_in_blocks):
    torch.manual_seed(0)
    graph = assert_same_training(
        Net(), OPTIMIZERS["adamw"][0], loss_of, batches(), setup=lambda g: g.config.passes(skip=skip)
    )
    with torch.profiler.profile() as profile:
        graph(*batches(1)[0])
    assert ("oneflow::blocks_" in {event.key for event in profile.key_averages()}) is runs_in_blocks


def test_groups_with_other_numbers_share_a_call():
    def groups(params):
        first, *rest = params
        return AdamW([{"params": [first], "lr": 0.1, "weight_decay": 0.3}, {"params": rest}], lr=0.01)

    torch.manual_seed(0)
    block_calls, left = calls(
        assert_same_training(
            Net(), groups, loss_of, batches(), make_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 2)
        )
    )
    assert [call.lanes for call in block_calls] in ([6], [1, 5]) and not left


class Odd(nn.Module):
    """Layouts: channels last, transposed, 0-d, empty, one element, half precision, a gradient laid out
    otherwise than its weight, an unused one.
    """

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
        self.turned = nn.Parameter(torch.randn(7, 5).t())
        self.number, self.empty, self.one = (
            nn.Parameter(torch.tensor(0.5)),
            nn.Parameter(torch.ones(0, 4)),
            nn.Parameter(torch.ones(1)),
        )
        self.low, self.right = (
            nn.Parameter(torch.randn(7, dtype=torch.bfloat16)),
            nn.Parameter(torch.randn(7, 4)),
        )
        self.hole, self.unused = nn.Parameter(torch.randn(4, 6)[:, ::2]), nn.Parameter(torch.ones(3))

    def forward(self, x):
        y = self.conv(x.unflatten(1, (3, 4, 4))).sum((2, 3)) @ self.turned * self.number
        return (y * self.low.float() @ self.right) @ self.hole * self.one + self.empty.sum()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SGD(p, lr=1e-4, momentum=0.9),
        lambda p: AdamW(p, lr=0.01),
        lambda p: AdamW(p, lr=0.01, foreach=False),
    ],
    ids=["sgd", "adamw", "loop"],
)
def test_layouts(make):
    torch.manual_seed(0)
    block_calls, left = calls(assert_same_training(Odd(), make, loss_of, batches(10, 48)))
    assert sum(call.lanes for call in block_calls) >= 5, "the dense ones are taken in blocks"


def trained_beside_eager(make_model):
    """A graph of AdamW after five steps equal to eager's. Both models are newly constructed, because a copy
    would lose their memory layout.
    """
    torch.manual_seed(0)
    eager = make_model()
    torch.manual_seed(0)
    graphed = make_model()
    optimizer = AdamW(eager.parameters(), lr=0.01)

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = graphed
            self.add_optimizer(AdamW(graphed.parameters(), lr=0.01))
            self.config.set_backend("aten")

        def build(self, x):
            loss = loss_of(self.model, x)
            loss.backward()
            return loss

    step = Train()
    for (x,) in batches(5):
        optimizer.zero_grad()
        loss = loss_of(eager, x)
        loss.backward()
        optimizer.step()
        assert torch.equal(step(x), loss)
    assert all(map(torch.equal, eager.parameters(), graphed.parameters()))
    return step


def test_two_parameters_in_one_memory():
    """As a loop over the parameters: the second one starts from what the first one's step left."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(61, 61, bias=False), nn.Linear(61, 61, bias=False)
            self.b.weight.data = self.a.weight.data

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))

    trained_beside_eager(Tied)


def test_what_cannot_be_taken_leaves_the_rest():
    """One parameter is laid out with holes: of the operators on lists its elements stay. Another is a single
    number.
    """

    class Mixed(Net):
        def __init__(self):
            super().__init__()
            self.hole, self.scale = nn.Parameter(torch.randn(3, 6)[:, ::2]), nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            return super().forward(x) @ self.hole * self.scale

    graph = trained_beside_eager(Mixed)
    block_calls, left = calls(graph)
    assert [(call.lanes, len(call.code) // 6) for call in block_calls] == [(1, 3), (7, 8)], (
        "of its optimizer state, and of all the others"
    )
    lists = [n for n in left if "_foreach_" in str(n.target)]
    assert lists and all(len(n.args[0]) == 1 for n in lists)


def test_a_value_read_between_two_steps_is_that_of_then():
    """The update of an optimizer that reads a parameter in the middle of its update is not reordered."""

    class Looks(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            for p in (p for group in self.param_groups for p in group["params"]):
                state = self.state[p]
                if not state:
                    state["kept"], state["norm"] = torch.zeros_like(p), torch.zeros(())
                p.mul_(0.99).add_(p.grad, alpha=-0.05)
                state["norm"].copy_(p.norm())
                half = p * 0.5
                state["kept"].lerp_(half, 0.3).mul_(state["norm"].clamp(max=1.0))
                p.sub_(half, alpha=0.01).addcmul_(p, half, value=1e-3).copy_(p.clone())

    torch.manual_seed(0)
    block_calls, left = calls(assert_same_training(Net(), Looks, loss_of, batches()))
    assert left and not block_calls


def test_versions_go_up():
    torch.manual_seed(0)
    graph = assert_same_training(Net(), OPTIMIZERS["adamw"][0], loss_of, batches(2))
    weight = next(iter(graph.model.parameters()))
    before = weight._version
    y = weight.exp()
    z = (weight * y).sum()
    graph(*batches(1)[0])
    assert weight._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_an_overflowed_step_is_left_out():
    class Train(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(AdamW(model.parameters(), lr=0.01))
            self.set_grad_scaler(flow.amp.GradScaler(init_scale=2.0**10, growth_interval=2))
            self.config.set_backend("aten")

        def build(self, x):
            loss = loss_of(self.model, x)
            loss.backward()
            return loss

    torch.manual_seed(0)
    model = Net()
    step = Train(model)
    for (x,) in batches(3):
        step(x)
    before = copy.deepcopy(model.a.weight)
    step(batches(1)[0][0] * float("inf"))
    assert torch.equal(model.a.weight, before)


@pytest.mark.parametrize("code, scalars, match", [
    ([99, 0, 1, -1, -1, -1], [], r"code\[0\] must be 0 to 25, found 99"),  # an operation
    ([5, 0, 1, -1, -1, 0], [], r"code\[5\] must be -1 to -1, found 0"),  # a scalar
    ([0, 10, 1, -1, -1, -1], [], r"code\[1\] must be 0 to 9, found 10"),  # a register that is written
    ([0, 1, 0, -1, -1, -1], [], r"code\[1\] must be a tensor to write or a temporary, found tensor 0 of those to read"),
    ([8, 0, 1, -1, -1, -1], [], r"code\[3\] must be 0 to 9, found -1"),  # an operand
    ([0, 0, 1], [], "code must have 6 entries a step, found 3"),
])  # fmt: skip
def test_a_wrong_program_is_refused(code, scalars, match):
    with pytest.raises(RuntimeError, match=match):
        torch.ops.oneflow.blocks_([torch.ones(4)], [torch.ones(4)], 1, code, scalars, [])


def test_tensors_that_do_not_fit_are_refused():
    copy_second = [0, 0, 1, -1, -1, -1]
    with pytest.raises(
        RuntimeError, match=r"read\[0\] must have the shape of what its lane writes, \(4\), found \(5\)"
    ):
        torch.ops.oneflow.blocks_([torch.ones(4)], [torch.ones(5)], 1, copy_second, [], [])
    with pytest.raises(RuntimeError, match=r"read\[0\] must have the dtype of .*, float32, found float64"):
        torch.ops.oneflow.blocks_(
            [torch.ones(4)], [torch.ones(4, dtype=torch.float64)], 1, copy_second, [], []
        )
    with pytest.raises(
        RuntimeError, match=r"written\[0\] must be dense, found shape \(4\) and strides \(2\)"
    ):
        torch.ops.oneflow.blocks_([torch.ones(8)[::2]], [torch.ones(4)], 1, copy_second, [], [])
    with pytest.raises(RuntimeError, match="lanes must be 1 to 1, found 2"):
        torch.ops.oneflow.blocks_([torch.ones(8)], [torch.ones(8)], 2, copy_second, [], [])
    written = torch.zeros(3, 4)
    torch.ops.oneflow.blocks_([written], [torch.arange(12.0).view(4, 3).t()], 1, copy_second, [], [])
    assert torch.equal(written, torch.arange(12.0).view(4, 3).t()), "what is read may have another layout"
