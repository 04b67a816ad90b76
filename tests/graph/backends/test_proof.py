"""A compiled program is compared with the captured operators before it serves a call."""

import json
import warnings

import numpy as np
import pytest
import torch

import oneflow.nn as nn
from oneflow._graph.compile.copies import CallState
from oneflow._graph.compile.inductor import compiler
from oneflow._graph.compile.proof import proof as proofs
from oneflow._graph.compile.proof import records
from oneflow._graph.compile.proof.transfer import read_inputs, write_inputs
from oneflow._graph.program.program import written_args

aten = torch.ops.aten


class Compiled(torch.fx.Interpreter):
    """A compiler that runs the operators of a region in float64, so that it rounds otherwise than aten.

    `fault(node, run)` may change what an operator does; `run()` runs it.
    """

    def __init__(self, region, fault=None, rounds=True):
        super().__init__(region, graph=region.graph)
        self.fault, self.rounds = fault, rounds

    def run_node(self, node):
        run = lambda: self.wide(node) if self.rounds else super(Compiled, self).run_node(node)
        return run() if self.fault is None or node.op != "call_function" else self.fault(self, node, run)

    def wide(self, node):
        is_plain = node.op == "call_function" and node.meta.get("tensor") is not None
        if not is_plain or written_args(node) or not node.meta["tensor"].dtype.is_floating_point:
            return super().run_node(node)
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
            return super().run_node(node)
        widened = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        args = torch.fx.node.map_aggregate(self.fetch_args_kwargs_from_env(node)[0], widened)
        return node.target(*args, **node.kwargs).to(node.meta["tensor"].dtype)


def use(monkeypatch, fault=None, rounds=True):
    """Compile with this fault. Return the list of the sizes of the graphs that were compiled."""
    sizes = []

    def compile_region(region, infos, options):
        sizes.append(len(region.graph.nodes))
        results = region.graph.output_node().args[0]

        def function(*values):
            return list(Compiled(region, fault, rounds).run(*values))

        function.layouts = [n.meta["tensor"] for n in results]
        function.guards = function.settings = None
        function.graph, function.call = region.graph, function
        return function

    monkeypatch.setattr(compiler, "_compiled", compile_region)
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "0")
    return sizes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("queue", torch.zeros(4, 3))

    def forward(self, x):
        h = self.norm(self.first(x)).sigmoid()
        y = self.last(h)
        self.queue[1:] = self.queue[:-1].clone()
        self.queue[0] = y.detach().mean(0)
        return y


class Training:
    """A training step as a graph, whose loss is masked as that of a language model."""

    def __init__(self, backend, dtype=torch.float32, **verify):
        torch.manual_seed(0)
        self.dtype, self.net = dtype, Net().to(dtype)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.graph = type("Step", (nn.Graph,), {"build": lambda _, x, y: self.step(x, y)})()
        self.graph.net = self.net
        self.graph.add_optimizer(self.optimizer)
        self.graph.config.set_backend(backend)
        if verify:
            self.graph.config.verify(**verify)

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.net(x), y, reduction="none")
        loss = loss.clone()
        loss[y == 0] = 0.0
        loss = loss.sum() / 10
        loss.backward()
        return loss

    def call(self, number):
        generator = torch.Generator().manual_seed(number)
        x, y = torch.randn(10, 6, generator=generator), torch.randint(0, 3, (10,), generator=generator)
        return self.graph(x.to(self.dtype), y)

    def trained(self, calls=3):
        """Return the losses, and then the state of the model and of the optimizer."""
        torch.manual_seed(1)
        losses = [self.call(i) for i in range(calls)]
        states = [t for state in self.optimizer.state.values() for t in state.values()]
        return [*losses, *self.net.state_dict().values(), *states, torch.get_rng_state()]


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


# --------------------------------------------------------------------------- faults
def on(*targets):
    """A fault of these operators: `change(interpreter, node, result)` returns another result."""

    def decorate(change):
        def fault(interpreter, node, run):
            return change(interpreter, node, run()) if node.target in targets else run()

        fault.name, fault.targets = change.__name__, targets
        return fault

    return decorate


def instead_of(*targets):
    """A fault of these operators: `change(interpreter, node)` runs in their place."""

    def decorate(change):
        def fault(interpreter, node, run):
            return change(interpreter, node) if node.target in targets else run()

        fault.name, fault.targets = change.__name__, targets
        return fault

    return decorate


def argument(interpreter, node, position=0):
    return interpreter.env[node.args[position]]


@on(aten.sigmoid.default)
def wrong_decomposition(_, node, result):
    return result * result


