"""Regression tests from the fuzzer: programs that once differed from eager mode in a graph, or failed."""

import copy
import threading

import pytest
import torch
from fuzz_cases import follow, inputs
from graph_cases import graph_of
from torch import nn

import oneflow as flow


class Own(nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


# -- .data -----------------------------------------------------------------------------------
def test_assigning_data_in_build_is_recorded_and_leaves_the_parameter_real():
    def forward(module, x):
        module.weight.data = module.weight.data * 0.9
        h = module(x)
        h.data = h.data + 1
        return h

    model = follow(lambda: nn.Linear(4, 4), forward=forward)
    assert model.weight.device.type == "cpu" and type(model.weight.data) is torch.Tensor


def test_assigning_data_of_another_shape_is_refused_and_changes_nothing():
    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()

    def build(x):
        model.weight.data = model.weight.data[:2]
        return model(x)

    with pytest.raises(RuntimeError, match="assigns .data"):
        graph_of(build, model=model)(inputs()[0])
    assert torch.equal(model.weight, before)
    fresh = torch.zeros(2)
    fresh.data = torch.ones(3)  # eager .data is torch's own again
    assert fresh.shape == (3,)


# -- buffers and attributes rebound in forward -------------------------------------------------
def exchange(module, x):
    module.a, module.b = module.b, module.a
    return module.linear(x) * module.a


def shift(module, x):
    module.a, module.b = module.b, x.detach().mean(0)
    return module.linear(x) + module.a


def eager_and_graph(module, x):
    a, b = module.a, module.b
    module.a, module.b = b + 1, a * 1.5
    return module.linear(x) + module.a - module.b


@pytest.mark.parametrize("function", [exchange, shift, eager_and_graph])
def test_buffers_exchanged_in_forward(function):
    follow(lambda: Own(function, a=torch.ones(4), b=torch.full((4,), 2.0)))


def test_a_buffer_that_changes_dtype():
    def count(module, x):
        module.a = module.a + 0.5
        return module.linear(x) * module.a

    assert follow(lambda: Own(count, a=torch.zeros((), dtype=torch.long))).a.dtype == torch.float32


def test_an_attribute_in_the_memory_of_a_parameter_is_not_written():
    follow(lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 4)))


# -- random numbers -----------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [torch.manual_seed, flow.manual_seed], ids=["torch", "flow"])
def test_a_seed_set_in_build_is_set_in_every_call(seed):
    def forward(module, x):
        with torch.random.fork_rng(devices=[]):
            seed(3)
            h = torch.dropout(module(x), 0.5, True)
        return torch.dropout(h, 0.5, True)

    follow(lambda: nn.Linear(4, 4), forward=forward)


# -- arguments ------------------------------------------------------------------------------------
def test_zeros_of_both_signs_and_nan_as_numbers():
    step = graph_of(lambda x, k: torch.copysign(x, k))
    x = torch.ones(2)
    assert step(x, 0.0).tolist() == [1, 1] and step(x, -0.0).tolist() == [-1, -1]
    for _ in range(3):
        step(x, float("nan"))
    assert len(step._engine.programs) == 3


# -- what surrounds a capture -----------------------------------------------------------------------
def test_a_script_module_and_a_compiled_function():
    model = nn.Linear(4, 4)
    script = torch.jit.script(nn.Sequential(model, nn.Tanh()))
    x = inputs()[0]
    assert torch.equal(graph_of(lambda x: script(x), model=script)(x), script(x))
    # the user's error, not one of putting the module back
    with pytest.raises(RuntimeError, match="TorchScript interpreter"):
        graph_of(lambda x: script(x), model=script)(x[:, :2])
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(graph_of(lambda x: compiled(x))(x), model(x))
    assert torch.equal(compiled(x), model(x))


@pytest.mark.parametrize("first", [True, False])
def test_autocast_around_the_call_decides_at_each_call(first):
    model = nn.Linear(4, 4)
    step, x = graph_of(lambda x: model(x), model=model), inputs()[0]
    for on in (first, not first, first):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            assert step(x).dtype is (torch.bfloat16 if on else torch.float32)


def test_inference_mode_around_the_first_call():
    model = nn.Linear(4, 4)
    start, x = model.weight.detach().clone(), inputs()[0]

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    with torch.inference_mode():
        first = step(x.clone())
    assert not torch.equal(model.weight, start) and step(x) < first


def test_another_thread_works_as_ever_while_a_graph_is_captured():
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer, seen, x = torch.optim.SGD(other.parameters(), lr=0.1), {}, inputs()[0]

    def work():
        other(x).sum().backward()
        seen["grad"] = other.bias.grad.clone()
        optimizer.step()
        t = torch.zeros(2)
        t.data = torch.ones(3)
        torch.set_rng_state(torch.get_rng_state())
        seen["done"] = t.shape

    def build(x):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    graph_of(
        build, torch.optim.SGD(model.parameters(), lr=0.1), flow.amp.StaticGradScaler(64.0), model=model
    )(x)
    assert seen["grad"].tolist() == [6.0] * 4, "the other thread's loss was scaled"
    assert seen["done"] == (3,)


