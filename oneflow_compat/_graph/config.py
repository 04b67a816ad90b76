"""The options a program is compiled with: the engine's side of `graph.config`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .explanations import Explanation
    from .program.program import Program


Dynamic = bool | Mapping[str, Iterable[int]] | None  # see Config.dynamic


@dataclass
class Config:
    """Options of one Engine. Front ends set attributes; the engine reads them once per captured program.

    backend: "aten", "inductor", ... or None for the package's choice (see default_backend in compile/).
    amp: run build() under autocast; amp_dtype None means float16 on CUDA and bfloat16 on the CPU.
    accumulation: number of micro batches that one call is split into.
    pipeline_schedule: the order of micro batches on several stages, "1f1b" or "gpipe". None: see
        pipeline_plan.py.
    fuse_update: trace the optimizer through torch's fused multi-tensor operator if it has one (ROUNDING).
        None lets the backend choose: off for aten, on for the compiling backends.
    multi_tensor: trace the optimizer through torch's foreach form (EXACT on the CPU); None lets the engine
        choose.
    fuse_compositions: gelu, masked softmax, ... of plain operators become one kernel each (ROUNDING; backend
        aten).
    fuse_dropout: sample dropout inside one kernel and keep no mask. The random numbers differ from eager
        (RANDOM; backend aten).
    dynamic: dimensions of arguments that are symbols in a program. None: those that varied between calls;
        True: all; False: none; {argument: dimensions}: these from the first program on.
    zero: with several ranks, shard optimizer state if its shards have at least this many elements (see
        _global/zero.py). None keeps it replicated.
    zero_stores_shards: the parameters are stored as shards as well (see _global/stored_shards.py).
    verify: when a compiled program is compared with the captured operators: at its "first" call, "never", or
        also at each Nth call (a number).
    skipped_passes: names of passes that are left out (pass_names() in program/passes/).
    strict: what no program can hold is an error, and so is a value that build() reads and that has no guard.
    eager_calls: a call that no program can hold runs in eager mode. Else such a call raises, and values
        without a guard are constants, with a warning.
    ends_capture: set by the engine for a capture: what no program can hold raises.
    check: verify the Program after the capture and after each pass.
    backend_options: keyword arguments for the backend.
    """

    backend: str | None = None
    cudagraph: bool = False
    amp: bool = False
    amp_dtype: torch.dtype | None = None
    accumulation: int = 1
    pipeline_schedule: str | None = None
    fuse_update: bool | None = None
    multi_tensor: bool | None = None
    fuse_add_to_output: bool = False
    fuse_cast_scale: bool = False
    fuse_compositions: bool = False
    fuse_dropout: bool = False
    dynamic: Dynamic = None
    zero: int | None = None
    zero_stores_shards: bool = False
    cache_size: int = 16
    strict: bool = False
    eager_calls: bool = True
    ends_capture: bool = False
    check: bool = False
    verify: str | int = "first"
    skipped_passes: frozenset[str] = frozenset()
    backend_options: dict[str, Any] = field(default_factory=dict)
    on_change: Callable[[Explanation], None] | None = None  # called for each guard that needs another program
    # Debug output: on_stage(stage name, seconds, program or None).
    on_stage: Callable[[str, float, Program | None], None] | None = None

    def resolved(self, backend: str) -> Config:
        """Return the config of one program, with the preferences of its backend for options left open."""
        fuses = self.fuse_update if self.fuse_update is not None else backend != "aten"
        return replace(self, backend=backend, fuse_update=fuses)
