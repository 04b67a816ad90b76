"""A C++ and CUDA extension of torch against torch's own operator: `python -m pytest test_extension.py`."""

import types

import torch as reference
from torch.utils.cpp_extension import load_inline

from oneflow_autotest import bind

CPP = """
#include <torch/extension.h>
torch::Tensor square_cuda(const torch::Tensor& x);
torch::Tensor square(const torch::Tensor& x) {
#ifdef WITH_CUDA
  if (x.is_cuda()) return square_cuda(x);
#endif
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "square", [&] {
    auto* source = in.const_data_ptr<scalar_t>();
    auto* target = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < in.numel(); ++i) target[i] = source[i] * source[i];
  });
  return out;
}
"""
CUDA = """
#include <torch/extension.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
template <typename T>
__global__ void kernel(const T* source, T* target, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) target[i] = source[i] * source[i];
}
torch::Tensor square_cuda(const torch::Tensor& x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  if (in.numel() == 0) return out;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "square", [&] {
    kernel<<<(in.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        in.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(), in.numel());
  });
  return out;
}
"""
HAS_CUDA = reference.cuda.is_available()
extension = load_inline(
    "square_extension",
    CPP,
    cuda_sources=CUDA if HAS_CUDA else None,
    functions=["square"],
    extra_cflags=["-DWITH_CUDA"] if HAS_CUDA else [],
)


class Square(reference.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return extension.square(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


mylib = types.SimpleNamespace(
    __name__="mylib", Tensor=reference.Tensor, tensor=reference.tensor, square=Square.apply
)
api = bind(reference, mylib, names=("torch", "mylib"), level="other implementation")
torch, autotest, random_tensor = api.torch, api.autotest, api.random_tensor


@autotest(n=50, check_graph=False)
def test_square(test_case):
    x = random_tensor(special=True).to(api.random_device())
    return torch.square(x)
