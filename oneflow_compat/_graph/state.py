"""Where live tensors are: names and places of module state, read again in every call."""
from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .errors import CaptureError


def _memory(tensor):
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def resolve(value):
    """Front ends may give a value or a function returning it."""
    if callable(value) and not isinstance(value, (torch.nn.Module, dict)):
        return value()
    return value


class StateMap:
    """Names every tensor the engine knows; `entry(tensor)` gives (role, name, place, container, key)."""

    def __init__(self, modules, tensors, optimizers):
        self.modules = dict(modules)
        self.tensors = tensors
        self.optimizers = list(optimizers)
        self.by_id: dict = {}
        self.names: dict = {}  # (role, name) -> tensor
        for prefix, module in self.modules.items():
            for path, part in module.named_modules(prefix=prefix, remove_duplicate=True):
                self._add(part._parameters, path, "param")
                self._add(part._buffers, path, "buffer")
        for name, tensor in tensors.items():
            if tensor is not None:
                role = "param" if isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad else "buffer"
                self.by_id.setdefault(id(tensor), (role, name, ("module", name), tensors, name, tensor))
        for o, (optimizer, _) in enumerate(self.optimizers):
            for g, group in enumerate(optimizer.param_groups):
                for i, tensor in enumerate(group["params"]):
                    place = ("optparam", o, g, i)
                    self.by_id.setdefault(id(tensor), ("param", f"optimizer{o}.group{g}.{i}", place, group["params"], i, tensor))

    def _add(self, container, path, role):
        for key, tensor in container.items():
            if tensor is None:
                continue
            name = f"{path}.{key}" if path else key
            self.by_id.setdefault(id(tensor), (role, name, ("module", name), container, key, tensor))

    def entry(self, tensor):
        return self.by_id.get(id(tensor))

    def name_of(self, tensor):
        found = self.by_id.get(id(tensor))
        return found[1] if found else None

    def all_modules(self):
        """(path, module) of every module, once."""
        seen = set()
        for prefix, module in self.modules.items():
            for path, part in module.named_modules(prefix=prefix):
                if id(part) not in seen:
                    seen.add(id(part))
                    yield path, part


class kept_modules:
    """Puts buffers and attributes back that build() rebound to symbolic tensors.

    A buffer or tensor attribute that existed before is updated in place by the program (its new value is
    copied into the old tensor); an attribute that did not exist, or was no tensor (a cache), is put back.
    """

    def __init__(self, modules, recorder):
        self.modules, self.recorder = [m for _, m in modules], recorder

    def __enter__(self):
        self.before = [(m, dict(m._buffers.items()), {k: v for k, v in m.__dict__.items() if not k.startswith("_") or isinstance(v, torch.Tensor)}) for m in self.modules]
        return self

    def write_backs(self):
        """(old real tensor, new tensor) for every rebound buffer and tensor attribute; no new one is in memory of an old one."""
        pairs, held = [], set()
        for module, buffers, attributes in self.before:
            held.update(_memory(t) for t in (*module._parameters.values(), *buffers.values()) if t is not None)
        for module, buffers, attributes in self.before:
            for key, old in buffers.items():
                new = module._buffers.get(key)
                if new is not old and isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor):
                    if old.shape == new.shape and old.dtype == new.dtype:
                        pairs.append((old, new))
                    elif isinstance(new, FakeTensor) and self._computed_from(new, old):
                        raise CaptureError(
                            f"build() gives buffer {key!r} of {type(module).__name__} another shape or dtype: {old.dtype}{list(old.shape)} becomes {new.dtype}{list(new.shape)}",
                            "A program keeps the shapes and dtypes of its state: make the buffer with its lasting shape and dtype, and update it in place.",
                        )
            for key, old in attributes.items():
                new = module.__dict__.get(key)
                if new is not old and isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor) and _memory(old) not in held:
                    if old.shape == new.shape and old.dtype == new.dtype:
                        pairs.append((old, new))
        if len(pairs) > 1:  # two that were swapped: read all before writing any
            with torch.no_grad():
                pairs = [(old, new.clone()) for old, new in pairs]
        return pairs

    def _computed_from(self, new, old):
        """Whether the new value depends on the old one; a cache that grows does not."""
        held = self.recorder.lifted.get(id(old))
        stack, seen = [new._of_node], set()
        while held is not None and stack:
            node = stack.pop()
            if node is held[1]:
                return True
            if node not in seen:
                seen.add(node)
                stack.extend(node.all_input_nodes)
        return False

    def __exit__(self, *exc):
        self.restore()

    def restore(self):
        for module, buffers, attributes in self.before:
            for key in list(module._buffers.keys()):
                value = module._buffers[key]
                if isinstance(value, FakeTensor) or isinstance(buffers.get(key), torch.Tensor) and value is not buffers[key]:
                    if key in buffers:
                        module._buffers[key] = buffers[key]
                    else:
                        del module._buffers[key]
            for key in list(module.__dict__):
                value = module.__dict__[key]
                if isinstance(value, FakeTensor) or isinstance(attributes.get(key), torch.Tensor) and value is not attributes[key]:
                    if key in attributes:
                        module.__dict__[key] = attributes[key]
                    else:
                        del module.__dict__[key]


class kept_grads:
    """Takes .grad away from every known tensor during a capture and gives it back afterwards."""

    def __init__(self, tensors):
        self.tensors = list(tensors)

    def __enter__(self):
        self.saved, self.seen = [], set()
        for tensor in self.tensors:
            self.hide(tensor)
        return self

    def hide(self, tensor):
        if tensor.is_leaf and id(tensor) not in self.seen:
            self.seen.add(id(tensor))
            self.saved.append((tensor, tensor.grad))
            if tensor.grad is not None:
                tensor.grad = None

    def __exit__(self, *exc):
        for tensor, grad in self.saved:
            if tensor.grad is not grad:
                tensor.grad = None
                if grad is not None:
                    tensor.grad = grad


class kept_modes:
    """The first capture of an engine decides train() or eval() of each module; later ones run in the same modes."""

    def __init__(self, engine, modules):
        if engine.modes is None:
            engine.modes = {id(m): (m, m.training) for _, m in modules}
        self.modes = engine.modes

    def __enter__(self):
        self.before = [(m, m.training) for m, _ in self.modes.values()]
        for module, training in self.modes.values():
            module.training = training

    def __exit__(self, *exc):
        for module, training in self.before:
            module.training = training
