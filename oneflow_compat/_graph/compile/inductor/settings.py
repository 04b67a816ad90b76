"""The settings of torch's inductor for a region, with their reasons."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from ...program.random_functions import samples
from .availability import where_available
from .matmul import blocks_are_faster, product_pass
from .shims import needs_python

if TYPE_CHECKING:
    from ...program.tensor_info import TensorInfo

_SMALL_REGION = 150  # operators
_CALLS = "void inductor_entry_impl("  # the function that inductor writes to call the kernels
# no warnings, which nobody reads; no line numbers for debuggers; the shorter standard library of C++17, which
# inductor itself used until torch 2.11
_QUICK_FLAGS = ("-w", "-g0", "-std=c++17")
# GCC collects its garbage only above 1 GB; compiling ResNet-50 then takes 70 MB more
_RARE_COLLECTION = ("--param=ggc-min-heapsize=1000000",)
_NOT_OPTIMIZED = """
#if defined(__clang__)
__attribute__((optnone))
#elif defined(__GNUC__)
__attribute__((optimize("O0")))
#endif
"""


def settings(
    graph: torch.fx.Graph, infos: list[TensorInfo], options: dict[str, Any] | tuple[Any, ...] = ()
) -> dict[str, Any]:
    """Return {inductor option: value} for a region with these inputs. The user's own `options` take
    precedence.
    """
    results = (n.meta["tensor"] for n in graph.nodes if n.meta.get("tensor") is not None)
    devices = {info.device.type for info in (*infos, *results)}
    chosen: dict[str, Any] = {
        "layout_optimization": channels_last(graph),
        "size_asserts": False,
        "alignment_asserts": False,
        "fallback_random": True,  # ATen's samplers, whose numbers are eager's
        # casts to half types round; inductor leaves them out: then the cosine of a large number is another
        "emulate_precision_casts": True,
    }
    if sum(samples(n.target) for n in graph.nodes) > 1:
        # the samplers share a generator: in another order, they give other numbers
        chosen |= {"reorder_for_peak_memory": False, "reorder_for_locality": False}
    if "cpu" in devices:
        chosen["post_grad_custom_post_pass"] = product_pass(
            blocks_are_faster(), chosen["layout_optimization"]
        )
    if devices <= {"cpu"} and sys.platform == "linux" and not needs_python(graph):
        # one C++ file for the whole region: less Python in each call, and torch's headers are read once.
        # A precompiled header of them takes longer to make than it saves a single file.
        chosen |= {
            "cpp_wrapper": True,
            "cpp_cache_precompile_headers": False,
            "cpp_wrapper_build_separate": False,
        }
    if "cpu" in devices:
        chosen["cpp.simdlen"] = vector_bits(chosen)
    return {**chosen, **dict(options)}


def samples_as_eager(options: dict[str, Any] | tuple[Any, ...]) -> bool:
    """Whether a region with these options of the user's samples the random numbers of eager mode."""
    return bool(dict(options).get("fallback_random", True))


@contextlib.contextmanager
def quick_compiler(graph: torch.fx.Graph) -> Iterator[None]:
    """Let the C++ compiler leave out what costs it time and gains nothing.

    It does not optimize the function that calls the kernels. This function is long and straight, so
    optimizing it takes most of the compiler's time and gains nothing measurable. Small regions are optimized
    in full: there a few nanoseconds per call of a kernel count. Code that does not compile in this way is
    compiled in inductor's way.
    """
    from torch._inductor.codecache import CppWrapperCodeCache
    from torch._inductor.cpp_builder import is_gcc
    from torch._inductor.exc import CppCompileError

    is_small = sum(n.op == "call_function" for n in graph.nodes) <= _SMALL_REGION
    load = CppWrapperCodeCache.load_async
    flags = (*_QUICK_FLAGS, *_RARE_COLLECTION) if is_gcc() else _QUICK_FLAGS

    def load_quickly(main_code: str, *args: Any, **kwargs: Any) -> Any:
        quick_code = main_code if is_small else main_code.replace(_CALLS, _NOT_OPTIMIZED + _CALLS, 1)
        all_flags = (*kwargs.get("extra_flags", ()), *flags)
        library = load(quick_code, *args, **{**kwargs, "extra_flags": all_flags})

        def loaded() -> Any:
            try:
                return library()
            except CppCompileError:
                return load(main_code, *args, **kwargs)()

        return loaded

    with mock.patch.object(CppWrapperCodeCache, "load_async", load_quickly):
        yield


def vector_bits(chosen: dict[str, Any]) -> int:
    """Return the vector length of the instruction set that inductor selects. Naming it makes it part of
    inductor's cache key.

    Without it, kernels written for one vector length are compiled for another if machines share the cache or
    ATEN_CPU_CAPABILITY changes. The results are then wrong, with torch.compile as well (2.13).
    """
    from torch._inductor import config
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    with (
        where_available(flags_checked_by_preprocessor),
        config.patch({k: v for k, v in chosen.items() if k.startswith("cpp.")}),
    ):
        return pick_vec_isa().bit_width()


def channels_last(graph: torch.fx.Graph) -> bool:
    """Whether inductor may move convolutions to channels last.

    On the CPU that reorders the weights in each training step. Measured: it pays if many convolutions are
    depthwise (MobileNetV2), and costs time otherwise (ResNet-18).
    """
    convolutions = [n for n in graph.nodes if n.target is torch.ops.aten.convolution.default]
    if any(n.args[1].meta["tensor"].device.type != "cpu" for n in convolutions):
        return True
    grouped: int = sum(n.args[8] > 1 for n in convolutions)
    return 4 * grouped >= max(1, len(convolutions))


@contextlib.contextmanager
def flags_checked_by_preprocessor() -> Iterator[None]:
    """Test the flags of an x86 instruction set with the C++ preprocessor.

    Inductor (torch 2.13) compiles and loads a file for each instruction set, even if `cpp.vec_isa_ok` says
    that the flags work: 1.4 seconds of CPU time. Whether the processor has them is known without a test.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.cpu_vec_isa import VecISA

    if platform.machine() not in ("x86_64", "AMD64"):
        yield
        return
    takes_flags: Any = lambda self, code: _compiler_takes(get_cpp_compiler(), self._arch_flags)
    with mock.patch.object(VecISA, "check_build", takes_flags):
        yield


@functools.cache
def _compiler_takes(compiler: str, flags: str) -> bool:
    command = [compiler, *flags.split(), "-E", "-x", "c++", os.devnull]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False
