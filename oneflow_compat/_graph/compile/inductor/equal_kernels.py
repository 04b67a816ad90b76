"""Vectorized kernels of equal loops, generated once."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Names: TypeAlias = dict[str, str]  # name of a buffer -> name of the buffer in its place
_POINTER = re.compile(r"\b(?:in|out|in_out)_ptr\d+\b")


class _KernelsExist(Exception):
    """End the generation of kernels that exist already."""


@dataclass(frozen=True)
class _Kept:
    """The kernels of a loop, as inductor generated them, and the buffers that they name."""

    proxy: Any
    buffers: tuple[str, ...]


@contextlib.contextmanager
def equal_kernels() -> Iterator[None]:
    """Generate the vectorized kernels of a loop once for all loops with an equal scalar kernel.

    Inductor generates a scalar kernel first, which also decides what is written in place. The kernels for
    full vectors and for the rest are other forms of it. Equal layers have equal scalar kernels.
    """
    from torch._inductor.codegen.cpp import CppKernelProxy, LoopNest

    generate: Any = CppKernelProxy.codegen_functions
    build: Any = LoopNest.build
    kept: dict[tuple[Any, ...], _Kept] = {}

    def generate_once(self: Any, functions: Any, sizes: Any) -> None:
        description: tuple[Any, ...] | None = None
        buffers: tuple[str, ...] = ()

        def build_unless_kept(scalar_kernel: Any) -> Any:  # inductor calls it after the scalar kernel
            nonlocal description, buffers
            description, buffers = _description(scalar_kernel, sizes)
            if description in kept:
                raise _KernelsExist
            return build(scalar_kernel)

        loops: Any = LoopNest
        loops.build = staticmethod(build_unless_kept)
        try:
            generate(self, functions, sizes)
        except _KernelsExist:
            existing = kept[description]  # type: ignore[index]
            names = dict(zip(existing.buffers, buffers))
            vars(self).update(_generated(existing.proxy, self, names))
        else:
            if description is not None and _buffers_of(self.kernels) <= {*buffers}:
                same = {name: name for name in buffers}
                original = copy.copy(self)
                vars(original).update(_generated(self, original, same))
                kept[description] = _Kept(original, buffers)
        finally:
            loops.build = staticmethod(build)

    proxy: Any = CppKernelProxy
    proxy.codegen_functions = generate_once
    try:
        yield
    finally:
        proxy.codegen_functions = generate


def _description(kernel: Any, sizes: Sequence[Any]) -> tuple[tuple[Any, ...] | None, tuple[str, ...]]:
    """Return what the other kernels depend on, and the buffers whose names it leaves out.

    The description is None if the kernel has local buffers, or lines of an unknown class.
    """
    from torch._inductor.utils import IndentedBuffer
    from torch._inductor.virtualized import V

    code = {name: value._lines for name, value in _code(kernel)}
    prefixes = IndentedBuffer()
    for make in kernel.reduction_prefix_generators:
        prefixes.splice(make(None))
    code["prefixes"] = prefixes._lines
    lines = [line for part in code.values() for line in part]
    if getattr(V.local_buffer_context, "local_buffers", None) or not all(map(_is_known, lines)):
        return None, ()
    buffers = tuple(dict.fromkeys(line.name for line in lines if not isinstance(line, str)))
    parts = tuple((name, *(_text(line, buffers) for line in part)) for name, part in code.items())
    types = tuple(V.graph.get_dtype(name) for name in buffers)
    return (type(kernel), parts, repr(sizes), types, _types_of_pointers(kernel, repr(parts))), buffers


def _types_of_pointers(kernel: Any, code: str) -> frozenset[Any]:
    """Return the pairs of a pointer in the code and the type of its elements."""
    from torch._inductor.virtualized import V

    args, used = kernel.args, {*_POINTER.findall(code)}
    pairs = [*args.input_buffers.items(), *args.output_buffers.items()]
    pairs += [(name, getattr(b, "inner_name", None)) for name, b in args.inplace_buffers.items()]
    return frozenset((inner, V.graph.get_dtype(name)) for name, inner in pairs if inner in used)


def _generated(proxy: Any, owner: Any, names: Names) -> dict[str, Any]:
    """Return a copy of what inductor generated for the loop of a proxy, for another loop (`owner`)."""
    from torch._inductor.codegen.cpp import LoopNest

    copies = {id(kernel): _copied_kernel(kernel, owner, names) for kernel in proxy.kernels}
    attributes = {name: _copied_code(code, names) for name, code in _code(proxy)}
    attributes["kernels"] = [copies[id(kernel)] for kernel in proxy.kernels]
    loops = proxy.loop_nest.loops
    attributes["loop_nest"] = LoopNest(loops and [*map(copy.copy, loops)], owner)
    return attributes


def _copied_kernel(kernel: Any, owner: Any, names: Names) -> Any:
    copied = copy.copy(kernel)
    attributes: dict[str, Any] = {name: _copied_code(code, names) for name, code in _code(kernel)}
    lists = ("inner_itervars", "reduction_var_names", "active_ranges")
    attributes |= {name: copy.copy(getattr(kernel, name)) for name in lists}
    vars(copied).update(attributes, args=owner.args)
    return copied


def _code(kernel: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, code) of the attributes that are pieces of C++ code."""
    from torch._inductor.utils import IndentedBuffer

    for name, value in vars(kernel).items():
        if isinstance(value, IndentedBuffer):
            yield name, value


def _copied_code(code: Any, names: Names) -> Any:
    copied = copy.copy(code)
    copied._lines = [line if isinstance(line, str) else _renamed(line, names) for line in code._lines]
    return copied


def _renamed(line: Any, names: Names) -> Any:
    renamed = copy.copy(line)
    renamed.name = names[line.name]
    return renamed


def _is_known(line: Any) -> bool:
    from torch._inductor.codegen.common import DeferredLine

    return isinstance(line, str) or type(line) is DeferredLine


def _text(line: Any, buffers: tuple[str, ...]) -> Any:
    return line if isinstance(line, str) else (line.line, buffers.index(line.name))


def _buffers_of(kernels: Sequence[Any]) -> set[str]:
    """Return the buffers that the code of kernels names; an unknown line counts as one without a name."""
    lines = [line for kernel in kernels for _, code in _code(kernel) for line in code._lines]
    return {line.name if _is_known(line) else "" for line in lines if not isinstance(line, str)}
