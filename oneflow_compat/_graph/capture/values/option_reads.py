"""Options of optimizers that build() reads: numbers become inputs of the program, other options constants."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.optim.lr_scheduler import LRScheduler

from ...._active import capturing
from ...errors import CaptureError
from ...program.live_numbers import LiveNumber, LiveNumbers, NumberNeeded, live_number
from ...program.locations import GroupOption
from ..patches.patching import patched_attributes, undone

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..recorder import Recorder


class _Options(LiveNumbers):
    """The options that are numbers of one capture, and what build() computes of them."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder.sizes.record)
        self.made = recorder.numbers

    def number(self, value: int | float, node: Node) -> torch.SymFloat | torch.SymInt:
        """Return the number that build() gets for an option."""
        number = super().number(value, node)
        self.made.append(weakref.ref(number.node))
        return number

    def computed(self, value: int | float, node: Node) -> LiveNumber:
        """Return a number computed of options. An object outside that keeps it would not get a value."""
        number = super().computed(value, node)
        self.made.append(weakref.ref(number))
        return number


class OptionReads:
    """The optimizers whose `param_groups` build() reads, and the options that are inputs then.

    At the first read, learning rates and options seen to change become numbers of the program
    (live_numbers.py) until build() returns.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        recorder: Recorder,
        live_options: Any,
        constants: Any,
        inputs: Any,
        placeholders: dict[Any, Any],
    ) -> None:
        """`live_options`: {optimizer: names of options that were seen to change}.

        `constants`: locations of options that stay floats. The locations of the others go to `inputs`.
        `placeholders`: {location: placeholder} of what is an input already.
        """
        self.optimizers, self.recorder = optimizers, recorder
        self.live_options, self.constants, self.inputs = live_options, constants, inputs
        self.indices: set[int] = set()  # optimizers whose groups build() reads
        self._placeholders = placeholders
        self._ended: list[Optimizer] = []  # those whose schedule has made its step
        self._shown: set[int] = set()  # optimizers whose options are numbers of the program now
        self.nodes: dict[GroupOption, Any] = {}  # location of an option -> its placeholder
        self.numbers = _Options(recorder)
        self._replaced: list[Any] = []  # (group, name, float, the number that build() sees)

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Note reads in this context. `param_groups` is an attribute, so a property of the class hides it."""
        index_of = {id(optimizer): index for index, optimizer in enumerate(self.optimizers)}

        def get(optimizer: Optimizer) -> Any:
            if self.recorder.phase != "update":
                self._refuse_late_read(optimizer)
            groups = optimizer.__dict__["param_groups"]
            index = index_of.get(id(optimizer))
            if index is not None and index not in self._shown:
                if capturing() and self.recorder.phase != "update":
                    self._read(index, groups)
            return groups

        def put(optimizer: Optimizer, groups: Any) -> None:
            optimizer.__dict__["param_groups"] = groups

        def get_rates(scheduler: LRScheduler) -> Any:
            return self._rates(scheduler)

        classes = {type(optimizer) for optimizer in self.optimizers if "param_groups" in vars(optimizer)}
        classes = {cls for cls in classes if not hasattr(cls, "param_groups")}
        properties: list[tuple[type, str, property]] = [
            (cls, "param_groups", property(get, put)) for cls in classes
        ]
        properties.append((LRScheduler, "_last_lr", property(get_rates, _put_rates)))
        with undone(self._restore), patched_attributes(properties):
            yield
        if self.numbers.is_needed:
            raise NumberNeeded("build() changes an option of an optimizer, or suppressed this error")

    def hide(self) -> None:
        """Give the groups their floats, for a step() in build(), until build() reads options again."""
        self._restore()
        self._shown.clear()

    def end(self, optimizer: Optimizer) -> None:
        """Refuse later reads: the schedule of this optimizer makes its step after the run."""
        self._ended.append(optimizer)

    def _refuse_late_read(self, optimizer: object) -> None:
        if any(optimizer is ended for ended in self._ended) and capturing():
            raise CaptureError(
                "the step reads a learning rate after the step of its schedule",
                "Read it before, or outside of the step.",
            )

    def _rates(self, scheduler: LRScheduler) -> Any:
        """Return the rates of a schedule: those of its optimizer, if they are the present ones."""
        attributes = scheduler.__dict__
        if "_last_lr" not in attributes:
            raise AttributeError("_last_lr")
        rates: Any = attributes["_last_lr"]
        optimizer: Any = attributes.get("optimizer")
        self._refuse_late_read(optimizer)
        if any(optimizer is each for each in self.optimizers) and type(rates) is list:
            options = [group.get("lr") for group in optimizer.param_groups]
            live = [rate for option in options if (rate := live_number(option)) is not None]
            if len(live) == len(options) and rates == [rate.value for rate in live]:
                return options
        return rates

    def _read(self, index: Any, groups: Any) -> None:
        self.indices.add(index)
        self._shown.add(index)
        names = {"lr", *self.live_options.get(index, ())}
        for g, group in enumerate(groups):
            for name in sorted(names & group.keys()):
                location = GroupOption(index, g, (name,))
                if type(group[name]) is float and location not in self.constants:
                    self.inputs.add(location)
                    node = self._placeholders.get(location)
                    if node is None:
                        node = self._placeholders[location] = self.recorder.placeholder(name, group[name])
                    self.nodes[location] = node
                    option = self.numbers.number(group[name], node)
                    self._replaced.append((group, name, group[name], option))
                    group[name] = option

    def _restore(self) -> None:
        """Give the groups their floats again. build() may have changed them, which a constant allows."""
        while self._replaced:
            group, name, value, option = self._replaced[-1]
            if group.get(name) is not option:
                self.numbers.is_needed = True
            group[name] = value
            self._replaced.pop()


def _put_rates(scheduler: LRScheduler, rates: Any) -> None:
    scheduler.__dict__["_last_lr"] = rates
