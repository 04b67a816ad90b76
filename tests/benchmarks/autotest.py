"""Cases per second of the dual-object harness, with and without the graph check.

    python tests/benchmarks/autotest.py [cases per test] [--write]

--write writes the table of docs/autotest.md, beside the figures that OneFlow had.
The file imports only OneFlow's names, so real OneFlow 0.9.0 with its own harness (it needs a torch
beside it) runs it too, for comparison: set ONEFLOW_TEST_CPU_ONLY=1 and OMP_NUM_THREADS=1 on both.
"""

import pathlib
import re
import sys
import time

import oneflow as flow
import oneflow.unittest
from oneflow.test_utils.automated_test_util import *

N = int(next((a for a in sys.argv[1:] if a.isdigit()), 100))
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "autotest.md"
TABLE = re.compile(r"(?<=<!-- tests/benchmarks/autotest.py -->\n).*?(?=\n<!-- end -->)", re.S)
OF_ONEFLOW = {  # cases per second of OneFlow 0.9.0 with its own harness: eager, with graph
    "relu": (81, 27),
    "matmul_add": (77, 15),
    "linear": (46, 10),
    "conv_relu": (49, 10),
    "slice_sum": (102, 26),
}


def relu(test_case):
    return torch.relu(random_tensor(ndim=3).to("cpu"))


def matmul_add(test_case):
    k = random(1, 6).to(int)
    return (
        torch.matmul(
            random_tensor(ndim=2, dim0=random(1, 6), dim1=k), random_tensor(ndim=2, dim0=k, dim1=random(1, 6))
        )
        + 1
    )


def linear(test_case):
    m = torch.nn.Linear(in_features=4, out_features=random(1, 6))
    m.train(random())
    return m(random_tensor(ndim=2, dim1=4))


def conv_relu(test_case):
    m = torch.nn.Conv2d(in_channels=3, out_channels=random(1, 5), kernel_size=random(1, 4))
    return torch.nn.functional.relu(m(random_tensor(ndim=4, dim1=3, dim2=random(5, 9), dim3=random(5, 9))))


def slice_sum(test_case):
    return random_tensor(ndim=4, dim0=4)[1:3].sum(dim=random(0, 4).to(int))


def rate(f, graph):
    case = flow.unittest.TestCase("run")
    autotest(n=3, check_graph=graph, rtol=1e-3, atol=1e-3)(f)(case)  # imports, first graph
    start = time.process_time()
    autotest(n=N, check_graph=graph, rtol=1e-3, atol=1e-3)(f)(case)
    return N / (time.process_time() - start)


def main():
    print(f"{'':<12} {'eager':>16} {'eager + graph':>16}   cases per second of CPU time, {N} cases each")
    rows = ["| program | eager: here | OneFlow | with graph: here | OneFlow |", "|---|---|---|---|---|"]
    for f in (relu, matmul_add, linear, conv_relu, slice_sum):
        eager, graph = rate(f, False), rate(f, True)
        print(f"{f.__name__:<12} {eager:>16.0f} {graph:>16.0f}", flush=True)
        theirs = OF_ONEFLOW[f.__name__]
        rows.append(f"| {f.__name__} | {eager:.0f} | {theirs[0]} | {graph:.0f} | {theirs[1]} |")
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(TABLE.sub(lambda _: "\n".join(rows), text), encoding="utf-8")


if __name__ == "__main__":
    main()