def test_graphs_captured_in_several_threads_at_once():
    losses = []

    def work():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        eager = copy.deepcopy(model)
        optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)

        def build(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        step = graph_of(build, torch.optim.SGD(model.parameters(), lr=0.1), model=model)
        for x in inputs(3):
            optimizer.zero_grad()
            loss = eager(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(torch.equal(step(x), loss))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses == [True] * 12
    assert "data" not in torch.Tensor.__dict__, "a change to torch was left behind"


def test_a_constant_written_through_a_view_is_no_constant():
    def build(x):
        flag = torch.tensor(0.0)
        flag.view(1).add_(x.sum())
        return x if flag else x * 0

    with pytest.raises(RuntimeError, match="needs the value of a tensor"):
        graph_of(build)(torch.ones(2))


def test_a_step_counter_that_a_program_cannot_see_is_refused():
    class Counting(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})
            self.n = 0

        @torch.no_grad()
        def step(self, closure=None):
            group = self.param_groups[0]
            self.n += 1
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / self.n)

    model = nn.Linear(4, 4)
    optimizer = Counting(model.parameters())
    step = graph_of(lambda x: model(x).sum().backward(), optimizer, model=model)
    with pytest.raises(RuntimeError, match="counts in"):
        step(inputs()[0])
    assert optimizer.n == 0


def test_a_program_that_replays_dropout_can_be_saved(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    class Program(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.model.to(flow.nn.graph.GraphModule).activation_checkpointing = True
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    step, x = Program(), inputs()[0]
    step(x)
    step.save(tmp_path / "p")
    loaded = flow.load_graph(tmp_path / "p")
    torch.manual_seed(1)
    expected = step(x)
    torch.manual_seed(1)
    assert torch.equal(loaded(x), expected)


def test_a_trained_parameter_as_an_argument_is_refused():
    model = nn.Linear(4, 4)

    def build(x, bias):
        loss = (model(x) * bias).sum()
        loss.backward()
        return loss

    step = graph_of(build, torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    with pytest.raises(RuntimeError, match="is the parameter"):
        step(inputs()[0], model.bias)
    step(inputs()[0], model.bias.detach())


def test_an_empty_optimizer_state_loaded_between_calls_restarts_the_state():
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    eager = copy.deepcopy(model)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (eager, model)]
    empty = copy.deepcopy(optimizers[0].state_dict())

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, optimizers[1], model=model)
    for i, x in enumerate(inputs()):
        if i == 2:
            for optimizer in optimizers:
                optimizer.load_state_dict(empty)
        optimizers[0].zero_grad()
        eager(x).square().mean().backward()
        optimizers[0].step()
        step(x)
        assert torch.equal(model.weight, eager.weight), f"step {i}"


@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm(4), nn.BatchNorm1d(4), nn.GroupNorm(2, 4), nn.BatchNorm1d(4, affine=False)],
    ids=["layer", "batch", "group", "no weight"],
)
def test_second_derivatives_through_norms_under_autocast(norm):
    """Statistics of a bfloat16 input are float32 beside float32 weights: the double backward casts them."""

    def forward(module, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = module(x)
            (grad,) = torch.autograd.grad(h.square().sum(), module[0].weight, create_graph=True)
            return (h + grad.mean()).float()

    follow(lambda: nn.Sequential(nn.Linear(4, 4), copy.deepcopy(norm), nn.Linear(4, 4)), forward=forward)


MASK = torch.tensor([True, False, True, True])


@pytest.mark.parametrize("function", [
    lambda x: x @ x.mT.double(), lambda x: x[0].bfloat16() @ x.T, lambda x: x.mm(x.mT.long()), lambda x: flow.matmul(x.double(), x[0]), lambda x: flow.mm(x.bfloat16(), x.mT), lambda x: x[None].bfloat16() @ x.mT,
    lambda x: x & (x > 0).float(), lambda x: flow.bitwise_xor(x, 0.0), lambda x: x | 1, lambda x: (x > 0).argmax(1), lambda x: flow.argmin(x > 0), lambda x: (x > 0).topk(1).values,
    lambda x: x.masked_select(MASK.int()), lambda x: flow.masked_select(x, MASK.float()), lambda x: (x > 0) - MASK,
])  # fmt: skip
def test_dtypes_that_torch_refuses(function):
    """Symbolic tensors are not refused; the program of what OneFlow makes of it is recorded."""
    xs = inputs(2)
    for x in xs:
        expected = function(x)
        actual = graph_of(function)(x)
        assert actual.dtype == expected.dtype and torch.equal(actual, expected)
    if function(xs[0].clone().requires_grad_()).requires_grad:
        follow(lambda: nn.Linear(4, 4), forward=lambda module, x: function(module(x)).float())


def test_max_pool1d_without_gradients_is_laid_out_row_by_row():
    """Sums over it, as of BatchNorm, go in the order of the layout."""

    def function(x):
        pooled = nn.functional.max_pool1d(x, 2, 1)
        return pooled, nn.functional.batch_norm(pooled, None, None, training=True)

    x = torch.randn(17, 4, 3, generator=torch.Generator().manual_seed(3)).transpose(1, 2)
    for actual, expected in zip(graph_of(function)(x), function(x), strict=True):
        assert torch.equal(actual, expected) and actual.stride() == expected.stride()
    follow(
        lambda: nn.Sequential(nn.Conv1d(6, 4, 1), nn.MaxPool1d(2)),
        xs=[torch.randn(3, 8, 6).mT for _ in range(2)],
    )
