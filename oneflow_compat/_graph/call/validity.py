"""The validity tests of a captured program, in the order of the prologue."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..._global.tensor import OfSeveralRanks
from ..program.captured import Captured
from ..program.locations import ModuleTensor
from ..program.python_values import get_item, tensor_meta
from ..program.scalar_guards import compile_guard
from .memory_identity import MemoryIdentity
from .prologue import Prologue, Scope, Stage, TensorSlot, Test
from .state_identity import StateIdentity

VALUES = "a tensor that build() branches on or reads with .item()"


@dataclass(frozen=True)
class FixedOptions:
    """The options of a parameter group that are constants in the program, with their values."""

    optimizer: int
    group: int
    names: tuple[str, ...]
    values: tuple

    def getter(self):
        """Return the function from a parameter group to its values of these options."""
        names = self.names
        return operator.itemgetter(*names) if len(names) > 1 else lambda group: tuple(group[n] for n in names)


class Validity:
    """Decides whether a captured program serves a call. The tests are those that `tests` lists."""

    def __init__(self, captured: Captured):
        self.program, self.guards, self.live = captured.program, captured.guards, captured.live
        # whether no later call can be served: optimizer state was replaced, or the program served its only call
        self.dead = False
        self.watch = self.guards.python_values
        self.watch.bind(self.guards.free_index, self.live.entries.values())
        self.options = tuple(_fixed_options(captured))
        self._guard = compile_guard(self.program) if self.program.guard is not None else None
        self.prologue = Prologue(self.program, self.live, self.tests)

    def tests(self, scope: Scope, tensors: tuple[TensorSlot, ...]) -> Sequence[Test]:
        """Return all validity tests in their order."""
        self._expected = {tensor: scope.bind(tensor.live) for tensor in tensors}
        self._names = scope.names
        self.identity = StateIdentity(self.live)
        self.memory = MemoryIdentity(self.program, self.guards)
        return (
            Test("sizes of arguments", self._same_sizes(scope), Stage.ARGUMENTS),
            Test("program serves further calls", f"not {scope.bind(self)}.dead"),
            Test("modules and optimizers", f"{scope.bind(self.identity.holds)}()", on_failure=self._rebind),
            Test(
                "values read from Python", f"{scope.bind(self.watch.holds)}({scope.bind(self._rebind_free)})"
            ),
            Test("options of parameter groups", self._same_options(scope)),
            Test("named tensors", self._same_tensors(scope, tensors), Stage.TENSORS, self._replace_tensors),
            Test("dtype and device of parameters", _same_dtypes(scope, tensors), Stage.TENSORS),
            Test("values that build() read", self._same_values(scope), Stage.VALUES, self._note_values),
            Test("shared memory", self._same_memory(scope), Stage.VALUES, self._note_memory),
        )

    def _same_sizes(self, scope):
        """The key of the entry has all sizes but those that are symbols."""
        dimensions = self.program.dimensions
        return f"{scope.bind(dimensions.compile())}(args)" if dimensions is not None else ""

    # -- optimizers ------------------------------------------------------------------
    def _rebind(self):
        """Read the optimizer state that replaced the old one, for example by load_state_dict."""
        identity = self.identity
        if not (identity.state_replaced and identity.same_layout):
            self.watch.changed, self.dead = identity.changed, identity.state_replaced
            return False
        self.prologue.bind()
        return True

    def _same_options(self, scope):
        tests = []
        for options in self.options:
            group = self.live.optimizers[options.optimizer].param_groups[options.group]
            tests.append(
                f"{scope.bind(options.getter())}({scope.bind(group)}) == {scope.bind(options.values)}"
            )
        return _all(tests)

    def changed_options(self) -> dict[int, set]:
        """Return {optimizer: names of numeric options that differ from the capture}."""
        changed: dict[int, set] = {}
        for options in self.options:
            groups = self.live.optimizers[options.optimizer].param_groups
            if options.group < len(groups):
                current = options.getter()(groups[options.group])
                for name, now, before in zip(options.names, current, options.values):
                    if now != before and _is_numeric(now) and _is_numeric(before):
                        changed.setdefault(options.optimizer, set()).add(name)
        return changed

    # -- tensors -----------------------------------------------------------------------
    def _rebind_free(self, index, tensor):
        self.memory.state_replaced()
        self.live.free[index] = tensor

    def _same_tensors(self, scope, tensors):
        """Each named tensor is the one of the capture, also under its other names.

        Freezing a parameter needs another program, so a trained parameter still requires a gradient.
        """
        tests = [f"{tensor.variable} is {self._expected[tensor]}" for tensor in tensors]
        self._aliases = [
            (tensor, container, key)
            for tensor in tensors
            for aliased, container, key in self.live.aliases
            if aliased is tensor.live
        ]
        tests += [f"{scope.bind(c)}[{key!r}] is {tensor.variable}" for tensor, c, key in self._aliases]
        if self.program.training:
            parameters = [t for t in tensors if t.slot.role == "param"]
            tests += [f"{t.variable}.requires_grad" for t in parameters if t.live.requires_grad]
            frozen = [t.variable for t in parameters if not t.live.requires_grad]
            if frozen:
                any_requires_grad = scope.bind(torch._C._any_requires_grad)
                tests.append(f"not {any_requires_grad}({', '.join(frozen)})")
        return _all(tests)

    def _replace_tensors(self):
        """Read replaced tensors from now on; return False if the program does not accept one of them.

        The program accepts a tensor with the same metadata, unless it is a parameter being trained.
        """
        self.memory.state_replaced()
        replaced = [t for t in self._expected if t.live is not self._names[self._expected[t]]]
        for tensor in replaced:
            now, before = tensor.live, self._names[self._expected[tensor]]
            if (
                self.program.training
                and tensor.slot.role == "param"
                or not isinstance(now, torch.Tensor)
                or isinstance(now, OfSeveralRanks)
                or tensor_meta(now) != tensor_meta(before)
            ):
                self.watch.changed = tensor.slot.name
                return False
        for tensor, container, key in self._aliases:
            if get_item(container, key) is not tensor.live:
                self.watch.changed = tensor.slot.name
                return False
        for tensor in replaced:
            self._names[self._expected[tensor]] = tensor.live
        return bool(replaced)

    # -- values ------------------------------------------------------------------------
    def _same_values(self, scope):
        return f"{scope.bind(self._guard)}(*values)" if self._guard is not None else ""

    def _same_memory(self, scope):
        return f"{scope.bind(self.memory.holds)}(values)" if self.memory.is_needed else ""

    def _note_memory(self):
        self.watch.changed = "memory that inputs share"
        return False

    def _note_values(self):
        if self.guards.reads_values:
            self.watch.changed = VALUES
        return False


def _all(conditions):
    return " and ".join(conditions)


def _same_dtypes(scope, tensors):
    """Three parameters stand for all: casting or moving a module in place changes them all."""
    parameters = [t for t in tensors if isinstance(t.slot.location, ModuleTensor) and t.slot.role == "param"]
    picked = sorted({0, len(parameters) // 2, len(parameters) - 1}) if parameters else []
    return _all(
        f"{t.variable}.dtype is {scope.bind(t.slot.dtype)} and {t.variable}.device == {scope.bind(t.slot.device)}"
        for t in (parameters[i] for i in picked)
    )


def _fixed_options(captured: Captured):
    """Yield the fixed options of each group.

    If build() read the options, each of them is fixed, although the update takes some as inputs.
    """
    for o, optimizer in enumerate(captured.live.optimizers):
        is_read, live = o in captured.guards.options_read, captured.guards.live_options.get(o, ())
        for g, group in enumerate(optimizer.param_groups):
            names = tuple(
                name
                for name, value in group.items()
                if name != "params"
                and (is_read or name not in ("lr", "initial_lr") and name not in live)
                and not isinstance(value, torch.Tensor)
            )
            yield FixedOptions(o, g, names, tuple(group[name] for name in names))


def _is_numeric(value: Any) -> bool:
    values = value if type(value) is tuple else (value,)
    return all(type(v) in (int, float) for v in values)
