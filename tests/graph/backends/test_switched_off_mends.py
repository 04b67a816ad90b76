"""The comparison finds what each mend of inductor prevents, while the mend is switched off.

A few minutes, because each case is compiled several times: pytest -m slow.
"""

import contextlib
import warnings
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import oneflow as flow
from oneflow._graph.compile.inductor import (
    compiler,
    functional_graph,
    in_place_fixes,
    out_of_reach,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore"),
]
ROWS = torch.tensor([0, 3])


class State(torch.nn.Module):
    def __init__(self):
        super().__init__()
        values = torch.arange(1.0, 21.0).view(5, 4)
        self.w = torch.nn.Parameter(values.sin())
        self.register_buffer("bank", values.cos())
        self.register_buffer("other", values.sqrt())
        image = torch.arange(504.0).view(2, 4, 7, 9).sin()
        self.register_buffer("image", image.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bytes", torch.full((37,), 5, dtype=torch.int8))


def off(owner, name, substitute=contextlib.nullcontext):
    return lambda: mock.patch.object(owner, name, substitute)


def without_form(name):
    """Compile without a decomposition of this package."""

    def remaining():
        forms = table()
        return {op: f for op, f in forms.items() if getattr(getattr(f, "func", f), "__name__", None) != name}

    table = functional_graph.table
    return lambda: mock.patch.object(functional_graph, "table", remaining)


def without_rule(rule):
    return lambda: _rules_without(rule)


@contextlib.contextmanager
def _rules_without(rule):
    with mock.patch.dict(out_of_reach._RULES):
        del out_of_reach._RULES[rule]
        yield


# each step takes the state and returns what is compared
def masked_rows(m):
    z = m.w.clone()
    z[ROWS] = 0.0
    return torch.autograd.grad(z.sum(), m.w)[0]


def swapped(m):
    old = m.bank.clone()
    m.bank.copy_(m.other)
    m.other.copy_(old)
    return m.bank.sum()


def flushed(m):
    m.bank[ROWS] = m.other[:2]
    old = m.bank.clone()
    m.bank.zero_()
    return old


def written_at_computed_rows(m):
    m.bank[(m.bank[:, 0].abs() * 100).long() % 5] = m.other
    return m.bank.sum()


def swapped_ends(m):
    part = m.bank.view(-1)[1:].split(17)[0]
    part[0], part[-1] = part[-1].clone(), part[0].clone()
    return m.bank.sum()


def rolled(m):
    m.bank[ROWS] = m.other[:2]
    m.bank.add_(m.bank.roll(1, 0))
    return m.bank.sum()


def padded(m):
    image = m.image.detach().requires_grad_()
    padded = F.pad(image * 1.5, (1, 2, 0, 3), mode="replicate")
    return torch.autograd.grad((padded * padded.detach().sin()).sum(), image)[0]


def multiplied_by_one(m):
    return m.bank * torch.full((), 1.0)


def not_a_number(m):
    return (m.bank / 0).sub(m.bank / 0) * 0


def smallest(m):
    return m.bytes.amin()


def windows(m):
    x = m.bank.clone()
    x.unfold(1, 2, 3).clamp_(-0.1, 0.1)
    return x


def masked_with_itself(m):
    x = m.bank.clone()
    return x.masked_scatter_(x < 0.5, x)


def pooled(m):
    pooled = F.avg_pool2d(m.w.view(1, 1, 5, 4), 3, 2, 1, ceil_mode=True)
    return torch.autograd.grad((pooled * pooled).sum(), m.w)[0]


def any_of_bytes(m):
    return (m.bank > 0).to(torch.uint8).any()


def sampled_twice(m):
    return torch.randn_like(m.bank) - torch.randn_like(m.bank)


def sampled_unread(m):
    F.dropout(m.bank, 0.5)
    return torch.rand(3)


def sampled_in_columns(m):
    return torch.randn_like((m.bank * 2).view(1, 5, 2, 2).to(memory_format=torch.channels_last))


def view_of_a_buffer(m):
    m.bank.mul_(0.5)
    return m.bank[0]


CASES = {
    "private memory": (off(in_place_fixes, "private_memory_reused"), masked_rows),
    "old values": (off(in_place_fixes, "old_values_kept"), swapped),
    "copies between writes": (
        off(in_place_fixes, "_is_read_after_copies", lambda node, memory: False),
        flushed,
    ),
    "readers": (off(in_place_fixes, "readers_realized"), written_at_computed_rows),
    "moved values": (off(in_place_fixes, "moved_values_realized"), swapped_ends),
    "versions": (off(in_place_fixes, "versions_compared"), rolled),
    "layout of results": (off(compiler, "results_laid_out"), padded),
    "separate results": (
        off(compiler, "results_apart", lambda graph: contextlib.nullcontext()),
        multiplied_by_one,
    ),
    "product with zero": (off(compiler, "products_with_zero", lambda graph: None), not_a_number),
    "smallest of int8": (without_form("_extreme"), smallest),
    "any of uint8": (without_form("_truth"), any_of_bytes),
    "average pooling": (without_form("_avg_pool_backward"), pooled),
    "equal samplings": (
        off(functional_graph, "equal_samplings_apart", lambda graph: contextlib.nullcontext()),
        sampled_twice,
    ),
    "unread samplings": (off(compiler, "unread_samplings_kept"), sampled_unread),
    "layout of samples": (
        off(compiler, "samplers_in_captured_layout", lambda graph: None),
        sampled_in_columns,
    ),
    "windows": (without_rule(out_of_reach.writes_windows), windows),
    "written over its operand": (without_rule(out_of_reach.writes_over_operands), masked_with_itself),
}


def outcome(step, backend):
    """Return what two calls return or raise, the state after them, and the warnings."""
    module = State()

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = module
            self.config.set_backend(backend)

        def build(self):
            return step(self.m)

    graph, values = G(), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(5)
        for _ in range(2):
            try:
                values.append(graph().clone())
            except (RuntimeError, IndexError) as error:
                values.append(torch.tensor(list(str(error).encode())))
    values += [*module.state_dict().values(), torch.get_rng_state()]
    return values, [str(w.message) for w in caught if "is wrong and is not used" in str(w.message)]


@pytest.mark.parametrize("name", CASES)
def test_a_switched_off_mend_is_found(name, monkeypatch):
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "0")
    switched_off, step = CASES[name]
    with switched_off(), torch._inductor.config.patch(force_disable_caches=True):
        actual, (refusal,) = outcome(step, "inductor")
    expected, _ = outcome(step, "aten")
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=0, atol=0, equal_nan=True)
    assert f"in {step.__name__}" in refusal and "aten." in refusal, refusal
