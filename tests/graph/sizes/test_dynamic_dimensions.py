"""One program for many argument sizes: bitwise equal to eager at every size, guards, and operators that need
a program for each size.
"""

import copy
import gc
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from dynamic_cases import CASES, SIZES, squared
from dynamic_graphs import Inference, Training, adamw
from torch import nn

import oneflow as flow


def train_both(module, batches, loss, make=adamw, **config):
    """Train a module and its copy, in eager mode and by a graph; returns (eager's values, the graph's, the
    graph).
    """
    other = copy.deepcopy(module)
    optimizer, expected, got = make(module.parameters()), [], []
    graph = Training(other, loss, make(other.parameters()), **config)
    for seed, batch in enumerate(batches):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        value = loss(module, *batch)
        value.backward()
        optimizer.step()
        torch.manual_seed(seed)
        got.append(graph(*batch).detach())
        expected.append(value.detach())
    return [*expected, *module.state_dict().values()], [*got, *other.state_dict().values()], graph


def equal(expected, got):
    return all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_one_program_has_eager_bits_at_every_size(name):
    case = CASES[name]
    torch.manual_seed(0)
    batches = [case.batch(n) for n in (*case.sizes, *case.sizes)]
    expected, got, graph = train_both(case.module(), batches, case.loss)
    assert equal(expected, got)
    assert len(graph._engine.programs) <= case.programs, "\n".join(
        map(str, graph._engine.assumptions.explanations)
    )


def test_the_smaller_last_batch_costs_one_program():
    sizes = [32, 32, 32, 20] * 3
    counts = []
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    graph = Training(module, lambda m, x, y: F.cross_entropy(m(x), y), adamw(module.parameters()))
    for n in sizes:
        graph(torch.randn(n, 8), torch.randint(0, 3, (n,)))
        counts.append(len(graph._engine.programs))
    assert counts == [1, 1, 1, 2] + [2] * 8


def test_sizes_of_zero_and_one_have_programs_of_their_own():
    graph = Inference(lambda x: x * 2 + x.sum(0, keepdim=True))
    for n in (4, 7, 5, 1, 0, 9, 1, 0):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), x * 2 + x.sum(0, keepdim=True))
        assert (graph.program.dimensions is not None) == (n in (7, 5, 9))
    assert len(graph._engine.programs) == 4


def test_a_branch_on_a_size_makes_a_program_for_each_outcome():
    function = lambda x: x * 2 if x.shape[0] > 20 else x - 1
    graph = Inference(function)
    for n in (4, 7, 25, 30, 5, 21, 20):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), function(x))
    assert len(graph._engine.programs) == 3
    assert sorted(p.dimensions is None for p in graph._engine.programs) == [False, False, True]


def by_steps(x):
    return sum(x[t] for t in range(x.shape[0]))


def named_by_the_size(x):
    return {f"rows{x.shape[0]}": x * 2}[f"rows{len(x)}"] * len(f"{x.shape[0]}")


def kept_by_size(x, cache={}):
    return x + cache.setdefault(str(x.shape[0]), len(str(x.shape[0])))


def scaled_if_an_int(x):
    return x * 2 if isinstance(x.shape[0], int) else x * 3


def scaled_if_of_type_int(x):
    return x * 2 if type(x.shape[0]) is int else x * 3


@pytest.mark.parametrize(
    "function",
    [
        by_steps,
        named_by_the_size,
        kept_by_size,
        scaled_if_an_int,
        scaled_if_of_type_int,
        lambda x: x * int(x.shape[0]),
    ],
)
def test_a_size_that_python_needs_has_a_program_for_each_value(function):
    graph = Inference(function)
    for n in (4, 7, 12, 7, 5, 12):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), function(x)), n
    # build() adds to the cache of kept_by_size, whose contents are guarded: one more program
    assert len(graph._engine.programs) == (5 if function is kept_by_size else 4)
    [told] = [
        e for e in graph._engine.assumptions.explanations if e.subject == "dimension 0 of the argument 'arg0'"
    ]
    assert told.location[2] == function.__name__


