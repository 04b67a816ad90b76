"""oneflow.sysconfig: how this build was made, and flags for C++ extensions (torch's)."""

from __future__ import annotations

import importlib.util
import os

import torch


def get_include() -> str:
    """Header directory of torch, for extensions that use tensors."""
    from torch.utils.cpp_extension import include_paths

    return include_paths()[0]


def get_lib() -> str:
    """Directory of torch's shared libraries."""
    return os.path.join(os.path.dirname(torch.__file__), "lib")


def get_compile_flags() -> list[str]:
    """Compiler flags for an extension."""
    from torch.utils.cpp_extension import include_paths

    return [f"-I{p}" for p in include_paths()] + [
        "-std=c++17",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]


def get_link_flags() -> list[str]:
    """Linker flags for an extension."""
    return [f"-L{get_lib()}", f"-Wl,-rpath,{get_lib()}", "-ltorch", "-ltorch_cpu", "-lc10"]


def get_liboneflow_link_flags() -> list[str]:
    """Linker flags for a C++ program; the library behind this package is libtorch."""
    return get_link_flags()


def with_cuda() -> bool:
    """Return True if torch is built with CUDA."""
    return torch.version.cuda is not None


def get_cuda_version() -> int:
    """CUDA version of the build as OneFlow writes it (11020 for 11.2), 0 without CUDA."""
    if torch.version.cuda is None:
        return 0
    major, minor = torch.version.cuda.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def cmake_build_type() -> str:
    return "Debug" if torch.version.debug else "Release"


def has_rpc_backend_grpc() -> bool:
    """False: OneFlow's gRPC control plane does not exist here; torch.distributed's store takes its place."""
    return False


def has_rpc_backend_local() -> bool:
    return True


def with_xla() -> bool:
    """Return True if torch_xla is installed."""
    return importlib.util.find_spec("torch_xla") is not None


def with_rdma() -> bool:
    return False


def with_enterprise() -> bool:
    """False: this is no build of OneFlow's enterprise edition."""
    return False


def with_mlir() -> bool:
    """False: nn.Graph's compiler is torch.fx with torch's back ends, not MLIR."""
    return False


def with_mlir_cuda_codegen() -> bool:
    return False
