"""The check before each call that optimizers and the hooks of their parameters are those of the capture.

A program reads tensors where they live, so new values need no check. The groups, parameters and state holders
of an optimizer, its own step() and the hooks decide what step() does. They are compared by identity: in the
ordinary case by one loop over versions and pointers (checkers.py), and in detail after a
write.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from ..program.locations import Keys
from ..program.memory import view_of
from ..program.nested_state import found_at, leaves
from ..program.python_values import MISSING, tensor_meta
from . import sources, values
from .checkers import checker_of
from .failure import Failure
from .guard import Guard, Policy

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..program.python_values import Metadata


_OPTIMIZER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
HookDict = Mapping[int, Callable[..., Any]]
HookFacts = tuple[tuple[tuple[int, int], ...], ...]  # (number, id of the function) of each hook, by dict
_tensor_hooks = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")


@dataclass(frozen=True)
class OptimizerChange:
    """A change of optimizers, and what it leads to.

    The policy is REBIND if new groups and new state are laid out like the old ones, so that the program can
    read them instead: load_state_dict() makes such groups and such state.
    """

    failure: Failure
    policy: Policy
    has_other_state: bool = False  # no later call finds the state of the program


class OptimizerIdentity:
    """The facts about optimizers that one program relies on."""

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], differentiated: Sequence[torch.Tensor] = ()
    ) -> None:
        """`differentiated`: other tensors whose gradients the program computes, and whose hooks count."""
        self.optimizers = [_Optimizer(index, optimizer) for index, optimizer in enumerate(optimizers)]
        trained = [p for o in self.optimizers for params in o.params for p in params]
        trained_ids = {*map(id, trained)}
        self._trained = trained + [tensor for tensor in differentiated if id(tensor) not in trained_ids]
        self._hooks = self._hook_facts()
        self._sharing = self._shared_memory()
        self._note()

    def _note(self) -> None:
        guards = [guard for optimizer in self.optimizers for guard in optimizer.guards()]
        if self._trained:
            guards += self._hook_guards()
        self.checker = checker_of(guards)

    def _hook_guards(self) -> Iterator[Guard]:
        """Yield guards of the hooks. torch numbers the hooks of a process when it adds one."""
        yield Guard(sources.Attribute("next_id"), RemovableHandle, RemovableHandle.next_id)
        for dicts in self._hook_dicts():
            for hooks in dicts:
                if hooks:
                    yield Guard(sources.CONTENTS, hooks, values.contents(hooks))

    def _hook_dicts(self) -> Iterator[Sequence[HookDict | None]]:
        for optimizer in self.optimizers:
            yield [getattr(optimizer.optimizer, name, {}) for name in _OPTIMIZER_HOOKS]
        yield from map(_tensor_hooks, self._trained)

    def _hook_facts(self) -> list[HookFacts]:
        return list(map(_hooks_of, self._hook_dicts()))

    def check(self) -> OptimizerChange | None:
        """Return what is not as at the capture, or None; the checker answers the ordinary case."""
        for optimizer in self.optimizers:
            optimizer.take_schedule()
        changed = "a hook" if self._hook_facts() != self._hooks else None
        differences = (optimizer.difference() for optimizer in self.optimizers)
        changed = changed or next(filter(None, differences), None)
        if changed is not None:
            return OptimizerChange(Failure(changed), Policy.FAIL)
        replaced = self._replaced()
        if replaced is None and self._shared_memory() != self._sharing:
            return OptimizerChange(Failure("memory that state of an optimizer shares"), Policy.FAIL)
        if replaced is None:
            self._note()
        return replaced

    def _shared_memory(self) -> list[int]:
        """For each parameter and each tensor of options and state, the index of the earliest in its memory.

        The program reads tensors in one memory as one input, so it must end when they become separate.
        """
        earliest: dict[Hashable, int] = {}
        tensors = (tensor for optimizer in self.optimizers for tensor in optimizer.tensors())
        return [earliest.setdefault(view_of(tensor), index) for index, tensor in enumerate(tensors)]

    def _replaced(self) -> OptimizerChange | None:
        """Return which state or groups were replaced, the state first."""
        with_state = [optimizer for optimizer in self.optimizers if optimizer.is_state_replaced()]
        with_groups = [optimizer for optimizer in self.optimizers if optimizer.has_new_groups()]
        if not with_state and not with_groups:
            return None
        has_same_layout = all(optimizer.has_same_layout() for optimizer in with_state)
        policy = Policy.FAIL
        if has_same_layout and self._shared_memory() == self._sharing:
            policy = Policy.REBIND
        if with_state:
            changed = f"the state of optimizer {with_state[-1].index}"
        else:
            changed = f"the groups of optimizer {with_groups[-1].index}"
        return OptimizerChange(Failure(changed), policy, bool(with_state))


class _Optimizer:
    """The groups, parameters and state holders of one optimizer."""

    def __init__(self, index: int, optimizer: Optimizer) -> None:
        self.index, self.optimizer = index, optimizer
        self.state, self.holders = optimizer.state, dict(optimizer.state)
        self._holders = list(self.holders.values())
        self._layouts = [*map(_layout, self._holders)]
        self.groups = list(optimizer.param_groups)
        self.keys = [*map(_names, self.groups)]
        self.params = [list(group["params"]) for group in self.groups]
        self.step = optimizer.__dict__.get("step", MISSING)
        self._step_function = _below_schedules(optimizer)

    def guards(self) -> Iterator[Guard]:
        """Yield guards of the sources that are compared."""
        attributes = vars(self.optimizer)
        # a class that wraps an optimizer has properties
        if not {"param_groups", "state"} <= attributes.keys():
            yield Guard(sources.Flag("is_same"), (self,), True)
        for name in ("param_groups", "state", "step"):
            yield Guard(sources.Item(name), attributes, attributes.get(name, MISSING))
        groups = self.optimizer.param_groups
        yield Guard(sources.CONTENTS, groups, values.contents(groups))
        for group in groups:
            yield Guard(sources.Item("params"), group, group["params"])
            yield Guard(sources.CONTENTS, group["params"], values.contents(group["params"]))
        state = self.optimizer.state
        yield Guard(sources.CONTENTS, state, values.contents(state))
        for holder in (*groups, *state.values()):  # step() may look for what is not there yet
            if isinstance(holder, dict):
                yield Guard(sources.SIZE, holder, len(holder))
        for holder in (*groups, *state.values()):  # another tensor may have another layout, or share memory
            for path, tensor in _tensors_in(holder):
                container = found_at(holder, path[:-1])
                source = sources.Item if isinstance(container, dict) else sources.Element
                yield Guard(source(path[-1]), container, tensor)
                yield Guard(sources.LAYOUT, tensor, tensor_meta(tensor))

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the parameters and the tensors in options and state, in a fixed order."""
        for group in self.optimizer.param_groups:
            yield from group["params"]
        for holder in (*self.optimizer.param_groups, *self.optimizer.state.values()):
            for _, tensor in _tensors_in(holder):
                yield tensor

    def take_schedule(self) -> None:
        """Take the step() of a schedule for that of the capture.

        A new schedule puts a function around step(), which only notes that the optimizer has stepped.
        """
        optimizer, step = self.optimizer, self.optimizer.__dict__.get("step", MISSING)
        if step is not self.step and _below_schedules(optimizer) is self._step_function:
            self.step, optimizer._opt_called = step, True  # type: ignore[attr-defined]

    def difference(self) -> str | None:
        """Return what changed, or None."""
        optimizer = self.optimizer
        groups = optimizer.param_groups
        if [*map(_names, groups)] != self.keys:
            return f"the groups of optimizer {self.index}"
        for group, params in zip(groups, self.params):
            if not _same_objects(group["params"], params):
                return f"the parameters of optimizer {self.index}"
        if optimizer.__dict__.get("step", MISSING) is not self.step:
            return f"the step() of optimizer {self.index}"
        if not self.is_state_replaced() and [*map(_layout, self._holders)] != self._layouts:
            return f"the state of optimizer {self.index}"
        return None

    @property
    def is_same(self) -> bool:
        return not (self.difference() or self.has_new_groups() or self.is_state_replaced())

    def has_new_groups(self) -> bool:
        return not _same_objects(self.optimizer.param_groups, self.groups)

    def is_state_replaced(self) -> bool:
        state = self.optimizer.state
        return state is not self.state or not _same_objects(state.values(), self._holders)

    def has_same_layout(self) -> bool:
        """Whether each new holder of state has the layout of the old one."""
        state = self.optimizer.state
        return state.keys() == self.holders.keys() and all(
            _layout(state[p]) == layout for p, layout in zip(self.holders, self._layouts)
        )