def halved_until_short(x):
    while x.shape[0] > 2:
        x = x[: x.shape[0] // 2] * 2
    return x


def padded_to_8(x):
    return F.pad(x, (0, 0, 0, -x.shape[0] % 8)).view(-1, 8, 3).sum(1)


# programs for 4, 7, 5, 9 and 12 rows: the first one is static
QUESTIONS = {
    "a known symbol": (lambda x: x * 2 if isinstance(x.shape[0], (int, torch.SymInt)) else x * 3, 2),
    "square root as a power": (lambda x: x * (1 / x.shape[0] ** 0.5), 2),
    "quotient": (lambda x: x * (x.shape[0] / 7) + x.numel() / len(x), 2),
    "floor and ceiling": (lambda x: x[: math.ceil(x.shape[0] / 2)] * math.floor(x.shape[0] * 0.5), 2),
    "least and greatest": (lambda x: x[: min(x.shape[0], 6)] * max(x.shape[0], 3), 2),
    "negative bounds": (lambda x: x[-3:] + x[x.shape[0] - 3 :], 2),
    "slices that end early": (lambda x: x[2:6], 3),
    "a chain of comparisons": (lambda x: x * 2 if 5 < x.shape[0] < 10 else x - 1, 4),
    "equal dimensions": (lambda x: x @ x.t() if x.shape[0] != x.shape[1] else x, 2),
    "divisibility": (lambda x: x.view(-1, 2) if x.numel() % 2 == 0 else x, 3),
    "padding": (padded_to_8, 2),
    "a loop of halving": (halved_until_short, 5),
    "logarithm": (lambda x: x * math.log(x.shape[0]), 5),
    "bits": (lambda x: x * (1 << x.shape[0].bit_length()), 5),
    "a set": (lambda x: x * (x.shape[0] in {4, 7}), 5),
    "a table": (lambda x: x * (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9)[x.shape[0]], 5),
    "a shape that is compared": (lambda x: x * 2 if x.shape == (7, 3) else x, 3),
    "pieces": (lambda x: torch.cat([p * 2 for p in x.split(4)]), 5),
    "random numbers": (
        lambda x: F.dropout(x) + torch.rand(x.shape[0], 1) + torch.randperm(len(x))[:, None],
        2,
    ),
    "values and sizes": (lambda x: x[x[:, 0] > 0] / x.shape[0], 2),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_python_that_computes_with_sizes(name):
    function, programs = QUESTIONS[name]
    graph = Inference(function)
    for n in (4, 7, 5, 9, 12) * 2:
        x = torch.randn(n, 3)
        torch.manual_seed(n)
        expected = function(x)
        torch.manual_seed(n)
        assert torch.equal(graph(x), expected), n
    assert len(graph._engine.programs) == programs, graph.explain()


ACCIDENTS = {
    "two lengths": (
        lambda x, y: torch.cat([x, y]),
        [((4, 3), (4, 3)), ((7, 3), (7, 3)), ((5, 3), (6, 3)), ((1, 3), (9, 3))],
    ),
    "rows and columns": (
        lambda x, y: x.t() + y.sum(),
        [((4, 4), (1,)), ((7, 7), (1,)), ((5, 6), (1,)), ((2, 9), (1,))],
    ),
    "a product": (
        lambda x, y: x @ y,
        [((4, 4), (4, 4)), ((7, 7), (7, 7)), ((5, 6), (6, 2)), ((1, 3), (3, 1))],
    ),
    "broadcasting": (
        lambda x, y: x * y,
        [((4, 3), (4, 3)), ((7, 3), (7, 3)), ((5, 3), (1, 3)), ((1, 3), (6, 3))],
    ),
    "empty": (
        lambda x, y: torch.cat([x, y]).sum(0),
        [((4, 3), (4, 3)), ((7, 3), (5, 3)), ((0, 3), (6, 3)), ((0, 3), (0, 3))],
    ),
}


@pytest.mark.parametrize("name", ACCIDENTS)
def test_sizes_that_were_equal_by_accident_may_differ_later(name):
    function, shapes = ACCIDENTS[name]
    graph = Inference(function)
    for first, second in shapes * 2:
        x, y = torch.randn(first), torch.randn(second)
        assert torch.equal(graph(x, y), function(x, y)), (first, second)


def test_a_size_that_equals_a_number_leaves_symbols_to_the_other_sizes():
    function = lambda x: x * 2 if x.shape[0] == 7 or x.shape[0] == 3 * 4 else x
    graph = Inference(function)
    for n in (4, 7, 5, 12, 9, 33, 7, 12):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), function(x))
    assert len(graph._engine.programs) == 4
    assert "the size 7 has its own program" in graph.explain()
    graph = Inference(lambda x: x * next(i for i in range(100) if i == x.shape[0]))
    for n in range(2, 20):
        assert torch.equal(graph(torch.ones(n, 3)), torch.full((n, 3), float(n)))
    assert len(graph._engine.assumptions.explanations) == 9  # no symbol is tried after that
    assert "each size has its own program" in str(graph._engine.assumptions.explanations[-1])


