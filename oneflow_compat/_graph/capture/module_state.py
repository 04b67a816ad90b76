"""Where live tensors are: names and places of module state, read again in every call."""

from __future__ import annotations

import types

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor

from ..._global.tensor import memory_of
from ..errors import CaptureError
from ..program.locations import LiveState, ModuleTensor, OptimizerParameter, StateEntry
from ..program.symbolic import SYMBOLIC_NUMBERS
from .patching import forget, log

_DEPTH = 4  # of lists and dicts in each other in which results may be kept
_ENGINE = __package__.rpartition(".")[0]  # objects of the engine are not walked


def _memory(tensor):
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def resolve(value):
    """Front ends may give a value or a function returning it."""
    if callable(value) and not isinstance(value, (torch.nn.Module, dict)):
        return value()
    return value


class StateMap:
    """Names every tensor that the engine knows; `entry(tensor)` gives its StateEntry."""

    def __init__(self, modules, tensors, optimizers):
        self.modules = dict(modules)
        self.tensors = tensors
        self.optimizers = list(optimizers)
        self.by_id: dict[int, StateEntry] = {}
        self.aliases: list = []  # (tensor, container, key) of each further name of a tensor
        for prefix, module in self.modules.items():
            for path, part in module.named_modules(prefix=prefix, remove_duplicate=True):
                self._add(part._parameters, path, "param")
                self._add(part._buffers, path, "buffer")
        for name, tensor in tensors.items():
            if tensor is not None:
                role = "param" if isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad else "buffer"
                entry = StateEntry(role, name, ModuleTensor(name), tensors, name, tensor)
                self.by_id.setdefault(id(tensor), entry)
        for o, (optimizer, _) in enumerate(self.optimizers):
            for g, group in enumerate(optimizer.param_groups):
                for i, tensor in enumerate(group["params"]):
                    name, location = f"optimizer{o}.group{g}.{i}", OptimizerParameter(o, g, i)
                    entry = StateEntry("param", name, location, group["params"], i, tensor)
                    entry = self.by_id.setdefault(id(tensor), entry)
                    self.by_id.setdefault(id(memory_of(tensor)), entry)

    def _add(self, container, path, role):
        for key, tensor in container.items():
            if tensor is None:
                continue
            name = f"{path}.{key}" if path else key
            entry = StateEntry(role, name, ModuleTensor(name), container, key, tensor)
            entry = self.by_id.setdefault(id(tensor), entry)
            self.by_id.setdefault(id(memory_of(tensor)), entry)
            if entry.container is not container or entry.key != key:
                self.aliases.append((tensor, container, key))

    def entry(self, tensor) -> StateEntry | None:
        return self.by_id.get(id(tensor))

    def name_of(self, tensor) -> str | None:
        entry = self.by_id.get(id(tensor))
        return entry.name if entry else None

    def live(self, free: list) -> LiveState:
        """Return the objects that the locations of a program name."""
        entries = {entry.name: entry for entry in self.by_id.values()}
        return LiveState(
            entries,
            tuple(optimizer for optimizer, _ in self.optimizers),
            free,
            modules=tuple(self.all_modules()),
            aliases=tuple(self.aliases),
        )

    def all_modules(self):
        """(path, module) of every module, once."""
        seen = set()
        for prefix, module in self.modules.items():
            for path, part in module.named_modules(prefix=prefix):
                if id(part) not in seen:
                    seen.add(id(part))
                    yield path, part


_INTERNAL = frozenset(vars(torch.nn.Module()))
_PLAIN = (int, float, bool, str, type(None))
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


