"""Values, calls and steps of a case as Python source text, with `lib` for either library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .case import Case, DualObject, Step
from .pair import Pair

if TYPE_CHECKING:
    from types import ModuleType

    import torch


INFIX_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
PREFIX_OPERATORS = {"neg": "-", "pos": "+", "invert": "~"}
# OneFlow's own methods: on the reference they return the value unchanged.
PLACEMENT_METHODS = {"to_global", "to_local", "local_to_global", "global_to_global", "to_consistent"}
LITERAL_LIMIT = 2000  # elements; a larger tensor is written as packed bytes


def name_of(dual: DualObject) -> str:
    """Return x0 for an input, m1 for a module, v2 for another result (the digit is the step), otherwise the
    path or value.
    """
    step = dual._step
    if step is None:
        return dual._path or repr(dual._ref)[:60]
    if step.action == "input":
        return f"x{step.number}"
    return f"{'m' if isinstance(dual._ref, dual._pair.reference_module) else 'v'}{step.number}"


class SourceWriter:
    """A writer of source text.

    pair: the two libraries; it decides how the script makes a tensor. Without it, `lib.tensor(...)`.
    defined: numbers of the steps whose results have a name in the script; None means all. Other results are
        written as literals.
    """

    def __init__(self, pair: Pair | None = None, defined: Iterable[int] | None = None) -> None:
        self.pair = pair
        self.defined = None if defined is None else set(defined)

    # ------------------------------------------------------------------ values
    def value(self, x: Any) -> str:
        """Return an argument as source text."""
        if hasattr(type(x), "__dual__"):
            return self.dual(x)
        if isinstance(x, tuple):
            return "(" + ", ".join(self.value(e) for e in tuple(x)) + ("," if len(x) == 1 else "") + ")"
        if isinstance(x, list):
            return "[" + ", ".join(self.value(e) for e in x) + "]"
        if isinstance(x, dict):
            return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in x.items()) + "}"
        if isinstance(x, slice):
            return f"slice({self.value(x.start)}, {self.value(x.stop)}, {self.value(x.step)})"
        if isinstance(x, (float, complex)):
            return _number(x)
        if isinstance(x, np.ndarray):
            return f"np.array({_numbers(x.tolist())}, dtype=np.{x.dtype})"
        if isinstance(x, np.generic):
            return _numbers(x.item())
        return self._torch_value(x)

    def _torch_value(self, x: Any) -> str:
        class_name = type(x).__module__ + "." + type(x).__name__
        if class_name in ("torch.dtype", "torch.layout", "torch.memory_format"):
            return "lib." + str(x).rpartition(".")[2]
        if class_name == "torch.device":
            return f"lib.device({str(x)!r})"
        if class_name.startswith("torch.") and hasattr(x, "detach"):
            return self.tensor(x)
        libraries = {
            getattr(getattr(self.pair, "candidate", None), "__name__", ""),
            type(x).__module__.partition(".")[0],
        } - {"", "builtins", "torch"}
        source = _function_text(x) or repr(x)
        return (
            re.sub(rf"\b({'|'.join(map(re.escape, libraries))})\.(?=\w)", "flow.", source)
            if libraries and self.pair is not None
            else source
        )

    def dual(self, d: DualObject) -> str:
        """Return the expression by which the script reaches a dual object."""
        if d._step is not None:
            if self.defined is None or d._step.number in self.defined:
                return name_of(d)
            return self.value(d._ref)
        if d._owner is not None:
            return f"{self.dual(d._owner)}.{d._path}"
        if (
            isinstance(d._ref, (int, float, complex, bool, str, tuple))
            and type(d._ref) is type(d._cand)
            and d._ref != d._cand
        ):
            return f"({self.value(d._ref)} if lib is torch else {self.value(d._cand)})"
        if (
            isinstance(d._ref, (int, float, complex, bool, str, tuple))
            or type(d._ref).__name__ == "dtype"
            or not d._path
        ):
            return self.value(d._ref) if d._ref is not d._pair.reference else "lib"
        return f"lib.{d._path}"

    def tensor(self, t: torch.Tensor, requires_grad: bool = False) -> str:
        """Return the expression that makes this torch tensor in either library."""
        t = t.detach() if t.is_meta else t.detach().cpu()
        if t.layout != _torch().strided:
            t = t.to_dense()
        dtype = str(t.dtype).rpartition(".")[2]
        lib, candidate = "lib", getattr(self.pair, "candidate", None)
        handed_over = self.pair is not None and not self.pair.same_tensors
        if (
            handed_over
            or candidate is not None
            and not (hasattr(candidate, "tensor") and hasattr(candidate, dtype))
        ):
            lib = "torch"
        extra = (', device="meta"' if t.is_meta else "") + (", requires_grad=True" if requires_grad else "")
        if t.numel() == 0 or t.is_meta:
            source = f"{lib}.zeros({tuple(t.shape)}, dtype={lib}.{dtype}{extra})"
        elif t.numel() > LITERAL_LIMIT:
            array = t.float().numpy() if dtype == "bfloat16" else t.numpy()
            source = (
                f"{lib}.tensor(unpack({packed(array)!r}, {str(array.dtype)!r}, {tuple(t.shape)}),"
                f" dtype={lib}.{dtype}{extra})"
            )
        else:
            source = f"{lib}.tensor({_numbers(t.tolist(), dtype)}, dtype={lib}.{dtype}{extra})"
        return f"hand_over(lib, {source})" if handed_over else source

    # ------------------------------------------------------------------ calls and steps
    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        operands = [self.value(a) for a in args]
        arguments = ", ".join(operands + [f"{k}={self.value(v)}" for k, v in kwargs.items()])
        owner = getattr(target, "_owner", None)
        if owner is not None and target._path in PLACEMENT_METHODS:
            name = self.dual(owner)
            unchanged = f"{name}.clone()" if hasattr(owner._ref, "clone") else name
            return f"{unchanged} if lib is torch else {name}.{target._path}({arguments})"
        return f"{self.dual(target)}({arguments})"

    def step(self, case: Case | None, step: Step) -> str:
        """Return the lines of one step."""
        left = f"{name_of(step.out)} = " if step.out is not None else ""
        if step.action == "input":
            return left + self.input(step)
        if step.action == "get":
            return f"{left}{self.dual(step.target)}.{step.args[0]}"
        if step.action == "set":
            return f"{self.dual(step.target)}.{step.args[0]} = {self.value(step.args[1])}"
        if step.action in ("enter", "exit"):
            arguments = "None, None, None" if step.action == "exit" else ""
            return f"{self.dual(step.target)}.__{step.action}__({arguments})"
        if step.action == "op":
            return self._operator_step(left, step)
        if step.action == "expression":
            return "last = " + step.args[0].format(
                self.dual(step.target), *(self.value(a) for a in step.args[1:])
            )
        lines = [f"{left or 'last = '}{self.call(step.target, step.args, step.kwargs)}"]
        if step.value is not None:
            return self._given_result(left, step, lines[0])
        return "\n".join(lines + self._module_state(case, step))

    def input(self, step: Step) -> str:
        source = self.tensor(step.value, step.requires_grad)
        if step.candidate_value is not None:
            source = (
                f"({source} if lib is torch else {self.tensor(step.candidate_value, step.requires_grad)})"
            )
        if step.strides is not None:
            return f"with_strides({source}, {step.strides[0]}, {step.strides[1]})"
        return f"everywhere(lib, {source})" if step.is_global else source

    def _given_result(self, left: str, step: Step, line: str) -> str:
        """Write a result whose values the harness hands over: random, or never initialized."""
        if step.candidate_called:
            return f"{line}\n{name_of(step.out)}.detach().copy_({self.tensor(step.value)})"
        return left + self.tensor(step.value, step.requires_grad)

    def _module_state(self, case: Case | None, step: Step) -> list[str]:
        if case is None or step.out is None or not any(step.out is m for m in case.modules):
            return []
        name = name_of(step.out)
        lines = []
        state = case.first_state_of(step.out)
        if state:
            pairs = ", ".join(f"{k!r}: {self.tensor(v)}" for k, v in state.items())
            lines.append(f"{name}.load_state_dict({{{pairs}}}, strict=False)")
        if id(step.out._cand) in case.global_modules:
            lines.append(f"{name} = everywhere(lib, {name})")
        return lines

    def _operator_step(self, left: str, step: Step) -> str:
        name, operands = step.target._path, [self.value(a) for a in step.args]
        if name == "setitem":
            return str(operator_text(name, operands))
        if name == "delitem":
            return f"del {operands[0]}[{operands[1]}]"
        left = left or "last = "
        if name[1:] in INFIX_OPERATORS and name not in INFIX_OPERATORS:
            return f"{left}operator.{name}({', '.join(operands)})"
        return left + (operator_text(name, operands) or f"{name}({', '.join(operands)})")


def operator_text(name: str, operands: list[str]) -> str | None:
    """Return an operator with its operands, or None if `name` is not an operator."""
    if len(operands) > 1 and operands[0].startswith("-") or name in PREFIX_OPERATORS:
        operands = [f"({operands[0]})" if operands[0].startswith("-") else operands[0], *operands[1:]]
    if name in INFIX_OPERATORS and len(operands) == 2:
        return f"{operands[0]} {INFIX_OPERATORS[name]} {operands[1]}"
    if name in PREFIX_OPERATORS and len(operands) == 1:
        return PREFIX_OPERATORS[name] + operands[0]
    if name == "getitem" and len(operands) == 2:
        return f"{operands[0]}[{operands[1]}]"
    if name == "setitem" and len(operands) == 3:
        return f"{operands[0]}[{operands[1]}] = {operands[2]}"
    return None


def packed(array: np.ndarray) -> str:
    """Return the bytes of an array as text, for the script's unpack()."""
    import base64
    import zlib

    return base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()


def _function_text(x: object) -> str | None:
    """Return the name of a function or class that the script can import from torch or NumPy."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if not isinstance(name, str) or not isinstance(module, str) or "<" in name:
        return None
    if module == "builtins":
        return name
    root = module.partition(".")[0]
    return (
        f"{'np' if root == 'numpy' else root}{module[len(root) :]}.{name}"
        if root in ("torch", "numpy")
        else None
    )


def _torch() -> ModuleType:
    import torch

    return torch


def _number(x: float | complex) -> str:
    if isinstance(x, complex):
        return f"complex({_number(x.real)}, {_number(x.imag)})"
    return f"float('{x}')" if x != x or x in (float("inf"), float("-inf")) else repr(x)


def _numbers(x: object, dtype: str = "float64") -> str:
    """Return nested lists of numbers, each in the fewest digits that give it back in this dtype."""
    if isinstance(x, list):
        return "[" + ", ".join(_numbers(e, dtype) for e in x) + "]"
    if isinstance(x, float) and x == x and abs(x) != float("inf"):
        short = str(np.dtype(dtype).type(x)) if dtype in ("float16", "float32") else repr(x)
        return short.removesuffix(".0") if "e" not in short else short
    return _number(x) if isinstance(x, (float, complex)) else repr(x)
