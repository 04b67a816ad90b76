"""The promises of a module beyond its results: names, persistence, first values, hooks, copies."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from .errors import Mismatch
from .verdict import SAME_KERNELS

if TYPE_CHECKING:
    from .pair import Module, Pair


def compare_new_modules(pair: Pair, r: Module, c: Module) -> None:
    """Compare two modules that were just made, before the candidate gets the reference's tensors."""
    title = type(r).__name__
    for what, tensors_by_name in (
        ("state_dict", lambda m: m.state_dict()),
        ("parameters", lambda m: dict(m.named_parameters())),
        ("buffers", lambda m: dict(m.named_buffers())),
    ):
        of_reference, of_candidate = tensors_by_name(r), tensors_by_name(c)
        if list(of_reference) != list(of_candidate):
            raise Mismatch(
                "module",
                f"the {what} of {title} are {list(of_reference)} in {pair.names[0]},"
                f" {list(of_candidate)} in {pair.names[1]}",
            )
        for name, x in of_reference.items():
            compare_tensors_of_modules(pair, f"{name} of {title}", x, of_candidate[name])


def compare_tensors_of_modules(pair: Pair, what: str, x: Any, y: Any) -> None:
    """Compare shape, dtype, requires_grad and, of the same kernels, the first values of a module's tensor."""
    if not (pair.is_reference_tensor(x) and pair.is_reference_tensor(y)):
        return
    facts = [(tuple(t.shape), t.dtype, t.requires_grad) for t in (x, y)]
    if facts[0] != facts[1]:
        shown = [f"{shape}, {dtype}, requires_grad={needs}" for shape, dtype, needs in facts]
        raise Mismatch("module", f"{what} is {shown[0]} in {pair.names[0]}, {shown[1]} in {pair.names[1]}")
    if pair.level == SAME_KERNELS and not _equal(x, y):
        raise Mismatch("initial values", f"{what} starts with other values on the same random stream")


def _equal(x: Any, y: Any) -> bool:
    import torch

    x, y = x.detach(), y.detach()
    if x.is_meta or x.device != y.device:
        return True
    return torch.equal(x, y) or bool(((x == y) | ((x != x) & (y != y))).all())


def compare_copies(pair: Pair, r: Module, c: Module) -> None:
    """Compare copy.deepcopy of both modules: the class, the names, and that no memory is shared."""
    facts = [_facts_of_copy(r), _facts_of_copy(c)]
    if facts[0] != facts[1]:
        raise Mismatch(
            "module",
            f"a deep copy of {type(r).__name__} {facts[0]} in {pair.names[0]}, {facts[1]} in {pair.names[1]}",
        )


def _facts_of_copy(module: Module) -> str:
    try:
        other = copy.deepcopy(module)
    except Exception as e:
        return f"raises {type(e).__name__}"
    mine, theirs = module.state_dict(), other.state_dict()
    if list(mine) != list(theirs):
        return "has other names"
    tensors = [n for n in mine if hasattr(mine[n], "data_ptr") and mine[n].numel()]
    if other is module or any(mine[n].data_ptr() == theirs[n].data_ptr() for n in tensors):
        return "shares the tensors"
    if not all(_equal(mine[n], theirs[n]) for n in tensors):
        return "has other values"
    return "is a copy"


class HookCounter:
    """Whether a forward hook of both modules runs in one call: `with HookCounter(r, c) as hooks: ...`."""

    def __init__(self, r: Module, c: Module) -> None:
        self.modules = r, c
        self.fired = [0, 0]
        self.handles: list[Any] = []

    def __enter__(self) -> HookCounter:
        for side, module in enumerate(self.modules):
            self.handles.append(module.register_forward_hook(self._hook_of(side)))
        return self

    def _hook_of(self, side: int) -> Any:
        def hook(*_: object) -> None:
            self.fired[side] += 1
            self.handles[side].remove()  # a second call finds the module without hooks

        return hook

    def __exit__(self, *exc: object) -> None:
        for handle in self.handles:
            handle.remove()

    def compare(self, pair: Pair, what: str) -> None:
        if self.fired[0] != self.fired[1]:
            raise Mismatch(
                "module",
                f"a forward hook of {what} runs {self.fired[0]} times in {pair.names[0]},"
                f" {self.fired[1]} times in {pair.names[1]}",
            )