class kept_modules:
    """Puts buffers and attributes back that build() bound to symbolic tensors, and says what the program must
    do instead.

    Where a real tensor of the same shape and dtype was before, the program copies the new value into it.
    Anything else (None, nothing, a tensor of another shape, a tuple of them) is bound anew after each run,
    and so are numbers and flags.
    A value made of constants only is a cache, unless a state dict would hold it: build() makes it again.
    """

    def __init__(self, modules, owner, recorder):
        self.recorder, self.before, self.known = recorder, [], set()
        self.first = [m for _, m in modules]
        if owner is not None:
            self.first.append(owner)
        self.stores: list = []  # (container, key, value with symbolic tensors)
        self.children: list = []  # (module, what it had of modules)
        self.late: set = set()  # (id(container), key) of `stores` that hold things build() made

    def __enter__(self):
        log(self.restore_everything)
        for owner in self.first:
            self.add(owner)
        return self

    def add(self, owner):
        """Remember a module (or the object build() belongs to) as it is now."""
        if id(owner) in self.known:
            return
        self.known.add(id(owner))
        attributes = {
            k: v for k, v in owner.__dict__.items() if k not in _INTERNAL or isinstance(v, torch.Tensor)
        }
        contents = {k: _copied(v) for k, v in attributes.items() if type(v) in (list, dict)}
        buffers = owner._buffers if isinstance(owner, torch.nn.Module) else {}
        self.before.append((owner, dict(buffers.items()), attributes, contents))
        if isinstance(owner, torch.nn.Module) and isinstance(
            owner._modules, dict
        ):  # a ScriptModule's cannot be changed
            self.children.append((owner, dict(owner._modules)))

    def changes(self):
        """Return [(old real tensor, new tensor)] to copy, and fill `stores`.

        No tensor is copied into memory of registered state.
        """
        self._pairs: list = []
        self._registered_memories = self._memories_of_registered_state()
        self._sources: dict = {}  # memory -> the tensor that is copied into it
        for owner, buffers, attributes, contents in self.before:
            self._compare_buffers(owner, buffers)
            for key, new in owner.__dict__.items():
                if key in _INTERNAL:
                    continue
                old = attributes.get(key)
                if new is old and key in contents:
                    _walk(new, contents[key], self._compare)
                else:
                    self._compare(owner.__dict__, key, old, new)
        self._store_created_objects()
        if len(self._pairs) > 1:  # two that were swapped: read all before writing any
            with torch.no_grad():
                return [(old, new.clone()) for old, new in self._pairs]
        return self._pairs

    def _memories_of_registered_state(self):
        memories = set()
        for owner, buffers, _, _ in self.before:
            parameters = owner._parameters.values() if isinstance(owner, torch.nn.Module) else ()
            memories.update(_memory(t) for t in (*parameters, *buffers.values()) if t is not None)
        return memories

    def _compare_buffers(self, owner, buffers):
        if isinstance(owner, torch.nn.Module):
            for key, new in owner._buffers.items():
                saved = key not in owner._non_persistent_buffers_set
                self._compare(owner._buffers, key, buffers.get(key), new, True, saved)

    def _compare(self, container, key, old, new, registered=False, saved=False):
        """Decide whether the program copies the new value into the old one, stores it, or does nothing.

        `registered`: it is a buffer. `saved`: a state dict holds it.
        """
        if new is old:
            return
        if type(new) in _PLAIN and not isinstance(old, torch.Tensor):
            is_stored = type(new) is not type(old) or new != old
        elif isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor) and _fits(old, new):
            is_stored = not self._is_copied(old, new, registered)
        elif type(new) is tuple and type(old) is tuple and len(new) == len(old) and all(map(_fits, old, new)):
            self._pairs.extend((o, n) for o, n in zip(old, new) if o is not n)
            is_stored = False
        else:
            is_stored = _symbolic(new) and (saved or not self._constant(new))
        if is_stored:
            self.stores.append((container, key, new))

    def _is_copied(self, old, new, registered):
        """Return True if the old tensor gets the values of the new one, or already has them."""
        if self._sources.setdefault(_memory(old), new) is not new and not registered:
            return False  # one tensor under two names
        if registered or _memory(old) not in self._registered_memories:
            self._pairs.append((old, new))
            return True
        return new.layout is torch.strided and self._place(new) == self._place(old)

    def _store_created_objects(self):
        """Store the fake tensors in modules and objects that build() created and bound."""
        stored_objects: set = set()
        for container, key, value in self._bound():
            parts = {id(instance): list(_symbolic_parts(instance)) for instance in _made(value, self.known)}
            if not any(parts.values()):
                continue
            for instance, instance_parts in parts.items():
                if instance not in stored_objects:
                    self.stores.extend(instance_parts)
            stored_objects.update(parts)
            self.late.add((id(container), key))
            if not _symbolic(value):  # else it is stored already
                self.stores.append((container, key, value))

    def fill(self, modules):
        """Store real tensors after each run in modules that build() made and returns."""
        for module in modules:
            self.stores.extend(part for new in _made(module, self.known) for part in _symbolic_parts(new))

    def _bound(self):
        """Yield (container, key, value) of attributes and modules that build() put into existing modules."""
        for owner, children in self.children:
            yield from ((owner._modules, k, v) for k, v in owner._modules.items() if v is not children.get(k))
        for owner, _, attributes, _ in self.before:
            yield from (
                (owner.__dict__, k, v)
                for k, v in owner.__dict__.items()
                if k not in _INTERNAL and v is not attributes.get(k)
            )

    def _place(self, tensor):
        """Return the memory, offset and strides of a tensor.

        A symbolic tensor that is a view of state is located by the live tensor that it stands for.
        """
        real, base_offset = tensor, 0
        if isinstance(tensor, FakeTensor):
            real = next(
                (real for real, _, twin in self.recorder.lifted.values() if _memory(twin) == _memory(tensor)),
                tensor,
            )
            base_offset = real.storage_offset() if real is not tensor else 0
        return _memory(real), base_offset + tensor.storage_offset(), tensor.stride()

    def _constant(self, value):
        from .known import constant_value

        return not any(
            type(t) in SYMBOLIC_NUMBERS
            or isinstance(t, FakeTensor)
            and constant_value(self.recorder, t._of_node) is None
            for t in pytree.tree_leaves(value)
        )

    def __exit__(self, kind, *exc):
        self.restore(kind is not None)
        forget(self.restore_everything)

    def restore_everything(self):
        self.restore(everything=True)

    def restore(self, everything=False):
        """`everything`: numbers and flags as well, after an error."""
        for owner, buffers, attributes, contents in self.before:
            places = [(owner.__dict__, attributes, _INTERNAL)]
            if isinstance(owner, torch.nn.Module):
                places.append((owner._buffers, buffers, ()))
            for now, before, skip in places:
                if everything and isinstance(now, dict):
                    now.update({k: v for k, v in before.items() if k not in now})
                for key in list(now.keys()):
                    value = now[key]
                    if key in skip:
                        continue
                    symbolic = _symbolic(value) or (id(now), key) in self.late
                    if key not in before:
                        if everything or symbolic:
                            del now[key]
                    elif (
                        value is not before[key]
                        and (everything or isinstance(before[key], torch.Tensor))
                        or symbolic
                    ):
                        now[key] = before[key]
            for key, copied in contents.items():
                _put_back(attributes[key], copied, everything)
        for owner, children in self.children:
            if everything and owner._modules != children:
                owner._modules.clear()
                owner._modules.update(children)
            for key in [k for k in owner._modules if (id(owner._modules), k) in self.late]:
                if key in children:
                    owner._modules[key] = children[key]
                else:
                    del owner._modules[key]


