"""The logic of the CUDA kernels, tested without a GPU: csrc/cuda is compiled as C++ and run by the emulation
in cuda_on_cpu/.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE / "cuda_on_cpu"))

from translate import ext, translate

from oneflow._kernels import _ext

needs_compiler = pytest.mark.skipif(ext.compiler() is None, reason="no C++ compiler")

FAULTS = """
#include "cuda_runtime.h"
template <class T, bool synchronized> __global__ void neighbours(const T* x, T* y) {
  __shared__ T row[64];
  row[threadIdx.x] = x[threadIdx.x];
  if (synchronized) __syncthreads();
  y[threadIdx.x] = row[(threadIdx.x + 1) % 64] - row[(threadIdx.x + 63) % 64];
}
__global__ void sums(const int* x, int* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int v = x[i];
    for (int offset = 16; offset; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    y[i] = v;
  }
}
__global__ void leaves_early() { if (threadIdx.x < 40) __syncthreads(); }
__global__ void part_of_a_warp(int* y) { if (threadIdx.x % 2) *y = __shfl_xor_sync(0xffffffffu, 1, 1); }
int main(int argc, char** argv) {
  int x[64], y[64];
  for (int i = 0; i < 64; ++i) x[i] = 1 << i % 30;
  const char what = *argv[1];
  if (what == 's') neighbours<int, true><<<1, 64, 0, nullptr>>>(x, y);
  if (what == 'm') neighbours<int, false><<<1, 64, 0, nullptr>>>(x, y);
  if (what == 'w') sums<<<1, 32, 0, nullptr>>>(x, y, 64);
  if (what == 'b') leaves_early<<<1, 64, 0, nullptr>>>();
  if (what == 'p') part_of_a_warp<<<1, 32, 0, nullptr>>>(y);
  if (what == 'g') sums<<<1, 2048, 0, nullptr>>>(x, y, 64);
  if (what == 'u') sums<<<1, 2048, 0, nullptr>>>(x, y, 64), sums<<<1, 32, 0, nullptr>>>(x, y, 64);
  emulated::guard_required = what == 'd';
  if (what == 'd') sums<<<1, 32, 0, nullptr>>>(x, y, 64);
  for (int i = 0; i < 64; ++i) std::printf("%d ", y[i]);
  std::printf("\\n%s\\n", cudaGetErrorString(cudaGetLastError()));
}
"""

BESIDE_THE_CPU = """
import sys, torch, oneflow
from oneflow._kernels import _ext
assert _ext.status() == "loaded"
C, seed = oneflow._C, torch.tensor(1234567)
torch.manual_seed(0)
x, b, scores, keys = torch.randn(300, 129), torch.randn(129), torch.randn(3, 70, 70), torch.randint(-40, 40, (5000,))
out = [torch.ops.oneflow.bias_dropout(x, b, 1, 0.3, seed), *torch.ops.oneflow.masked_softmax(scores, None, 0, 1.0, -9.0, 0.4, seed)]
for n in (0, 1, 5000):
    out += C.one_embedding_unique_key_value_pair(keys[:n], (keys[:n] % 3).to(torch.uint8), 3, "e")