@on(aten.addmm.default)
def missing_bias(interpreter, node, result):
    return result - argument(interpreter, node)


@on(aten.addmm.default)
def wrong_strides(_, node, result):
    return torch.empty(result.shape[::-1]).copy_(result.t()).reshape(result.shape)


@on(aten.sigmoid.default)
def missing_tail(_, node, result):
    return result.index_fill(1, torch.tensor([result.shape[1] - 1]), 0.0)


@on(aten.mm.default)
def sum_in_bfloat16(_, node, result):
    return result.bfloat16().float()


@on(aten.sum.dim_IntList)
def wrong_count(_, node, result):
    return result * 0.9


@on(aten.sigmoid_backward.default)
def gradient_of_another_value(interpreter, node, result):
    return argument(interpreter, node, 0)


@on(aten.native_batch_norm_backward.default)
def swapped_gradients(_, node, result):
    return result[0], result[2], result[1]


@on(aten.clone.default, aten.copy_.default)
def reuse_of_an_operand(interpreter, node, result):
    return argument(interpreter, node)  # of clone(); copy_() reads what it has written


WRITES = (aten.index_put_.default, aten.masked_fill_.Scalar)  # of torch before 2.15, and since


@instead_of(aten.index_put.default, aten.masked_fill.Scalar, *WRITES)
def write_to_every_row(interpreter, node):
    target, value = argument(interpreter, node), node.args[2]
    value = interpreter.env[value].flatten()[0] if isinstance(value, torch.fx.Node) else value
    return (target if node.target in WRITES else target.clone()).fill_(value)


@instead_of(aten.copy_.default)
def dropped_write(interpreter, node):
    return argument(interpreter, node)


@on(aten.native_batch_norm.default)
def stale_buffer(interpreter, node, result):
    argument(interpreter, node, 3).mul_(0.5)
    return result


@on(aten.sigmoid.default)
def lost_nan_of_an_overflow(_, node, result):
    return torch.where(result > 0.5, float("nan"), result)


@on(aten.t.default)
def written_parameter(interpreter, node, result):
    result.mul_(1.25)
    return result


@on(aten.sigmoid.default)
def advanced_generator(_, node, result):
    torch.rand(1)
    return result


@on(aten.addmm.default)
def raising(_, node, result):
    raise RuntimeError("API call failed")


@on(aten._log_softmax.default)
def wrong_bounds(_, node, result):
    return result.roll(1, 0)


@on(aten.mean.dim)
def float16_statistics(_, node, result):
    return result.half().float()


@on(aten._log_softmax_backward_data.default)
def wrong_sign(_, node, result):
    return -result


@on(aten.native_batch_norm.default)
def scaled_result(_, node, result):
    return (result[0] * 1.001, *result[1:])


FAULTS = [
    wrong_decomposition,
    missing_bias,
    wrong_strides,
    missing_tail,
    sum_in_bfloat16,
    wrong_count,
    gradient_of_another_value,
    swapped_gradients,
    reuse_of_an_operand,
    write_to_every_row,
    dropped_write,
    stale_buffer,
    lost_nan_of_an_overflow,
    written_parameter,
    advanced_generator,
    raising,
    wrong_bounds,
    float16_statistics,
    wrong_sign,
    scaled_result,
]


def refusals(caught):
    return [str(w.message) for w in caught if "is wrong and is not used" in str(w.message)]