def _below_schedules(optimizer: Optimizer) -> object:
    """Return the function that step() runs, without those that schedules put around it."""
    step: Any = optimizer.step
    while hasattr(step, "_wrapped_by_lr_sched"):
        step = step.__wrapped__
    return getattr(step, "__func__", step)


def _names(group: dict[str, object]) -> set[str]:
    """Return the names of the options of a group. A scheduler adds the first rate for itself."""
    return group.keys() - {"initial_lr"}


def _same_objects(now: Collection[object], before: Collection[object]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _tensors_in(holder: object) -> Iterator[tuple[Keys, torch.Tensor]]:
    """Yield (path, tensor) of a parameter group's options, or of the state of one parameter."""
    for path, leaf in leaves(holder) if isinstance(holder, dict) else ():
        if isinstance(leaf, torch.Tensor) and path[0] != "params":
            yield path, leaf


def _layout(holder: object) -> dict[Keys, Metadata | type]:
    """{path: metadata of a tensor, type of another value} of the state of one parameter."""
    return {
        path: tensor_meta(leaf) if isinstance(leaf, torch.Tensor) else type(leaf)
        for path, leaf in leaves(holder)
    }


def _hooks_of(hook_dicts: Iterable[HookDict | None]) -> HookFacts:
    """Return the functions of some dicts of hooks, by identity; None and an empty dict count as the same."""
    return tuple(
        tuple((key, id(hook)) for key, hook in hooks.items()) if hooks else () for hooks in hook_dicts
    )
