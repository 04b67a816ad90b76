"""Proxy: what `graph.model` is, a module with its graph settings beside it."""
from __future__ import annotations

import torch

from .graph_block import GraphModule


class Proxy:
    """Base of the proxies: `to(GraphModule)` gives the settings, `to(nn.Module)` the module itself."""

    def to(self, *args, **kwargs):
        raise NotImplementedError


class ProxyModule(Proxy):
    """Stands for a module inside a graph. Calls and attributes reach the module; submodules come as proxies too."""

    def __init__(self, origin, prefix="", name="", belonged_graph=None):
        set_ = object.__setattr__
        set_(self, "_origin", origin)
        set_(self, "_name", name)
        set_(self, "_name_prefix", prefix)
        set_(self, "_belonged_graph", belonged_graph)
        set_(self, "_children", {})
        set_(self, "config", GraphModule(prefix, name, belonged_graph, self))

    @property
    def name(self):
        return self._name

    @property
    def name_prefix(self):
        return self._name_prefix

    def to(self, *args, **kwargs):
        if len(args) == 1 and isinstance(args[0], type):
            if args[0] is GraphModule:
                return self.config
            if args[0] is torch.nn.Module:
                return self._origin
        raise ValueError(f"a module in a graph cannot be moved: .to() takes GraphModule or nn.Module here, got {args} {kwargs}; move the module before giving it to the graph")

    def __call__(self, *args, **kwargs):
        return self._origin(*args, **kwargs)

    def _child(self, name, module):
        child = self._children.get(name)
        if child is None or child._origin is not module:
            prefix = f"{self._name_prefix}{self._name}."
            child = self._children[name] = ProxyModule(module, prefix, name, self._belonged_graph)
        return child

    def __getattr__(self, name):
        modules = self._origin._modules
        if name in modules and modules[name] is not None:
            return self._child(name, modules[name])
        return getattr(self._origin, name)

    def __setattr__(self, name, value):
        setattr(self._origin, name, value)

    def __getitem__(self, index):
        item = self._origin[index]
        if isinstance(item, torch.nn.Module):
            for name, module in self._origin._modules.items():
                if module is item:
                    return self._child(name, module)
        return item

    def __iter__(self):
        for name, module in self._origin._modules.items():
            yield self._child(name, module)

    def __len__(self):
        return len(self._origin)

    def _proxies(self):
        """This proxy and all below it that were ever asked for."""
        yield self
        for child in self._children.values():
            yield from child._proxies()

    def __repr__(self):
        return repr(self._origin)