model, diff, m, v = [[torch.rand(s) for s in ((3, 5), (0,), (7000,))] for _ in range(4)]
C.multi_tensor_adam_update(model, diff, m, v, 0.1, 0.02, 0.9, 0.99, 0.19, 0.0199, True, 0.5, 0.03, 1e-6)
C.multi_tensor_momentum_update(model, diff, m, 0.5, 0.02, 0.1, 0.9, 0.1, True, False)
C.multi_tensor_sgd_update(model, diff, 0.5, 0.02, 0.1)
torch.save([*out, *model, *m, *v], sys.argv[1])
"""  # noqa: E501


def test_launches_become_calls():
    text = (
        "void f() { auto g = [&](auto t) { k<decltype(t), P<2>, (N > 1)><<<blocks(n * (1 + 2)), T, 0,"
        " s(x)>>>(data<int>(x), n); }; other<<<1, 2, 0, s>>>(a); }"
    )
    assert translate(text) == (
        "void f() { auto g = [&](auto t) { emulated::launch(blocks(n * (1 + 2)), T, 0, s(x),"
        " [](auto... a) { k<decltype(t), P<2>, (N > 1)>(a...); }, data<int>(x), n); }; "
        "emulated::launch(1, 2, 0, s, [](auto... a) { other(a...); }, a); }"
    )


@needs_compiler
@pytest.mark.parametrize(
    "fault, message",
    [
        ("__device__ float f(float a, float b) { return max(a, b); }", "deleted function"),  # drops NaN
        ("__device__ double f(double a, double b) { return min(a, b); }", "deleted function"),
        ("void f(void* p) { cudaMemsetAsync(p, 0, 1, nullptr); }", "unused-result|nodiscard"),
    ],
)
def test_faults_that_do_not_compile(tmp_path, fault, message):
    source = tmp_path / "fault.cpp"
    source.write_text('#include "cuda_runtime.h"\n' + fault)
    done = subprocess.run(
        [
            *ext.compiler(),
            "-std=c++20",
            "-Werror=unused-result",
            f"-I{HERE / 'cuda_on_cpu'}",
            "-fsyntax-only",
            str(source),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode and re.search(message, done.stderr)


@needs_compiler
def test_the_emulation_shows_faults(tmp_path):
    source = tmp_path / "faults.cpp"
    source.write_text(translate(FAULTS))
    subprocess.run(
        [
            *ext.compiler(),
            "-std=c++20",
            "-Wno-unknown-pragmas",
            f"-I{HERE / 'cuda_on_cpu'}",
            str(source),
            "-o",
            str(tmp_path / "faults"),
        ],
        check=True,
    )

    def run(what, order="forward"):
        done = subprocess.run(
            [str(tmp_path / "faults"), what],
            capture_output=True,
            text=True,
            env={**os.environ, "EMULATED_ORDER": order},
        )
        return done.stdout, done.stderr, done.returncode

    x = [1 << i % 30 for i in range(64)]
    neighbours = [x[(i + 1) % 64] - x[i - 1] for i in range(64)]
    for order in ("forward", "reverse"):
        assert [int(v) for v in run("s", order)[0].split("\n")[0].split()] == neighbours
        assert [int(v) for v in run("m", order)[0].split("\n")[0].split()] != neighbours
        assert [int(v) for v in run("w", order)[0].split("\n")[0].split()] == [sum(x[:32])] * 32 + [
            sum(x[32:])
        ] * 32
        for what, message in (
            ("b", "__syncthreads() that some threads"),
            ("p", "a warp shuffle that some threads"),
            ("u", "a launch after one that cudaGetLastError did not follow"),
            ("d", "a launch without a device guard"),
        ):
            assert message in run(what, order)[1] and run(what, order)[2] != 0
    assert "invalid configuration argument" in run("g")[0]


def run(library, *command, order="forward"):
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "ONEFLOW_EXT_PATH": library, "EMULATED_ORDER": order},
    )
    assert done.returncode == 0 and ("kernels launched" in done.stderr) == bool(library), (
        done.stdout[-3000:] + done.stderr[-1000:]
    )


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")
def test_the_kernels(tmp_path):
    """The operator tests, including those marked gpu, in both thread orders; and results compared with the
    CPU kernels.
    """
    subprocess.run([sys.executable, str(HERE / "cuda_on_cpu" / "translate.py")], check=True)
    library = "build/_ext_cuda_on_cpu.so"
    files = [
        str(HERE / f"test_ops_{name}.py") for name in ("gpu", "kernels", "meaning", "golden", "embedding")
    ]
    for order in ("forward", "reverse"):
        run(library, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not opcheck", *files, order=order)
    run("", "-c", BESIDE_THE_CPU, str(tmp_path / "cpu.pt"))
    run(library, "-c", BESIDE_THE_CPU, str(tmp_path / "cuda.pt"))
    for here, there in zip(torch.load(tmp_path / "cpu.pt"), torch.load(tmp_path / "cuda.pt")):
        torch.testing.assert_close(there, here)
