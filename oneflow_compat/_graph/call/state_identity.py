"""The check before each call that modules and optimizers are built as they were at the capture.

A program reads tensors where they live, so new values need no check. Other facts about the state decide what
build() and step() do: hooks, registered names, submodules, an instance's own forward, the groups, parameters
and state holders of an optimizer. They are compared by identity.

The ordinary case costs a few passes in C over tuples of containers; the facts are compared in detail where a
length changed. torch numbers the hooks of a process: no hook was added while the next number is the same.
"""

from __future__ import annotations

import operator

import torch
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

from ..program.locations import LiveState
from ..program.nested_state import leaves
from ..program.python_values import tensor_meta

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_OPTIMIZER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GLOBAL_HOOKS = tuple(getattr(torch_module, f"_global{name}") for name in _HOOKS)
_tensor_hooks = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")


class StateIdentity:
    """The facts about modules and optimizers that one program relies on.

    After `holds()` returned False, `changed` names the fact. `state_replaced` tells whether it is the state of
    an optimizer, and `same_layout` whether the new state has the layout of the old one.
    """

    def __init__(self, live: LiveState):
        self.modules = live.modules
        self._objects = [module for _, module in self.modules]
        self.optimizers = [
            _OptimizerIdentity(index, optimizer) for index, optimizer in enumerate(live.optimizers)
        ]
        self._trained = [p for o in self.optimizers for params in o.params for p in params]
        self.facts = self._facts()
        self.changed, self.state_replaced, self.same_layout = None, False, False
        self._note()

    def _note(self):
        """Note the versions and lengths that stand for the facts."""
        self._hook_count = RemovableHandle.next_id
        hooks = (h for dicts in self._hook_dicts() for h in dicts if h)
        self._hooked = [(h, list(h.values())) for h in hooks]
        registries = [m.__dict__[name] for m in self._objects for name in _REGISTRIES]
        self._empty = tuple(registry for registry in registries if not registry)
        self._filled = (
            *(m.__dict__ for m in self._objects),
            *(registry for registry in registries if registry),
        )
        self._lengths = list(map(len, self._filled))
        self._types = list(map(type, self._objects))

    def _hook_dicts(self):
        """Yield the dicts of hooks of everything that may have hooks."""
        yield _GLOBAL_HOOKS
        for module in self._objects:
            yield [module.__dict__[name] for name in _HOOKS]
        for identity in self.optimizers:
            yield [getattr(identity.optimizer, name, {}) for name in _OPTIMIZER_HOOKS]
        yield from map(_tensor_hooks, self._trained)

    def holds(self) -> bool:
        """Whether every fact is as at the capture."""
        self.state_replaced = False
        if (
            RemovableHandle.next_id != self._hook_count
            or any(self._empty)
            or [*map(len, self._filled)] != self._lengths
            or [*map(type, self._objects)] != self._types
            or any(list(hooks.values()) != before for hooks, before in self._hooked)
        ):
            self.changed = self._difference()
            if self.changed is not None:
                return False
            self._note()
        for identity in self.optimizers:
            self.changed = identity.difference()
            if self.changed is not None:
                return False
        return self._holds_state()

    def _holds_state(self):
        replaced = [identity for identity in self.optimizers if identity.is_state_replaced()]
        if not replaced:
            return True
        self.changed, self.state_replaced = f"the state of optimizer {replaced[0].index}", True
        self.same_layout = all(identity.has_same_layout() for identity in replaced)
        return False

    def _facts(self):
        """{label: value}: equal if and only if the structure of the modules and the hooks are the same."""
        facts = {"a hook": [_contents(dicts) for dicts in self._hook_dicts()]}
        for path, module in self.modules:
            attributes = module.__dict__
            name = f"{type(module).__name__} {path}".rstrip()
            facts[f"the class of {path or name}"] = type(module)
            facts[f"the forward of {name}"] = attributes.get("forward")
            facts[f"the tensors of {name}"] = [
                [(key, value is None) for key, value in attributes[registry].items()]
                for registry in ("_parameters", "_buffers")
            ]
            facts[f"the submodules of {name}"] = [
                (key, id(value)) for key, value in attributes["_modules"].items()
            ]
        return facts

    def _difference(self):
        """The label of a fact that changed, or None."""
        facts = self._facts()
        return next((label for label, value in facts.items() if value != self.facts.get(label)), None)


def _contents(hook_dicts):
    """The functions of some dicts of hooks, by identity; None and an empty dict count as the same."""
    return tuple(
        tuple((key, id(hook)) for key, hook in hooks.items()) if hooks else () for hooks in hook_dicts
    )


class _OptimizerIdentity:
    """The groups, parameters and state holders of one optimizer."""

    def __init__(self, index, optimizer):
        self.index, self.optimizer = index, optimizer
        self.state, self.holders = optimizer.state, dict(optimizer.state)
        self._holders = list(self.holders.values())
        self.groups = list(optimizer.param_groups)
        self.params = [list(group["params"]) for group in self.groups]
        self.step = optimizer.__dict__.get("step")

    def difference(self):
        """What changed, or None."""
        optimizer = self.optimizer
        groups = optimizer.param_groups
        if not _same_objects(groups, self.groups):
            return f"the groups of optimizer {self.index}"
        for group, params in zip(groups, self.params):
            if not _same_objects(group["params"], params):
                return f"the parameters of optimizer {self.index}"
        if optimizer.__dict__.get("step") is not self.step:
            return f"the step() of optimizer {self.index}"
        return None

    def is_state_replaced(self) -> bool:
        state = self.optimizer.state
        return state is not self.state or not _same_objects(state.values(), self._holders)

    def has_same_layout(self) -> bool:
        """Whether each new holder of state has the layout of the old one."""
        state = self.optimizer.state
        return state.keys() == self.holders.keys() and all(
            _layout(state[p]) == _layout(holder) for p, holder in self.holders.items()
        )


def _same_objects(now, before) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _layout(holder):
    """{path: metadata of a tensor, type of another value} of the state of one parameter."""
    return {
        path: tensor_meta(leaf) if isinstance(leaf, torch.Tensor) else type(leaf)
        for path, leaf in leaves(holder)
    }