def of_their_own(leaves, used_memories):
    """Return the leaves to store; clone a tensor if another stored tensor uses its memory.

    The reason is that a later call may write into the tensor of an attribute.
    """
    own = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            memory = _memory(memory_of(leaf))
            if memory in used_memories:
                with torch.no_grad():
                    leaf = leaf.clone()
            used_memories.add(memory)
        own.append(leaf)
    return own


def memories(values):
    return {_memory(memory_of(v)) for v in values if isinstance(v, torch.Tensor)}


def _made(value, known_ids):
    """Yield the modules and other Python objects nested in a value, except those in `known_ids`."""
    pending, seen = [value], {}
    while pending:
        value = pending.pop()
        if (
            id(value) in seen
            or id(value) in known_ids
            or isinstance(value, (torch.Tensor, type, *_CODE))
            or type(value).__module__.startswith(_ENGINE)
        ):
            continue
        seen[id(value)] = value
        if type(value) in pytree.SUPPORTED_NODES:
            pending.extend(pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0])
        elif hasattr(value, "__dict__"):
            yield value
            pending.extend(value.__dict__.values())  # a module's children as well


def _symbolic_parts(instance):
    """(container, key, value) of the symbolic tensors of a module or of another object."""
    containers = [(instance.__dict__, {k: v for k, v in instance.__dict__.items() if k not in _INTERNAL})]
    if isinstance(instance, torch.nn.Module):
        containers += [(_Parameters(instance), instance._parameters), (instance._buffers, instance._buffers)]
    return (
        (container, key, value)
        for container, entries in containers
        for key, value in entries.items()
        if _symbolic(value)
    )


