"""Writes in place on the inductor backend: each read sees the value that eager mode sees."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]

ROWS = torch.tensor([1, 3])


class Bank(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        values = torch.arange(float(size**2)).view(size, size)
        self.register_buffer("bank", values.sin())
        self.register_buffer("other", values.cos())


def assert_buffers_agree(write, backend="inductor", size=4):
    """Run a write of two buffers in eager mode and in a graph, and compare results and buffers."""
    right, module, x = Bank(size), Bank(size), torch.arange(16.0).view(4, 4)

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = module
            self.config.set_backend(backend)

        def build(self, x):
            return write(self.m.bank, self.m.other, x)

    graph = G()
    for _ in range(2):
        expected, actual = write(right.bank, right.other, x), graph(x)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(module.state_dict(), right.state_dict())


def assert_gradients_agree(loss, *shape):
    """Differentiate a loss of one parameter in eager mode and in a graph by itself."""
    values = torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape).sin()
    right, parameter = values.clone().requires_grad_(), nn.Parameter(values.clone())

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.p = parameter
            self.config.set_backend("inductor")

        def build(self):
            value = loss(self.p)
            return value, torch.autograd.grad(value, self.p)[0]

    value = loss(right)
    torch.testing.assert_close(G()(), (value.detach(), torch.autograd.grad(value, right)[0]))


def test_constant_gradient_survives_index_write():
    def loss(w):
        z = w.clone()
        z[ROWS] = 0.0
        return z.sum()

    assert_gradients_agree(loss, 5, 4)


def test_gradient_of_masked_token_loss():
    targets = torch.tensor([0, 2, 1, 0, 3, 0])

    def loss(w):
        losses = F.cross_entropy(w, targets, reduction="none").clone()
        losses[targets == 0] = 0.0
        return losses.sum() / 3

    assert_gradients_agree(loss, 6, 4)


def test_gradient_that_several_losses_share_survives_writes():
    def loss(w):
        masked, rows, plain = w * 2, w * 3, w.sin()
        masked[w.detach() > 0] = 0.0
        rows[ROWS] = -9e9
        return masked.sum() + rows[torch.tensor([0, 2])].sum() + plain.sum() + w.softmax(1)[ROWS].sum()

    assert_gradients_agree(loss, 5, 4)


def test_expanded_constant_survives_index_write():
    def loss(w):
        ones = torch.ones(1).expand(5, 4)
        return (ones.index_put((ROWS,), w[ROWS]) * w).sum() + (ones * w).sum()

    assert_gradients_agree(loss, 5, 4)


def test_loop_does_not_read_rows_that_it_writes():
    def push(bank, other, x):
        bank[ROWS] = x[:2]
        bank.add_(bank.roll(1, 0))
        bank.mul_(bank.flip(1))
        other[ROWS] = 0.0
        other.sub_(other.mean(0))
        return x.sum()

    assert_buffers_agree(push)


@pytest.mark.parametrize(
    "copy",
    [torch.clone, lambda t: torch.cat([t]), lambda t: F.pad(t, (0, 0)), lambda t: t.t().clone().t()],
    ids=["clone", "cat", "pad", "view"],
)
def test_swapped_buffers(copy):
    def swap(bank, other, x):
        old = copy(bank)
        bank.copy_(other)
        other.copy_(old)
        return x.sum()

    assert_buffers_agree(swap)


def test_index_computed_from_the_written_tensor():
    def scatter(bank, other, x):
        bank[(bank[:, 0] * 100).long() % 4] = x
        return x.sum()

    assert_buffers_agree(scatter)


def test_swapped_elements_of_a_part():
    def swap(bank, other, x):
        part = bank.view(-1)[1:].split(128)[0]
        part[0], part[-1] = part[-1].clone(), part[0].clone()
        return x.sum()

    assert_buffers_agree(swap, size=16)


LOSSES_WHOSE_GRADIENTS_ARE_PARAMETERS = {
    "dot": lambda a, b: torch.dot(a, b),
    "product": lambda a, b: (a * b).sum(),
    "equal gradients": lambda a, b: (a + b).sum(),
    "matmul": lambda a, b: (a[None] @ b[:, None]).sum(),
}


def test_the_update_reads_gradients_that_it_has_not_written():
    """Each gradient is another parameter, or one of two equal tensors; clipping writes gradients in place."""
    starts = {
        f"{name}{i}": torch.arange(3.0) + 1 + 4 * i
        for name in LOSSES_WHOSE_GRADIENTS_ARE_PARAMETERS
        for i in (0, 1)
    }

    def trained(backend):
        leaves = nn.ParameterDict({name: nn.Parameter(start.clone()) for name, start in starts.items()})

        class Step(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.leaves = leaves
                clip = {"clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}
                self.add_optimizer(flow.optim.SGD([{"params": list(leaves.parameters()), **clip}], lr=0.1))
                self.config.set_backend(backend)

            def build(self):
                losses = [
                    f(leaves[f"{n}0"], leaves[f"{n}1"])
                    for n, f in LOSSES_WHOSE_GRADIENTS_ARE_PARAMETERS.items()
                ]
                sum(losses).backward()
                return losses

        step = Step()
        step(), step()
        return leaves.state_dict()

    expected, actual = trained("aten"), trained("inductor")
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, msg=lambda m, name=name: f"{name}: {m}")


def flush(bank, other, x):
    bank[ROWS] = x[:2]
    old = bank.clone()
    bank.zero_()
    return old


def flush_column(bank, other, x):
    bank[ROWS] = x[:2]
    old = bank.t()[1].clone()
    bank.copy_(other)
    return old


def swap_after_write(bank, other, x):
    bank[ROWS] = x[:2]
    old = bank.clone()
    bank.copy_(other)
    other.copy_(old)
    return bank.sum()


def remember_first_of_two_writes(bank, other, x):
    bank.index_add_(0, ROWS, x[:2])
    old = bank.clone()
    bank[ROWS - 1] = 0.5
    return old


def flush_after_two_writes(bank, other, x):
    bank[ROWS] = x[:2]
    bank.index_add_(0, ROWS - 1, x[2:])
    old = bank.clone()
    bank.copy_(x.t())
    return old


def transpose_after_write(bank, other, x):
    bank[ROWS] = x[:2]
    bank.copy_(bank.t().clone())
    return x.sum()


def store_a_part(bank, other, x):
    bank[ROWS] = x[:2]
    row = bank[1].clone()
    bank.mul_(0)
    other[2].copy_(row)
    return row.sum()


def test_value_before_the_last_write():
    """Read what one write left in a buffer after another write, with a pair of buffers for each case."""
    cases = (
        flush,
        flush_column,
        swap_after_write,
        remember_first_of_two_writes,
        flush_after_two_writes,
        transpose_after_write,
        store_a_part,
    )
    right, written = (nn.ModuleList(Bank() for _ in cases) for _ in range(2))
    x = torch.arange(16.0).view(4, 4).cos()

    def write(banks, x):
        return [case(m.bank, m.other, x) for case, m in zip(cases, banks)]

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.banks = written
            self.config.set_backend("inductor")
            self.config.verify("never")

        def build(self, x):
            return write(self.banks, x)

    expected, actual = write(right, x), G()(x)
    for case, *values in zip(cases, expected, actual, right, written):
        for e, a in zip(values[::2], values[1::2]):
            e, a = (v if isinstance(v, torch.Tensor) else v.state_dict() for v in (e, a))
            torch.testing.assert_close(a, e, msg=lambda m, case=case: f"{case.__name__}: {m}")


WRITES = {
    "rows": lambda q, r, x: q.__setitem__(ROWS, x[:2]),
    "mask": lambda q, r, x: q.__setitem__(q > 0.5, 0.25),
    "slice": lambda q, r, x: q.__setitem__(slice(1, None), q[:-1].clone()),
    "roll": lambda q, r, x: q.add_(q.roll(1, 0)),
    "flip": lambda q, r, x: q.copy_(q.flip(0)),
    "transposed": lambda q, r, x: q.copy_((q * 0.5).t()),
    "first row": lambda q, r, x: q.copy_(q[0] * 0.5),
    "mean": lambda q, r, x: q.sub_(q.mean(0)),
    "column": lambda q, r, x: q[:, 1].copy_(r[0]),
    "own rows": lambda q, r, x: q.index_put_((ROWS,), q[ROWS - 1] + 1),
    "other": lambda q, r, x: q.copy_(r.t()),
    "index_add": lambda q, r, x: q.index_add_(0, ROWS, r[:2]),
}


def test_sampled_sequences_of_writes():
    """Write 16 pairs of buffers in sampled orders, in one program. The seed is fixed."""
    sample = random.Random(0)
    sequences = [[(sample.choice(list(WRITES)), sample.random() < 0.5) for _ in range(4)] for _ in range(16)]
    right, written = (nn.ModuleList(Bank() for _ in sequences) for _ in range(2))
    x = torch.arange(16.0).view(4, 4).cos()

    def write(banks, x):
        for m, sequence in zip(banks, sequences):
            for name, is_swapped in sequence:
                pair = (m.other, m.bank) if is_swapped else (m.bank, m.other)
                WRITES[name](*pair, x)
        return x.sum()

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.banks = written
            self.config.set_backend("inductor")

        def build(self, x):
            return write(self.banks, x)

    write(right, x)
    G()(x)
    for sequence, expected, actual in zip(sequences, right, written):
        torch.testing.assert_close(
            actual.state_dict(), expected.state_dict(), msg=lambda m: f"{sequence}: {m}"
        )


def test_a_row_of_a_copy_is_not_written_in_the_original():
    """The rows have gaps, so torch's own test of overlap takes a row for apart from the matrix."""
    x, i = torch.randn(7, 14)[:, :7], torch.tensor([1, 5])
    before = x.clone()

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

        def build(self, x):
            y = torch.empty_strided(x.shape, x.stride()).copy_(x)
            y[6:7].index_fill_(1, i, -0.78)
            return y, y + 1

    graph = G()
    y, _ = graph(x)
    assert torch.equal(x, before)
    assert torch.equal(y[6], before[6].index_fill(0, i, -0.78))
    assert graph.is_compiled
