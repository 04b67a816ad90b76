"""Names and live locations of module and optimizer state, read again in every call."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..._global.tensor import memory_of
from ..errors import CaptureError
from ..program.locations import LiveState, ModuleTensor, NumberSource, OptimizerParameter, StateEntry


def resolve(value: Any | Callable[[], Any]) -> Any:
    """Return the value that a front end gave, or what the function that it gave returns."""
    if callable(value) and not isinstance(value, (torch.nn.Module, dict)):
        return value()
    return value


class StateMap:
    """The name of every tensor of modules and optimizers; `entry(tensor)` gives its StateEntry."""

    def __init__(
        self,
        modules: Mapping[str, torch.nn.Module],
        tensors: dict[str, torch.Tensor],
        optimizers: Iterable[tuple[torch.optim.Optimizer, Any]],
    ) -> None:
        self.modules = dict(modules)
        self.tensors = tensors
        self.optimizers = list(optimizers)
        self.by_id: dict[int, StateEntry] = {}
        self.aliases: list[Any] = []  # (tensor, container, key) of each further name of a tensor
        for prefix, module in self.modules.items():
            for path, child in module.named_modules(prefix=prefix, remove_duplicate=True):
                self._add(child._parameters, path, "param")
                self._add(child._buffers, path, "buffer")
        for name, tensor in tensors.items():
            if tensor is not None:
                self._add_tensor(name, tensor)
        for o, (optimizer, _) in enumerate(self.optimizers):
            for g, group in enumerate(optimizer.param_groups):
                for i, tensor in enumerate(group["params"]):
                    name, location = f"optimizer{o}.group{g}.{i}", OptimizerParameter(o, g, i)
                    entry = StateEntry("param", name, location, group["params"], i, tensor)
                    entry = self.by_id.setdefault(id(tensor), entry)
                    self.by_id.setdefault(id(memory_of(tensor)), entry)

    def _add_tensor(self, name: str, tensor: torch.Tensor) -> StateEntry:
        role = "param" if isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad else "buffer"
        entry = StateEntry(role, name, ModuleTensor(name), self.tensors, name, tensor)
        return self.by_id.setdefault(id(tensor), entry)

    def named(self, tensor: torch.Tensor) -> StateEntry:
        """Return the entry of a tensor, which gets a name if it has none."""
        entry = self.entry(tensor)
        if entry is None:
            name = next(n for i in itertools.count() if (n := f"tensor{i}") not in self.tensors)
            self.tensors[name] = tensor
            entry = self._add_tensor(name, tensor)
        return entry

    def _add(self, container: dict[Any, Any], path: str, role: str) -> None:
        for key, tensor in container.items():
            if tensor is None:
                continue
            name = f"{path}.{key}" if path else key
            entry = StateEntry(role, name, ModuleTensor(name), container, key, tensor)
            entry = self.by_id.setdefault(id(tensor), entry)
            self.by_id.setdefault(id(memory_of(tensor)), entry)
            if entry.container is not container or entry.key != key:
                self.aliases.append((tensor, container, key))

    def entry(self, tensor: torch.Tensor) -> StateEntry | None:
        return self.by_id.get(id(tensor))

    def name_of(self, tensor: torch.Tensor) -> str | None:
        entry = self.by_id.get(id(tensor))
        return entry.name if entry else None

    def live(self, free: list[Any], numbers: tuple[NumberSource, ...]) -> LiveState:
        """Return the objects that the locations of a program name."""
        entries = {entry.name: entry for entry in self.by_id.values()}
        return LiveState(
            entries,
            tuple(optimizer for optimizer, _ in self.optimizers),
            free,
            aliases=tuple(self.aliases),
            numbers=numbers,
        )

    def all_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield (path, module) of every module, once."""
        seen = set()
        for prefix, module in self.modules.items():
            for path, child in module.named_modules(prefix=prefix):
                if id(child) not in seen:
                    seen.add(id(child))
                    yield path, child

    def refuse_lazy_parameters(self) -> None:
        """Raise CaptureError if a parameter or buffer has no shape yet."""
        for entry in self.by_id.values():
            if torch.nn.parameter.is_lazy(entry.tensor):
                raise CaptureError(
                    f"{entry.role} {entry.name!r} has no shape yet: its module is a lazy one (nn.Lazy...)"
                    " that never ran",
                    "Run the module once in eager mode before the first call of the graph, for example on a"
                    " batch under no_grad().",
                )

    def refuse_parameters_among(self, arguments: Iterable[tuple[str, object]]) -> None:
        """Raise CaptureError if an argument is a trained parameter.

        An argument is a separate input of the program, so the parameter would get no gradient.
        """
        for name, value in arguments:
            if (
                self.optimizers
                and isinstance(value, torch.nn.Parameter)
                and value.requires_grad
                and self.entry(value) is not None
            ):
                raise CaptureError(
                    f"the argument {name!r} is the parameter {self.name_of(value)!r} of the graph itself,"
                    " and would get no gradient as an argument",
                    "Use the parameter inside build() instead of passing it.",
                )
