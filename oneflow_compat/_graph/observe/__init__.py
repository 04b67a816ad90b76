"""What build() reads from Python: observed while it runs, and guarded before each later call.

The seam: `why_unobserved()` is None if reads can be observed here. `observe(...)` is a context in which
build() runs, and its `finish(...)` returns what was `Observed`. `observe_steps()` does the same for step() of
optimizers.

- `instrumentation/`: copies of the user's code that call a hook before each read
- `hooks/`: the hooks, which make a guard of each read
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks

from ..._active import capturing
from .hooks.tensor_reads import facts_of_arguments
from .messages import report_local_code, report_mode, report_repeated, report_unfollowed
from .support import why_unobserved

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from .hooks.reads import Reads

__all__ = [
    "facts_of_arguments",
    "leave_out_new_state",
    "leave_out_state",
    "observe",
    "observe_steps",
    "report_local_code",
    "report_mode",
    "report_repeated",
    "report_unfollowed",
    "why_unobserved",
]


def observe(on_module: Callable[[Module], None], ends_capture: bool, steps_in_build: bool) -> Any:
    """Return a context in which reads of Python objects are noted.

    `on_module(module)` is called for each module that build() uses, before build() can change it.
    `ends_capture`: what no guard follows raises. `steps_in_build`: optimizers step in build().
    """
    from .observer import Observer  # not before it is known that torch has the hook

    owners = (module_hooks, optimizer_hooks) if steps_in_build else (module_hooks,)
    return Observer(capturing, on_module, ends_capture, owners)


def observe_steps(ends_capture: bool) -> Any:
    """Return a context in which reads of step() of the optimizers are noted.

    Its `leave_out_state(optimizers)` is called before its first use.
    """
    from .step_observer import StepObserver  # the same

    return StepObserver(capturing, ends_capture)


def leave_out_state(reads: Reads, optimizers: Sequence[Optimizer]) -> None:
    """Make no guards of the groups, parameters and state of optimizers, which have tests of their own."""
    from .step_observer import leave_out_state  # the same

    leave_out_state(reads, optimizers)


def leave_out_new_state(reads: Reads, optimizers: Sequence[Optimizer]) -> None:
    """The same for the state that step() has created."""
    from .step_observer import leave_out_new_state  # the same

    leave_out_new_state(reads, optimizers)
