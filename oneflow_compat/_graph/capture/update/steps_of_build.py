"""The optimizers and schedules that build() steps itself, as a training step of eager mode does."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...._active import capturing
from ...errors import CapturedAgain, CaptureError
from ..patches.patching import patched_attributes
from ..state_map import resolve
from . import sparse_rows
from .step import external_updates

if TYPE_CHECKING:
    from ..interfaces import CaptureInterface
    from ..values.option_reads import OptionReads
    from .step import Update


class FoundOptimizer(CapturedAgain):
    """build() steps an optimizer that the capture did not know: capture again with it."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(type(optimizer).__name__)
        self.optimizer = optimizer


def is_known(capture: CaptureInterface, optimizer: Optimizer) -> bool:
    return any(optimizer is known for known, _ in resolve(capture.definition.optimizers))


def is_of_build(capture: CaptureInterface, optimizer: Optimizer) -> bool:
    """Whether the step makes an optimizer, or parameters of it."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    has_fakes = any(isinstance(p, FakeTensor) for p in params)
    return has_fakes or id(optimizer) in capture.reads.ids_made_by_build()


def find_early(capture: CaptureInterface, owner: object) -> None:
    """Capture again with an optimizer whose zero_grad() is called: it is often the first line of a step."""
    if isinstance(owner, Optimizer) and not is_known(capture, owner) and not is_of_build(capture, owner):
        raise FoundOptimizer(owner)


class StepsOfBuild:
    """Records the steps that build() makes: of optimizers where they stand, of schedules after the run.

    A schedule computes Python numbers, so a program cannot hold its step.
    """

    def __init__(self, update: Update | None) -> None:
        self._update = update
        self.options: OptionReads | None = None  # once build() runs
        self.reads: Any = None  # reads of build(), set when it starts
        self.assigned: set[Any] = set()  # (id(container), key) that build() has assigned so far
        self.written: set[Any] = set()  # (source, id(container)) that it wrote
        self.schedulers: list[Any] = []  # the schedules in the order of their steps
        # optimizers that still have the rates from before the step of a schedule
        self._rates_moved: list[Optimizer] = []

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        changes: list[tuple[object, str, object]] = []
        for index, (optimizer, _) in enumerate(self._update.state.optimizers if self._update else ()):
            changes.append((optimizer, "step", self._step(index, optimizer, optimizer.step)))
        for cls in _with_subclasses(LRScheduler):
            if "step" in vars(cls):
                changes.append((cls, "step", self._step_of_schedule(vars(cls)["step"])))
        with patched_attributes(changes):
            yield

    def _step(self, index: int, optimizer: Optimizer, original: Callable[..., Any]) -> Callable[..., Any]:
        update: Any = self._update

        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            if not capturing() or update.recorder.phase == "update":
                return original(*args, **kwargs)
            if any(value is not None for value in (*args, *kwargs.values())):
                raise CaptureError(
                    f"the step calls step() of {type(optimizer).__name__} with arguments",
                    "A program holds step() without arguments; such a call runs in eager mode.",
                )
            if self.options is not None:
                self.options.hide()
            with update.phase():
                self._refuse(optimizer)
            before = set(self.assigned), set(self.written)
            result = update.step_in_build(index, optimizer)
            self.assigned &= before[0]  # assignments of step() itself are followed
            self.written &= before[1]
            return result

        return step

    def refuse_changes(self) -> None:
        """Raise if build() itself has assigned options, groups or state of an optimizer.

        A run reads them before its first operator.
        """
        owners = {owner for owner, _ in self.assigned} | {owner for _, owner in self.written}
        for optimizer, states, groups in self._update.snapshots if self._update is not None else ():
            holders = [optimizer.param_groups, optimizer.state, *optimizer.param_groups]
            holders += [state for state, _ in states.values()]
            if not owners.isdisjoint(map(id, holders)) or len(groups) != len(optimizer.param_groups):
                writes = self.reads.writes.option_writes
                write = next((writes[id(g)] for g in optimizer.param_groups if id(g) in writes), None)
                if write is not None:
                    raise write.error(type(optimizer))
                raise CaptureError(
                    f"the step itself changes options or state of an optimizer ({type(optimizer).__name__})",
                    "Change them before the step, or use a schedule.",
                )

    def _refuse(self, optimizer: Optimizer) -> None:
        self.refuse_changes()
        if any(optimizer is moved for moved in self._rates_moved):
            raise CaptureError(
                f"the step calls step() of {type(optimizer).__name__} after that of its schedule",
                "Call scheduler.step() last.",
            )
        params = [p for group in optimizer.param_groups for p in group["params"]]
        if optimizer in sparse_rows.lazy or any(p in external_updates for p in params):
            raise CaptureError(
                "the step calls step() of an optimizer that changes rows of tables outside of tensors",
                "Use nn.Graph and add_optimizer().",
            )
        if any(group.get("contiguous_params") for group in optimizer.param_groups):
            raise CaptureError(
                "the step calls step() of an optimizer with contiguous_params=True",
                "Leave the option out: a program has no use for it.",
            )

    def _step_of_schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if not capturing():
                return original(scheduler, *args, **kwargs)
            if isinstance(scheduler, ReduceLROnPlateau) or any(
                value is not None for value in (*args, *kwargs.values())
            ):
                raise CaptureError(
                    f"the step calls step() of {type(scheduler).__name__} with a value",
                    "A program holds scheduler.step() without arguments; call it after the step.",
                )
            if any(scheduler is stepped for stepped in self.schedulers):
                raise CaptureError(
                    f"the step calls step() of one {type(scheduler).__name__} twice", "Call it once."
                )
            if self.options is not None:
                self.options.end(scheduler.optimizer)
            if self.reads is not None:
                self.reads.attributes.end_reads_of(scheduler)
            self._rates_moved.append(scheduler.optimizer)
            self.schedulers.append(scheduler)
            return None

        return step


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    subclasses: list[type] = cls.__subclasses__()
    for each in subclasses:
        yield from _with_subclasses(each)
