"""Indices out of bounds in compiled programs raise IndexError, whatever number of threads runs the loop."""

import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from graph_cases import graph_of
from time_limits import seconds

from oneflow._graph.compile.inductor.bounds_checks import throwing_after_loops

KERNEL = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const int64_t* in_ptr0)
{
    #pragma omp parallel
    {
        {
            auto tmp5 = in_ptr0[0];
            TORCH_CHECK((0 <= tmp7) & (tmp7 < 1000L), "index out of bounds: 0 <= tmp7 < 1000L") /* otherwise tmp5 = decltype(tmp5)(0); */;
            (tmp8 ? 0 : (throw std::runtime_error("not finite"), 0));
        }
    }
}
"""

# The first program of each process is compiled for two threads, which a test cannot ask of its own process.
SCRIPT = """
import torch
import oneflow as flow

torch.set_num_threads(2)

class Selected(flow.nn.Graph):
    def build(self, x, i):
        return {expression}

graph = Selected()
graph.config.set_backend("inductor")
x, index = torch.randn(1000, 64), torch.randint(0, 1000, (20000,))
expected = graph(x, index)
for wrong in (10**6, -5000):
    bad = index.clone()
    bad[5] = wrong
    for error in (IndexError, RuntimeError):
        try:
            graph(x, bad)
        except error as raised:
            print(raised)
assert torch.equal(graph(x, index), expected)
"""

SELECTIONS = [
    "x[i] * 2",
    pytest.param("torch.zeros(1000, 64).index_add(0, i, torch.ones(20000, 64))", marks=pytest.mark.slow),
    pytest.param("x[:, 0][i] + x[:, 1][i - 1]", marks=pytest.mark.slow),
    pytest.param(
        "torch.nn.functional.cross_entropy(x[:1, :1].expand(20000, 1000), i)", marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize("expression", SELECTIONS)
def test_an_index_out_of_bounds_does_not_end_the_process(expression):
    script = textwrap.dedent(SCRIPT.format(expression=expression))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=seconds(300))
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 4  # both base classes catch each of two wrong indices
    for line in lines:
        assert line.startswith("graph Selected_0: index out of bounds for a dimension of size 1000."), line
        assert 'set_backend("aten")' in line


@pytest.mark.compiler
def test_columns_below_a_padded_row():
    x, columns = torch.randn(4, 16), torch.arange(16).flip(0)
    graph = graph_of(lambda x, i: F.pad(x[:, i], (0, 0, 1, 0)))
    graph.config.set_backend("inductor")
    assert torch.equal(graph(x, columns), F.pad(x[:, columns], (0, 0, 1, 0)))


def test_a_kernel_throws_after_its_loops():
    kernel = throwing_after_loops(KERNEL)
    in_loop, after_loop = kernel.split("throw std::runtime_error(message)")
    assert "throw" not in in_loop and "TORCH_CHECK" not in kernel
    assert '"index out of bounds for a dimension of size 1000"; tmp5 = decltype(tmp5)(0);' in in_loop
    assert '"not finite"' in in_loop
    assert after_loop.strip() == ";\n}"


def test_a_kernel_without_tests_and_one_of_an_empty_dimension_stay_as_they_are():
    no_index_is_valid = KERNEL.replace("1000L", "0L").replace("(throw", "(keep")
    for kernel in ("void kernel()\n{\n}\n", no_index_is_valid.split("TORCH_CHECK")[0]):
        assert throwing_after_loops(kernel) == kernel
    assert "TORCH_CHECK" in throwing_after_loops(no_index_is_valid)


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize("message", [(), ("too large",)])
def test_an_assertion_of_build_runs_in_every_call(backend, message):
    def build(x, i):
        torch._assert_async((i < 1000).all(), *message)
        return x * 2

    graph, small = graph_of(build), torch.zeros(3, dtype=torch.int64)
    graph.config.set_backend(backend)
    graph(torch.ones(2), small)
    with pytest.raises(RuntimeError, match=message[0] if message else "single nonzero value"):
        graph(torch.ones(2), small + 1000)


def test_the_error_of_a_single_operator_stays_its_own():
    graph = graph_of(lambda table, i: F.embedding(i, table))
    with pytest.raises(IndexError, match="index out of range in self"):
        graph(torch.ones(3, 2), torch.tensor([7]))


CHECKED_BY_KERNELS = {
    "index_select": lambda x, i: x.index_select(0, i) * 2,
    "index_add": lambda x, i: x.index_add(0, i, x[:3]),
    "index_copy": lambda x, i: (x + 1).index_copy_(0, i, x[:3]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED_BY_KERNELS)
def test_an_operator_that_takes_no_negative_index_raises(name):
    graph = graph_of(CHECKED_BY_KERNELS[name])
    graph.config.set_backend("inductor")
    x, index = torch.arange(24.0).view(6, 4), torch.tensor([0, 2, 5])
    assert torch.equal(graph(x, index), CHECKED_BY_KERNELS[name](x, index))
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        graph(x, torch.tensor([0, 2, -1]))


@pytest.mark.slow
def test_a_probability_out_of_range_raises():
    graph = graph_of(lambda x, y: F.binary_cross_entropy(x, y))
    graph.config.set_backend("inductor")
    p = torch.full((4,), 0.25)
    torch.testing.assert_close(graph(p, p), F.binary_cross_entropy(p, p))
    for wrong, name in (((p + 1, p), "input"), ((p, p - 1), "target"), ((p / 0 * 0, p), "input")):
        with pytest.raises(RuntimeError, match=f"all elements of {name} should be between 0 and 1"):
            graph(*wrong)


OUTSIDE = {
    "argument": lambda x: x.as_strided((8,), (1,), 0) * 2,
    "part": lambda x: x[1:].as_strided((7,), (1,)) * 2,
    "result": lambda x: (x + 1).as_strided((20,), (1,)) * 2,
    "written": lambda x: (x + 1).as_strided((6,), (2,)).fill_(7.0) * 1,
    "scatter": lambda x: torch.as_strided_scatter(x, torch.ones(12), (12,), (1,)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_as_strided_outside_the_memory_raises(name):
    graph = graph_of(OUTSIDE[name])
    graph.config.set_backend("inductor")
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        graph(torch.arange(7.0))


def test_as_strided_of_a_part_may_leave_the_part():
    graph = graph_of(lambda x: x.as_strided((8,), (1,)) * 2)
    graph.config.set_backend("inductor")
    x = torch.arange(20.0)
    assert torch.equal(graph(x[4:8]), x[4:12] * 2)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        graph(x[14:18])
