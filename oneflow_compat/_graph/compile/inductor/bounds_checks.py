"""Indices out of bounds in compiled loops: an error instead of the end of the process.

Inductor's C++ kernels test each index and throw inside the loop (2.11 to 2.14, torch.compile too). If threads
share the loop, C++ ends the process, because no exception may leave a parallel region of OpenMP. Here the
loop notes the failed test, goes on with the index 0, and the kernel throws after the loop.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from ...._upstream.versions import torch_is_before
from ..call_wrapper import OUT_OF_BOUNDS

if TYPE_CHECKING:
    import sympy

_INDEX_TEST = re.compile(
    rf'(?:AOTI_)?TORCH_CHECK\((?P<condition>.*), "{OUT_OF_BOUNDS}: (?P<bounds>.*)"\)'
    r" /\* otherwise (?P<reset>.*) \*/;"
)
_ASSERTION = re.compile(r'\((?P<condition>.*) \? 0 : \(throw std::runtime_error\((?P<message>".*")\), 0\)\);')
_CONSTANT_SIZE = re.compile(r"< ?(\d+)L?$")
_NOTE = "oneflow_failed_test"


@contextlib.contextmanager
def tests_noted() -> Iterator[None]:
    """Let kernels throw after their loops if a test in a loop fails."""
    from torch._inductor.codegen.cpp import CppKernel, KernelGroup

    check_bounds, codegen_group = CppKernel.check_bounds, KernelGroup.codegen_group

    def check_with_reset(self: Any, expr: sympy.Expr, *arguments: Any) -> None:
        names = _computed_indices(expr)
        if names:
            plain = self.indirect_assert
            self.indirect_assert = lambda *a: f"{plain(*a)} /* otherwise {_reset(self, names)} */"
        try:
            check_bounds(self, expr, *arguments)
        finally:
            self.__dict__.pop("indirect_assert", None)

    def group_with_notes(self: KernelGroup, *arguments: Any, **options: Any) -> str:
        return throwing_after_loops(codegen_group(self, *arguments, **options))

    with (
        mock.patch.object(CppKernel, "check_bounds", check_with_reset),
        mock.patch.object(KernelGroup, "codegen_group", group_with_notes),
    ):
        yield


@contextlib.contextmanager
def scalar_masks_spread() -> Iterator[None]:
    """Let the test of a vector of indices take a scalar mask.

    torch 2.11 converts the mask as if it were a vector, which does not compile: F.pad(x[:, i], (0, 0, 1, 0)).
    """
    from torch._inductor.codegen.cpp import CppVecKernel

    before: Any = CppVecKernel.indirect_assert

    def indirect_assert(self: Any, var: Any, lower: Any, upper: Any, mask: Any = None) -> str:
        code: str = before(self, var, lower, upper, mask)
        if not var.is_vec or not mask or mask.is_vec:
            return code
        vector = self._get_mask_type(var.dtype)
        return code.replace(f"~({vector}({mask}))", f"~({vector}::from({mask}))")

    if not torch_is_before("2.12"):
        yield
        return
    with mock.patch.object(CppVecKernel, "indirect_assert", indirect_assert):
        yield


def _computed_indices(expr: sympy.Expr) -> list[str]:
    """Return the C++ variables of an index expression that hold values read from memory."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return sorted(s.name for s in expr.free_symbols if symbol_is_type(s, SymT.TMP))


def _reset(kernel: Any, names: list[str]) -> str:
    """Return C++ statements that set these indices to 0, and the arrays that hold vectors of them."""
    stored = [f"{name}.store(tmpbuf.data()," for name in names]
    arrays = [var for code, var in kernel.cse._cache.items() if any(store in code for store in stored)]
    return " ".join([f"{n} = decltype({n})(0);" for n in names] + [f"{array} = {{}};" for array in arrays])


def throwing_after_loops(kernel: str) -> str:
    """Return the C++ code of a kernel that throws after its loops instead of inside them."""
    kernel, index_tests = _INDEX_TEST.subn(_noted_index_test, kernel)
    kernel, assertions = _ASSERTION.subn(_noted_assertion, kernel)
    if not index_tests + assertions:
        return kernel
    head, brace, rest = kernel.partition("\n{\n")
    body, end, tail = rest.rpartition("}")
    note = f"    std::atomic<const char*> {_NOTE}{{nullptr}};\n"
    throw = f"    if (const char* message = {_NOTE}.load()) throw std::runtime_error(message);\n"
    return f"{head}{brace}{note}{body}{throw}{end}{tail}"


def _noted_index_test(match: re.Match[str]) -> str:
    size = _CONSTANT_SIZE.search(match["bounds"])
    message = OUT_OF_BOUNDS + (f" for a dimension of size {size[1]}" if size else "")
    if size and size[1] == "0":  # no index is valid
        return match[0]
    return f'if (!({match["condition"]})) [[unlikely]] {{ {_NOTE} = "{message}"; {match["reset"]} }}'


def _noted_assertion(match: re.Match[str]) -> str:
    return f"if (!({match['condition']})) [[unlikely]] {{ {_NOTE} = {match['message']}; }}"