def test_layouts_decide_as_in_eager_mode():
    function = lambda x: x.reshape(-1) * (2 if x.is_contiguous() else 3) + x.stride(0)
    graph = Inference(function)
    for n in (4, 7, 5, 9, 6) * 2:
        for x in (
            torch.randn(n, 3),
            torch.randn(3, n).t(),
            torch.randn(2 * n, 3)[::2],
            torch.randn(1, 3).expand(n, 3),
        ):
            assert torch.equal(graph(x), function(x)), (n, x.stride())
    assert len(graph._engine.programs) <= 10


def test_without_a_symbolic_capture_each_size_has_a_program_and_no_error():
    function = lambda x: x * {(3, 3): 1}.get(tuple(x.shape), 2)  # a dict hashes the sizes
    graph = Inference(function)
    for n in (4, 3, 7, 3, 4):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), function(x))
    assert len(graph._engine.programs) == 3
    assert len(graph._engine.assumptions.explanations) == 1 and "unhashable" in str(
        graph._engine.assumptions.explanations[0]
    )


def test_a_size_outside_the_guards_makes_another_program():
    function = lambda x: x.view(-1, 4).sum(1) if x.shape[0] % 4 == 0 else x.view(-1)
    graph = Inference(function)
    for n in (4, 8, 6, 12, 7, 16):
        x = torch.randn(n)
        assert torch.equal(graph(x), function(x))
    assert len(graph._engine.programs) == 3


def test_two_arguments_that_share_a_size():
    graph = Inference(lambda x, y: x + y)
    for n, m in ((4, 4), (7, 7), (5, 5), (9, 9)):
        x, y = torch.randn(n, 3), torch.randn(m, 3)
        assert torch.equal(graph(x, y), x + y)
    assert len(graph._engine.programs) == 2
    assert torch.equal(graph(torch.ones(6, 3), torch.ones(1, 3)), torch.full((6, 3), 2.0))


def test_a_call_that_fails_leaves_symbols_allowed():
    graph = Inference(lambda x, y: x + y)
    graph(torch.ones(4, 3), torch.ones(4, 3))
    with pytest.raises(RuntimeError, match="must match the size"):
        graph(torch.ones(6, 3), torch.ones(5, 3))
    for n in (7, 8, 9):
        graph(torch.ones(n, 3), torch.ones(n, 3))
    assert len(graph._engine.programs) == 2 and not graph._engine.assumptions.explanations


def test_numbers_and_flags_beside_sizes():
    function = lambda x, k, flag=False: x * k - x.mean() if flag else x.repeat_interleave(k, 0)
    graph = Inference(function)
    for n, k, flag in (
        (4, 2, False),
        (5, 2, False),
        (6, 2, False),
        (6, 3, True),
        (7, 3, True),
        (8, 3, True),
        (9, 2, False),
    ):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x, k, flag=flag), function(x, k, flag=flag))
    assert len(graph._engine.programs) == 4


def test_sizes_are_returned_and_stored_as_numbers():
    module = nn.Linear(3, 3)
    module.length = 0

    def build(x):
        module.length = x.shape[0] * 2
        return module(x), x.shape[0], [x.size()]

    graph = Inference(build)
    graph.module = module
    for n in (4, 5, 9):
        out, rows, sizes = graph(torch.randn(n, 3))
        assert (out.shape[0], rows, sizes, module.length) == (n, n, [torch.Size([n, 3])], 2 * n)
        assert type(rows) is int and type(module.length) is int
    assert len(graph._engine.programs) == 2


