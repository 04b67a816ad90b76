"""Build flags."""

from ..sysconfig import get_cuda_version as cuda_version, with_cuda, with_mlir, with_rdma, cmake_build_type
