"""While build() runs: the scope of the module being called, and the graph's view of modules and tensors from
inside their own forward().
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from . import scopes
from .graph_block import GraphModule, GraphTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph_members import GraphMembers
    from .proxy import ProxyModule

    CurrentScope = scopes.Scope | Callable[[], scopes.Scope]


class Views(contextlib.ExitStack):
    """The views of one graph during one build(): `self.to(GraphModule)` in a forward() is the block of that
    module.
    """

    def __init__(self, graph: GraphMembers) -> None:
        super().__init__()
        self._graph = graph
        self._blocks: dict[int, ProxyModule] | None = None
        self._outer: list[CurrentScope] = []

    def __enter__(self) -> Views:
        super().__enter__()
        outer = scopes.graph_name.set(self._graph.name)  # type: ignore[arg-type]
        self.callback(scopes.graph_name.reset, outer)
        self.enter_context(scopes.ScopeContext(scopes.Scope(scopes.current_scope(), self._graph.name)))
        for cls, view, find in (
            (torch.nn.Module, GraphModule, self._module),
            (torch.Tensor, GraphTensor, self._tensor),
        ):
            original, own = cls.to, "to" in cls.__dict__
            setattr(cls, "to", _looking(original, view, find))  # noqa: B010 - mypy lets no method be assigned
            self.callback(setattr, cls, "to", original) if own else self.callback(delattr, cls, "to")
        return self

    def _proxies(self) -> dict[int, ProxyModule]:
        if self._blocks is None:
            self._blocks = {
                id(proxy._origin): proxy
                for block in self._graph._blocks.values()
                for _, proxy in block.named_modules()
            }
        return self._blocks

    def _module(self, module: torch.nn.Module) -> GraphModule | None:
        proxy = self._proxies().get(id(module))
        return None if proxy is None else proxy.config

    def _tensor(self, tensor: torch.Tensor) -> GraphTensor | None:
        for proxy in self._proxies().values():
            for tag, tensors in (
                ("PARAMETER", proxy._origin._parameters),
                ("BUFFER", proxy._origin._buffers),
            ):
                for name, own in tensors.items():
                    if own is tensor:
                        return proxy._tensor(tag, name, tensor).to(GraphTensor)
        return None

    def enter(self, module: torch.nn.Module) -> None:
        """The scope of `module`, which is called now, becomes the current one."""
        scope = _LaterScope(self, module)
        scope.outer = scopes.set_current_scope(scope)
        self._outer.append(scope.outer)

    def leave(self) -> None:
        """The scope around the module that was entered last becomes the current one again."""
        scopes.set_current_scope(self._outer.pop())


class _LaterScope:
    """The scope of a module that is called, made when it is asked for. Few programs ask."""

    def __init__(self, views: Views, module: torch.nn.Module) -> None:
        self.views, self.module = views, module
        # replaced when enter() notes the scope around the module
        self.outer: CurrentScope = scopes.current_scope
        self.scope: scopes.Scope | None = None

    def __call__(self) -> scopes.Scope:
        if self.scope is None:
            scopes.set_current_scope(self.outer)
            outer, config = scopes.current_scope(), self.views._module(self.module)
            self.scope = outer if config is None else config.scope
        return self.scope


def _looking(original: Callable[..., Any], view: type, find: Callable[[Any], Any]) -> Callable[..., Any]:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and args[0] is view and not kwargs:
            proxy = find(self)
            if proxy is not None:
                return proxy
        return original(self, *args, **kwargs)

    return to