class _Parameters:
    """The parameters of a module that build() made: what is stored becomes one."""

    def __init__(self, module):
        self.held = module._parameters

    def __getitem__(self, key):
        return self.held[key]

    def __setitem__(self, key, value):
        self.held[key] = torch.nn.Parameter(value, self.held[key].requires_grad)


def _symbolic(value, seen=None):
    """Return True if a value contains a symbolic tensor or a number computed from sizes.

    Containers that torch's pytree knows (lists, dicts, TensorDict) are searched, too.
    """
    if isinstance(value, FakeTensor) or type(value) in SYMBOLIC_NUMBERS:
        return True
    node_definition, seen = pytree.SUPPORTED_NODES.get(type(value)), {} if seen is None else seen
    if node_definition is None or id(value) in seen:
        return False
    seen[id(value)] = value
    return any(
        _symbolic(v, seen)
        for v in (value if type(value) in (list, tuple) else node_definition.flatten_fn(value)[0])
    )


def _fits(old, new):
    return (
        old is new
        or isinstance(old, torch.Tensor)
        and isinstance(new, torch.Tensor)
        and (old.shape, old.dtype) == (new.shape, new.dtype)
    )


def _copied(value, seen=None):
    """Lists and dicts of a value as they are now; one that is met again stands for itself."""
    seen = {} if seen is None else seen
    if type(value) not in (list, dict) or id(value) in seen:
        return value
    seen[id(value)] = value
    if type(value) is list:
        return [(v, _copied(v, seen)) for v in value]
    return {k: (v, _copied(v, seen)) for k, v in value.items()}


def _items(value):
    return list(value.items()) if type(value) is dict else list(enumerate(value))


def _walk(now, copied, differs, depth=0):
    """Compare a list or dict that was changed in place with what it held."""
    if copied is now:  # met before
        return
    if depth >= _DEPTH and _symbolic(now):
        raise CaptureError(
            f"build() kept a tensor in lists or dicts more than {_DEPTH} deep in an attribute",
            "Keep it less deep: no later call would notice it there.",
        )
    before = dict(_items(copied))
    if type(now) is not type(copied) or type(now) is list and not _symbolic(now) and len(now) != len(copied):
        return
    for key, new in _items(now):
        old, inner = before.get(key, (None, None))
        if new is old and type(new) in (list, dict):
            _walk(new, inner, differs, depth + 1)
        else:
            differs(now, key, old, new)


def _put_back(now, copied, everything):
    if type(now) not in (list, dict) or copied is now:
        return
    if everything or _symbolic(now):
        old = [(k, v) for k, (v, _) in _items(copied)]
        if type(now) is dict:
            now.clear()
            now.update(old)
        else:
            now[:] = [v for _, v in old]
    for _, (value, inner) in _items(copied):
        _put_back(value, inner, everything)


class kept_grads:
    """Takes .grad away from every known tensor during a capture and gives it back afterwards."""

    def __init__(self, tensors):
        self.tensors = list(tensors)

    def __enter__(self):
        self.saved, self.seen = [], set()
        log(self.restore)
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
        self.restore()
        forget(self.restore)

    def restore(self):
        for tensor, grad in self.saved:
            if tensor.grad is not grad:
                tensor.grad = None
                if grad is not None:
                    tensor.grad = grad


class kept_modes:
    """The first capture of an engine decides train() or eval() of each module; later ones run in the same
    modes.
    """

    def __init__(self, engine, modules):
        if engine.modes is None:
            engine.modes = {id(m): (m, m.training) for _, m in modules}
        self.modes = engine.modes

    def __enter__(self):
        self.before = [(m, m.training) for m, _ in self.modes.values()]
        log(self.restore)
        for module, training in self.modes.values():
            module.training = training

    def __exit__(self, *exc):
        self.restore()
        forget(self.restore)

    def restore(self):
        for module, training in self.before:
            module.training = training