def test_arguments_in_dicts_and_lists():
    graph = Inference(lambda batch, scale: batch["x"] @ batch["pair"][0] * scale)
    for n in (4, 5, 9, 6):
        batch = {"x": torch.randn(2, n), "pair": [torch.randn(n, 3), 1]}
        assert torch.equal(graph(batch, scale=2.0), batch["x"] @ batch["pair"][0] * 2.0)
    assert len(graph._engine.programs) == 2


@pytest.mark.parametrize("steps", [2, 4])
def test_gradient_accumulation(steps):
    torch.manual_seed(0)
    batches = [(torch.randn(n, 8),) for n in (8, 16, 24, 12, 8, 4)]
    loss = lambda m, x: squared(m(x))
    module = nn.Linear(8, 8)
    other = copy.deepcopy(module)
    graphs = [
        Training(m, loss, adamw(m.parameters()), set_gradient_accumulation_steps=steps, dynamic=dynamic)
        for m, dynamic in ((module, False), (other, None))
    ]
    for batch in batches:
        assert torch.equal(graphs[0](*batch), graphs[1](*batch))
    assert equal(module.state_dict().values(), other.state_dict().values())
    assert len(graphs[0]._engine.programs) == 5
    assert len(graphs[1]._engine.programs) <= 3  # 4 rows in 4 steps have 1 row each


def test_mixed_precision():
    torch.manual_seed(0)
    loss = lambda m, x: squared(m(x).float())
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    other = copy.deepcopy(module)
    graphs = [
        Training(m, loss, adamw(m.parameters()), dynamic=dynamic)
        for m, dynamic in ((module, False), (other, None))
    ]
    for graph in graphs:
        graph.config.enable_amp(True, dtype=torch.bfloat16)
    for n in SIZES:
        x = torch.randn(n, 8)
        assert torch.equal(graphs[0](x), graphs[1](x))
    assert equal(module.state_dict().values(), other.state_dict().values())
    assert [len(g._engine.programs) for g in graphs] == [5, 2]


def test_many_branches_on_sizes_evict_no_program():
    function = lambda x: x * (x.shape[0] // 10 > 1) + sum(x.shape[0] > 4 * k for k in range(12))
    graph = Inference(function)
    sizes = [4 * k + 3 for k in range(14)]
    for n in sizes * 2:
        assert torch.equal(graph(torch.ones(n, 2)), function(torch.ones(n, 2)))
    programs = graph._engine.programs
    for n in sizes:
        graph(torch.ones(n, 2))
    assert len(graph._engine.programs) == len(programs) > 10


def test_explain_tells_sizes_and_lines():
    graph = Inference(by_steps)
    for n in (3, 4, 5):
        graph(torch.randn(n, 2))
    text = graph.explain()
    assert "3 programs" in text and "dimension 0 of the argument 'arg0'" in text and "for t in range" in text
    graph = Inference(lambda x: x * 2 if x.shape[0] % 4 == 0 else x)
    for n in (3, 4, 8):
        graph(torch.randn(n, 2))
    assert "% 4) == 0" in graph.explain()


def test_a_graph_that_saw_several_sizes_is_freed():
    """torch's caches keep the symbolic shapes of a capture."""

    def train():
        module = nn.Linear(4, 3)
        graph = Training(module, lambda m, x: m(x).sum(), flow.optim.SGD(module.parameters(), lr=0.1))
        for n in (3, 2, 5):
            graph(torch.randn(n, 4))
        return weakref.ref(graph), weakref.ref(module.weight)

    references = train()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_symbolic_sizes_are_no_reason_for_a_warning(recwarn):
    """sympy samples the order in which it derives facts about sizes."""
    graph = Inference(by_steps)
    for n in (3, 4, 5):
        graph(torch.randn(n, 2))
    assert [str(warning.message) for warning in recwarn] == []


def test_guard_that_fails_for_a_program_of_all_sizes_is_explained():
    factors = [2.0]

    class Scaled(flow.nn.Graph):
        def build(self, x):
            return x * factors[0]

    graph = Scaled()
    for rows in (2, 3, 4):
        graph(torch.ones(rows, 4))
    factors[0] = 3.0
    assert torch.equal(graph(torch.ones(5, 4)), torch.full((5, 4), 3.0))
    assert "factors[0]" in graph.explain() and "2.0" in graph.explain() and "3.0" in graph.explain()
