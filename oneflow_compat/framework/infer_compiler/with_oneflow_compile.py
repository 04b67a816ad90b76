"""compile_from_torch, and the pairs of modules DualModule and DualModuleList."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...nn import Graph
from .convert import torch2oflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


__all__ = ["DualModule", "DualModuleList", "compile_from_torch"]

_OPTIONS = ("debug", "dynamic", "size")


def compile_from_torch(
    torch_module: torch.nn.Module, *, use_graph: bool = True, options: Mapping[str, Any] = {}
) -> Any:
    """A module of the same class over the same parameters whose calls run as one nn.Graph, without gradients.

    use_graph=False runs it eagerly, also without gradients. options: "debug" (level of Graph.debug);
    "dynamic" and "size" are accepted, a graph keeps one program per input signature here. Attributes,
    state_dict() and to() are those of `torch_module` itself.
    """
    if not isinstance(torch_module, torch.nn.Module):
        raise TypeError(f"compile_from_torch() takes a module, found {type(torch_module).__name__}")
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise ValueError(f"compile_from_torch: options are {', '.join(_OPTIONS)}, found {', '.join(unknown)}")
    module = torch2oflow(torch_module)
    cls = type(f"Deployable{type(module).__name__}", (_Deployable, type(module)), {"__module__": __name__})
    deployable = cls.__new__(cls)  # type: ignore[call-overload]
    # Both share the parameters, buffers and attributes.
    object.__setattr__(deployable, "__dict__", module.__dict__)
    object.__setattr__(deployable, "_compiled", (module, _graph_of(module, options) if use_graph else None))
    return deployable


def _graph_of(module: torch.nn.Module, options: Mapping[str, Any]) -> Graph:
    class InferenceGraph(Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def build(self, *args: Any, **kwargs: Any) -> Any:
            return self.model(*args, **kwargs)

    graph = InferenceGraph()
    if options.get("debug", -1) >= 0:
        graph.debug(options["debug"])
    return graph


class _Slot:
    __slots__ = ("_compiled",)  # the __dict__ belongs to the module
    _compiled: tuple[torch.nn.Module, Graph | None]


class _Deployable(_Slot):
    """What compile_from_torch mixes into the module's class."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, graph = self._compiled
        with torch.no_grad():
            return (graph or module)(*args, **kwargs)

    def get_graph(self) -> Graph | None:
        """The nn.Graph, or None with use_graph=False."""
        return self._compiled[1]


class DualModule(torch.nn.Module):
    """Two modules of one structure.

    Calls run `oneflow_module`; attributes come from `torch_module` and are set on both.
    """

    def __init__(self, torch_module: torch.nn.Module, oneflow_module: torch.nn.Module) -> None:
        super().__init__()
        self.__dict__.update(_torch_module=torch_module, _oneflow_module=oneflow_module)

    torch_module = property(lambda self: self.__dict__["_torch_module"])
    oneflow_module = property(lambda self: self.__dict__["_oneflow_module"])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.oneflow_module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(self.__dict__["_torch_module"], name)
        if not isinstance(theirs, torch.nn.Module):
            return theirs
        cls: Any = DualModuleList if isinstance(theirs, torch.nn.ModuleList) else DualModule
        return cls(theirs, getattr(self.__dict__["_oneflow_module"], name))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_oneflow_module" not in self.__dict__:  # nn.Module's own set-up
            super().__setattr__(name, value)
            return
        value, ours = _pair(value)
        setattr(self.torch_module, name, value)
        setattr(self.oneflow_module, name, ours)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> DualModule:
        for module in _both(self):
            module._apply(fn, recurse)
        return self

    def train(self, mode: bool = True) -> DualModule:
        for module in _both(self):
            module.train(mode)
        return self

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return self.torch_module.named_parameters(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.torch_module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return [module.load_state_dict(*args, **kwargs) for module in _both(self)][0]


def _both(dual: DualModule) -> tuple[torch.nn.Module, ...]:
    theirs, ours = dual.torch_module, dual.oneflow_module
    return (theirs,) if theirs is ours else (theirs, ours)


def _pair(value: Any) -> tuple[Any, Any]:
    if isinstance(value, DualModule):
        return value.torch_module, value.oneflow_module
    return value, torch2oflow(value)


class DualModuleList(torch.nn.ModuleList):
    """Two lists of modules, item by item a DualModule; an item set here is set in both."""

    def __init__(
        self, torch_modules: Sequence[torch.nn.Module], oneflow_modules: Sequence[torch.nn.Module]
    ) -> None:
        if len(torch_modules) != len(oneflow_modules):
            raise ValueError(
                f"DualModuleList: the lists have {len(torch_modules)} and {len(oneflow_modules)} modules"
            )
        super().__init__(DualModule(a, b) for a, b in zip(torch_modules, oneflow_modules))
        self.__dict__.update(_torch_modules=torch_modules, _oneflow_modules=oneflow_modules)

    def __setitem__(self, idx: int, value: Any) -> None:
        theirs, ours = _pair(value)
        self.__dict__["_torch_modules"][idx] = theirs
        self.__dict__["_oneflow_modules"][idx] = ours
        super().__setitem__(idx, value if isinstance(value, DualModule) else DualModule(theirs, ours))