@pytest.fixture(scope="module")
def right():
    """The results of the captured operators, with the update as compiled programs have it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, rounds=False)
        return Training("inductor", when="never").trained()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_wrong_program_is_refused_by_operator_and_line(fault, monkeypatch, right):
    use(monkeypatch, fault)
    training = Training("inductor")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert equal(training.trained(), right)
    (message,) = refusals(caught)
    assert any(str(target) in message for target in fault.targets) and "test_proof.py:" in message
    assert message.partition(": ")[2] in training.graph.explain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_right_program_that_rounds_otherwise_is_used(dtype, monkeypatch):
    sizes = use(monkeypatch)
    training = Training("inductor", dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training.trained()
    assert refusals(caught) == [] and len(sizes) == 1
    assert "tensors compared with the captured operators: equal" in training.graph.explain()


def test_rounding_of_half_types_explains_only_what_is_made_of_them(monkeypatch):
    """The wrong float32 values are within the rounding of bfloat16, which another result has."""

    @on(aten.exp.default)
    def wrong(_, node, result):
        return result * 1.001

    use(monkeypatch, wrong)

    class Total(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x, has_half):
            self.total.add_(x.exp())
            return (x.bfloat16() / 3).float() if has_half else x * 2

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = Total()
            self.config.set_backend("inductor")

        def build(self, x, has_half):
            return self.module(x, has_half)

    for has_half in (True, False):
        graph, x = Graph(), torch.linspace(0, 1, 3)
        with pytest.warns(UserWarning, match="is wrong and is not used.*aten.exp"):
            graph(x, has_half)
        assert torch.equal(graph.module.total, x.exp())


def test_values_that_an_operator_refuses_end_no_call(monkeypatch):
    """The rounded scores are classes, but those of a perturbed run are not; the argument is expanded."""

    @on(aten.exp.default)
    def wrong(_, node, result):
        return result * 1.5

    use(monkeypatch, wrong)
    table, scores = torch.arange(4.0), torch.full((6,), 4.0).nextafter(torch.zeros(1))

    class Graph(nn.Graph):
        def build(self, table, scores, x):
            return table[scores.long()] * x.exp().sum()

    graph = Graph()
    graph.config.set_backend("inductor")
    x = torch.linspace(0, 1, 5).view(5, 1).expand(5, 3)
    with pytest.warns(UserWarning, match="is wrong and is not used"):
        result = graph(table, scores, x)
    torch.testing.assert_close(result, torch.full((6,), 3.0) * x.exp().sum())


def test_unwritten_memory_is_not_named_as_the_wrong_operator(monkeypatch):
    @on(aten.exp.default)
    def wrong(_, node, result):
        return result * 1.5

    @on(aten.empty.memory_format)
    def garbage(interpreter, node, result):
        return result.fill_(7.0)

    use(monkeypatch, lambda *call: wrong(*call) if call[1].target is aten.exp.default else garbage(*call))

    class Graph(nn.Graph):
        def build(self, x):
            y = torch.empty(2, 3)
            y[0] = x
            y[1] = x.exp()
            return y * 2

    graph, x = Graph(), torch.ones(3)
    graph.config.set_backend("inductor")
    with pytest.warns(UserWarning, match="the first operator that differs is aten.exp.default"):
        assert torch.equal(graph(x), torch.stack([x, x.exp()]) * 2)


def test_random_numbers_after_a_refusal_are_those_of_eager_mode(monkeypatch):
    @on(aten.mul.Tensor)
    def wrong(_, node, result):
        return result * 1.5

    use(monkeypatch, wrong)

    class Graph(nn.Graph):
        def build(self, x):
            return x * torch.rand_like(x)

    graph, x = Graph(), torch.ones(5)
    graph.config.set_backend("inductor")
    torch.manual_seed(3)
    expected = torch.rand(5), torch.rand(5)
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="is wrong and is not used"):
        assert torch.equal(graph(x), expected[0])
    assert torch.equal(graph(x), expected[1])


def test_never_compares_nothing(monkeypatch):
    use(monkeypatch, wrong_sign)
    training = Training("inductor", when="never")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.trained(1)
    assert "not compared with the captured operators" in training.graph.explain()


def test_every_nth_call_is_compared(monkeypatch):
    runs = []
    compared = proofs.compared
    use(monkeypatch, rounds=False)
    monkeypatch.setattr(
        "oneflow._graph.compile.proof.proving.compared", lambda *a: runs.append(1) or compared(*a)
    )
    Training("inductor", every=3).trained(8)
    assert len(runs) == 3  # the first call, and two of the seven calls after it


def test_a_program_that_becomes_wrong_is_found_by_every(monkeypatch, right):
    calls = []

    @on(aten._log_softmax.default)
    def late(_, node, result):
        calls.append(1)
        return result if len(calls) < 3 else result.roll(1, 0)

    use(monkeypatch, late, rounds=False)
    with pytest.warns(UserWarning, match="is wrong and is not used"):
        Training("inductor", every=2).trained(4)


def test_an_error_of_the_captured_operators_is_the_error_of_the_call(monkeypatch):
    class Lookup(nn.Graph):
        def __init__(self):
            super().__init__()
            self.seen = torch.zeros(1)
            self.config.set_backend("inductor")

        def build(self, x, i):
            self.seen.add_(1)
            return x[i] * 2

    def wrong(interpreter, node, run):
        raise ValueError("the compiled program fails")

    use(monkeypatch, wrong)
    graph = Lookup()
    with pytest.raises(IndexError, match="out of bounds"):
        graph(torch.ones(3), torch.tensor([7]))
    assert graph.seen.item() == 0


def test_an_interrupt_in_a_comparison_changes_nothing(monkeypatch):
    class Count(nn.Graph):
        def __init__(self):
            super().__init__()
            self.seen = torch.zeros(1)
            self.config.set_backend("inductor")

        def build(self, x):
            self.seen.add_(x.sum())
            return self.seen * 2

    def interrupted(interpreter, node, run):
        if node.target is aten.mul.Tensor:
            raise KeyboardInterrupt
        return run()

    use(monkeypatch, interrupted)
    graph, state = Count(), torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        graph(torch.ones(3))
    assert graph.seen.item() == 0 and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("share", [0.0, 1e-12])
def test_results_are_compared_in_parts_if_memory_is_short(share, monkeypatch, right):
    monkeypatch.setattr(proofs, "_SHARE", share)
    use(monkeypatch, rounds=False)
    training = Training("inductor")
    assert equal(training.trained(), right) and "parts for lack of memory" in training.graph.explain()
    use(monkeypatch, wrong_bounds)
    with pytest.warns(UserWarning, match="is wrong and is not used"):
        assert equal(Training("inductor").trained(), right)


@pytest.mark.parametrize(
    "when, every, words", [("often", None, "found 'often'"), ("never", 2, "leave one out")]
)
def test_verify_refuses_what_means_nothing(when, every, words):
    with pytest.raises(ValueError, match=words):
        Training("aten").graph.config.verify(when, every=every)


def test_a_kink_of_relu_is_no_false_alarm(monkeypatch):
    """The gradient jumps where the input of relu is a rounding error."""

    class Kink(nn.Graph):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.linspace(-1, 1, 40))
            self.add_optimizer(torch.optim.SGD([self.w], 0.0))
            self.config.set_backend("inductor")

        def build(self, x):
            y = torch.relu((x * self.w).sum(1) * 3)
            y.sum().backward()
            return y.argmax(), (y > 0).sum()

    @on(aten.sum.dim_IntList)
    def other_order(interpreter, node, result):
        return argument(interpreter, node).flip(1).sum(1) if node.args[1] == [1] else result

    x = torch.randn(200, 40, generator=torch.Generator().manual_seed(0))
    w = torch.linspace(-1, 1, 40)
    x[:, 0] += (x * w).sum(1) + torch.linspace(-3e-7, 3e-7, 200)  # now (x * w).sum(1) is about 0
    use(monkeypatch, other_order)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Kink()(x)
    assert refusals(caught) == []


# --------------------------------------------------------------------------- copies of inputs
def overlapping():
    base = torch.arange(24.0).reshape(4, 6)
    buffer = np.arange(8, dtype=np.float32)
    return [
        base,
        base.t(),
        base[1:, 2:4],
        torch.ones(1).expand(5),
        torch.empty(0, 3),
        torch.tensor(3),
        base.view(torch.int32)[0],
        torch.from_numpy(buffer),
        torch.from_numpy(buffer[3:]),
        torch.randn(3).bfloat16(),
    ]


def test_copies_share_memory_as_the_tensors_do():
    values = overlapping()
    state = CallState(values)
    copies = state.fresh_values(range(len(values)))
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(values, copies))
    copies[2].fill_(-5)
    assert copies[0][1, 2] == -5 and copies[1][2, 1] == -5 and values[0].min() >= 0
    copies[7][3] = 50
    assert copies[8][0] == 50 and values[8][0] == 3


def test_restored_values_are_those_before_the_call():
    values = overlapping()
    before = [v.clone() for v in values]
    generator = torch.get_rng_state()
    state = CallState(values)
    for value in (values[1], values[8], values[9]):
        value.add_(1)
    torch.rand(3)
    state.restore()
    assert equal(values, before) and torch.equal(torch.get_rng_state(), generator)


def test_inputs_reach_another_process_with_their_layout(tmp_path):
    values = overlapping()
    with open(tmp_path / "inputs", "w+b") as file:
        layouts = json.loads(json.dumps(write_inputs(values, file)))
        read = read_inputs(file.fileno(), layouts)
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(values, read))
    read[2].fill_(-5)
    assert read[0][1, 2] == -5 and values[0].min() >= 0


# --------------------------------------------------------------------------- proofs on disk
def test_a_proof_holds_for_the_next_process_and_not_for_other_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "100")
    library, proof = "a" * 64, proofs.Proof((proofs.Difference("result 0 (mul)", "differs", 0),), operator=3)
    records.keep(library, proof)
    assert records.load(library) == proof and records.load("b" * 64) is None
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert records.load(library) is None
    finally:
        torch.set_num_threads(threads)
