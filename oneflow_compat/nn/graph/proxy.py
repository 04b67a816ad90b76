"""Proxies: `graph.model` and `graph.model.weight` are proxies, a module or tensor together with its graph
settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..._active import in_build
from .graph_block import GraphModule, GraphTensor
from .graph_repr import module_lines, tensor_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .graph_members import GraphMembers


class Proxy:
    """Base of the proxies: `to(GraphModule)` gives the settings, `to(nn.Module)` the module itself."""

    def to(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class ProxyTensor(Proxy):
    """Stands for a parameter or buffer outside build(); every operation and attribute reaches the tensor."""

    def __init__(self, origin: torch.Tensor, tag: str, prefix: str, name: str, graph: GraphMembers) -> None:
        self._origin, self._tag, self._name, self._name_prefix = origin, tag, name, prefix
        self._settings = GraphTensor(prefix, name, graph, self, tag)

    name = property(lambda self: self._name)
    name_prefix = property(lambda self: self._name_prefix)
    origin = property(lambda self: self._origin)  # the name in OneFlow 0.7 and 0.8
    config = property(lambda self: self._settings)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], type):
            return self._settings if args[0] is GraphTensor else self._origin
        return self._origin.to(*args, **kwargs)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, kwargs = torch.utils._pytree.tree_map(
            lambda x: x._origin if isinstance(x, ProxyTensor) else x, (args, kwargs or {})
        )
        return func(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_origin"], name)

    def __repr__(self) -> str:
        return f"{tensor_line(self._tag, f'{self._name_prefix}{self._name}', self._origin)}: ()"


class ProxyModule(Proxy):
    """Stands for a module inside a graph.

    Calls and attributes reach the module; submodules come as proxies too.
    """

    def __init__(
        self,
        origin: torch.nn.Module,
        prefix: str = "",
        name: str = "",
        belonged_graph: GraphMembers | None = None,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "_origin", origin)
        set_(self, "_name", name)
        set_(self, "_name_prefix", prefix)
        set_(self, "_belonged_graph", belonged_graph)
        set_(self, "_children", {})
        set_(self, "config", GraphModule(prefix, name, belonged_graph, self))

    name = property(lambda self: self._name)
    name_prefix = property(lambda self: self._name_prefix)
    prefix = property(lambda self: self._name_prefix)

    # While build() is captured a block passes for its module in what libraries do with models: isinstance(),
    # looking a layer up, wrapping it.
    __class__ = property(lambda self: type(self._origin) if in_build() else ProxyModule)

    def __eq__(self, value: object) -> bool:
        return self._origin is (value._origin if type(value) is ProxyModule else value)

    def __hash__(self) -> int:
        return hash(self._origin)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], type):
            if args[0] is GraphModule:
                return self.config
            if args[0] is torch.nn.Module:
                return self._origin
        raise ValueError(
            f"a module in a graph cannot be moved: .to() takes GraphModule or nn.Module here, got {args}"
            f" {kwargs}; move the module before giving it to the graph"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._origin(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: the state of a block is read from the graph, or from the module itself."""
        raise RuntimeError(
            f"block {self._name!r} of graph {self._belonged_graph.name} gives no state_dict: use"
            f" graph.state_dict()[{self._name!r}], or state_dict() of the module that was given to the graph"
        )

    def load_state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused, as state_dict is."""
        raise RuntimeError(
            f"block {self._name!r} of graph {self._belonged_graph.name} takes no state_dict: use"
            " graph.load_state_dict() before the first call, or load_state_dict() of the module that was"
            " given to the graph"
        )

    def _child(self, name: str, module: torch.nn.Module) -> ProxyModule:
        child = self._children.get(name)
        if child is None or child._origin is not module:
            child = self._children[name] = ProxyModule(
                module, self._full_prefix(), name, self._belonged_graph
            )
        return child

    def _tensor(self, tag: str, name: str, tensor: torch.Tensor) -> ProxyTensor:
        key = (name, id(tensor))
        if key not in self._children:
            self._children[key] = ProxyTensor(tensor, tag, self._full_prefix(), name, self._belonged_graph)
        return self._children[key]

    def _full_prefix(self) -> str:
        return f"{self._name_prefix}{self._name}."

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"block {self._name!r} of a graph can be neither copied nor pickled; copy the module that was"
            " given to the graph (block.to(nn.Module))"
        )

    def _tensor_attribute(self, name: str) -> ProxyTensor | dict[str, ProxyTensor | None] | None:
        """Return the parameter or buffer, or all of them, that the module has under this name."""
        for tag, all_name in (("PARAMETER", "_parameters"), ("BUFFER", "_buffers")):
            tensors = getattr(self._origin, all_name)
            if name == all_name:
                return {n: None if t is None else self._tensor(tag, n, t) for n, t in tensors.items()}
            if tensors.get(name) is not None:
                return self._tensor(tag, name, tensors[name])
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "_origin":  # not created by __init__
            raise AttributeError(name)
        origin = self._origin
        modules = origin._modules  # no dict in a module of torch.jit.script
        if name in modules and modules[name] is not None:
            return self._child(name, modules[name])
        if not in_build() and (tensors := self._tensor_attribute(name)) is not None:
            return tensors
        if name in ("items", "values") and isinstance(origin, torch.nn.ModuleDict):
            return getattr({n: self._child(n, m) for n, m in origin.items()}, name)
        try:
            return getattr(origin, name)
        except AttributeError:
            if name == "origin":  # how 0.7 and 0.8 call it
                return origin
            raise AttributeError(
                f"'MODULE' {type(self).__name__!r} object {self._name!r} in nn.Graph has no attribute"
                f" {name!r}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._origin, name, value._origin if type(value) is ProxyModule else value)

    def __getitem__(self, index: Any) -> Any:
        item = self._origin[index]
        if isinstance(item, torch.nn.Module):
            for name, module in self._origin._modules.items():
                if module is item:
                    return self._child(name, module)
        return item

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._origin, torch.nn.ModuleDict):
            return iter(self._origin)
        if isinstance(self._origin, torch.nn.ParameterList):
            return iter(self._origin)
        return iter([self._child(name, module) for name, module in self._origin._modules.items()])

    def __len__(self) -> int:
        return len(self._origin)

    def __contains__(self, key: object) -> bool:
        return key in self._origin

    # walking over the modules gives proxies, so that stages and recomputation can be set on each
    def named_children(self) -> Iterator[tuple[str, ProxyModule]]:
        seen = set()
        for name, module in self._origin._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, self._child(name, module)

    def children(self) -> Iterator[ProxyModule]:
        return (child for _, child in self.named_children())

    def named_modules(
        self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, ProxyModule]]:
        memo = set() if memo is None else memo
        if remove_duplicate and id(self._origin) in memo:
            return
        memo.add(id(self._origin))
        yield prefix, self
        for name, module in self._origin._modules.items():
            if module is not None:
                yield from self._child(name, module).named_modules(
                    memo, f"{prefix}.{name}" if prefix else name, remove_duplicate
                )

    def modules(self) -> Iterator[ProxyModule]:
        return (module for _, module in self.named_modules())

    def _proxies(self) -> Iterator[ProxyModule]:
        """Return this proxy and every proxy below it that was ever requested."""
        yield self
        for child in self._children.values():
            if isinstance(child, ProxyModule):
                yield from child._proxies()

    def __repr__(self) -> str:
        graph = self._belonged_graph
        operators = graph._operators() if graph is not None else {}
        return "\n".join(
            module_lines(
                self._origin,
                f"{self._name_prefix}{self._name}",
                graph._calls if graph is not None else {},
                operators,
            )
        )
