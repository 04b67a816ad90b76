"""flow.sysconfig: how the package was built."""

from __future__ import annotations


def get_compile_flags() -> list:
    """Flags to compile an extension against torch."""
    from torch.utils.cpp_extension import include_paths

    return [f"-I{p}" for p in include_paths()] + ["-std=c++17"]


def get_include() -> str:
    from torch.utils.cpp_extension import include_paths

    return include_paths()[0]


def get_lib() -> str:
    from torch.utils.cpp_extension import library_paths

    return library_paths()[0]


def get_link_flags() -> list:
    return [f"-L{get_lib()}", "-ltorch", "-ltorch_cpu", "-lc10"]


def get_cuda_version() -> int:
    """12040 for CUDA 12.4; 0 without CUDA."""
    import torch

    if torch.version.cuda is None:
        return 0
    major, minor = torch.version.cuda.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def with_cuda() -> bool:
    import torch

    return torch.version.cuda is not None


def with_xla() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch_xla") is not None


def has_rpc_backend_grpc() -> bool:
    return False


def has_rpc_backend_local() -> bool:
    return True
