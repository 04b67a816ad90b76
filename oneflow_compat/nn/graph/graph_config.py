"""GraphConfig: `graph.config`, the options of one graph. Each method sets what the engine's Config holds.

`_tables/graph_config.py` lists every option and what follows from it here.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..._errors import RefusedType, RefusedValue
from ..._graph import SCHEDULES, Config, check_name, last_release, missing_package, pass_names
from ..._tables.graph_config import GRAPH_CONFIG
from .job_message.settings import job_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .graph_members import GraphMembers
    from .job_message.job_conf import JobConfigProto


_ZERO_MODES = ("distributed_split", "non_distributed")


class GraphConfig:
    """Options of a graph, set in its __init__; after the first call they are fixed (a warning, as OneFlow's
    graphs take no notice).
    """

    def __init__(self, engine_config: Config | None = None) -> None:
        if engine_config is None:
            engine_config = Config()
        self._engine = engine_config
        self._train = False
        self._graph: Callable[[], GraphMembers | None] = lambda: None  # or a weak reference to the graph
        self._kept: dict[str, Any] = {}  # options without effect here, with the values that were set

    def __setattr__(self, name: str, value: object) -> None:
        if callable(getattr(type(self), name, None)):
            raise TypeError(
                f"graph.config.{name} is a method, found an assignment of {value!r};"
                f" call graph.config.{name}({value!r})"
            )
        object.__setattr__(self, name, value)

    @property
    def training(self) -> bool:
        """True once an optimizer was added."""
        return self._train

    def set_backend(self, name: str, **options: Any) -> None:
        """Compile with this backend: "aten", "inductor", "auto" (aten first, inductor when it pays),
        "openvino", "tensorrt" or "xla"; keyword arguments go to it.

        TypeError for keyword arguments that the backend does not take.
        """
        if check_name(name) == "aten" and options:
            raise TypeError(f"set_backend: the aten backend takes no options, found {', '.join(options)}")
        self._engine.backend = name
        self._engine.backend_options = dict(options)

    def verify(self, when: str = "first", *, every: int | None = None) -> None:
        """Choose when a compiled program is compared with the captured operators.

        "first": before it serves a call for the first time, unless a comparison on this machine is on disk.
        "never": not at all. `every`: also at each Nth call of a program, which costs one step of the aten
        backend. If they differ by more than rounding, a warning names the first operator that differs, and
        the captured operators run instead.

        ValueError for another word, or for `every` below 1.
        """
        if when not in ("first", "never"):
            raise ValueError(f'verify(when): "first" or "never", found {when!r}')
        if every is not None and when == "never":
            raise ValueError(f'verify: every={every!r} compares calls, and "never" none; leave one out')
        self._engine.verify = when if every is None else _positive("verify(every)", every)

    def strict(self, mode: bool = True) -> None:
        """Make an error of what no program can hold, and of a value that build() reads and no guard follows.

        Otherwise such a call runs in eager mode, with a warning.
        """
        self._engine.strict = _switch("strict", mode)

    def eager_calls(self, mode: bool = True) -> None:
        """Run a call that no program can hold in eager mode, with a warning; this is the default.

        With False, such a call raises, and what `build()` reads without a guard is a constant, with a
        warning.
        """
        self._engine.eager_calls = _switch("eager_calls", mode)

    def enable_cudagraph(self, mode: bool = True) -> None:
        """Run the compiled program as a CUDA graph (CUDA tensors only)."""
        self._engine.cudagraph = _switch("enable_cudagraph", mode)

    def enable_amp(self, mode: bool = True, *, dtype: torch.dtype = torch.float16) -> None:
        """Run build() under autocast with this dtype, float16 or bfloat16.

        TypeError for another dtype.
        """
        if dtype not in (torch.float16, torch.bfloat16):
            raise TypeError(f"enable_amp: dtype must be float16 or bfloat16, found {dtype}")
        self._engine.amp = _switch("enable_amp", mode)
        self._engine.amp_dtype = dtype

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Split every tensor argument into `value` micro batches along dim 0 inside the program; training
        graphs only.
        """
        self._engine.accumulation = _positive("set_gradient_accumulation_steps", value)

    def pipeline_schedule(self, name: Literal["gpipe", "1f1b"]) -> None:
        """Choose the order of micro batches on the stages of `set_stage()`: "1f1b" or "gpipe".

        The default is "1f1b", or "gpipe" if there are fewer micro batches than stages. ValueError for another
        name.
        """
        if name not in SCHEDULES:
            names = ", ".join(map(repr, SCHEDULES))
            raise RefusedValue(f"pipeline_schedule: the name must be one of {names}, found {name!r}")
        self._engine.pipeline_schedule = name

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Trace the optimizer through torch's fused update operator where it has one."""
        self._engine.fuse_update = _switch("allow_fuse_model_update_ops", mode)

    def enable_multi_tensor_update(self, mode: bool = True) -> None:
        """Trace the optimizer through torch's multi-tensor (foreach) form."""
        self._engine.multi_tensor = _switch("enable_multi_tensor_update", mode)

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Fuse additions into the operator before them."""
        self._engine.fuse_add_to_output = _switch("allow_fuse_add_to_output", mode)

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Fuse a cast with the multiplication after it."""
        self._engine.fuse_cast_scale = _switch("allow_fuse_cast_scale", mode)

    def allow_fuse_compositions(self, mode: bool = True, *, dropout: bool = False) -> None:
        """Compute gelu, quick_gelu, silu, masked softmax and scaled products written in plain operators by
        one kernel each (backend aten).

        Results differ from eager's by rounding. With `dropout` the masks of dropout are drawn inside the
        kernels: other numbers than eager's.
        """
        fuse_dropout = _switch("allow_fuse_compositions(dropout)", dropout) and mode
        self._engine.fuse_compositions = _switch("allow_fuse_compositions", mode)
        self._engine.fuse_dropout = fuse_dropout

    def dynamic(self, dims: bool | Mapping[str, int | Iterable[int]] | None = None) -> None:
        """Choose the dimensions of arguments that may differ between calls of one program.

        None: dimensions whose size differed in an earlier call (the default). True: all dimensions. False:
        none, so that each set of sizes gets its own program. {argument: dimension or dimensions}: these from
        the first program on, others as by default.
        """
        self._engine.dynamic = _dimensions(dims)

    def passes(self, *, skip: Iterable[str] = (), check: bool = False) -> None:
        """Leave passes out, and verify the program after each pass: to find the pass behind a wrong result.

        `skip`: names of passes, such as "merge_views"; the error for an unknown name lists them. Each call
        of this method replaces the choices of the call before. `graph.debug(0)` prints the passes that run.

        TypeError for a single string, ValueError for an unknown name.
        """
        self._engine.check, self._engine.skipped_passes = _switch("passes(check)", check), _passes(skip)

    # -- back ends of other packages ------------------------------------------------------
    def enable_xla_jit(self, value: bool = True) -> None:
        """Backend "xla" if the package torch_xla is installed, whose last release is for torch 2.9, else
        "auto" with a warning.
        """
        self._other_backend("xla", _switch("enable_xla_jit", value))

    def enable_tensorrt(self, value: bool = True) -> None:
        """Backend "tensorrt" if the package torch_tensorrt is installed, else "auto" with a warning."""
        self._other_backend("tensorrt", _switch("enable_tensorrt", value))

    def enable_openvino(self, value: bool = True) -> None:
        """Backend "openvino" if the package openvino is installed, else "auto" with a warning."""
        self._other_backend("openvino", _switch("enable_openvino", value))

    def _other_backend(self, name: str, on: bool) -> None:
        if on and (package := missing_package(name)) is not None:
            _warn_of_missing(name, package)
            self.set_backend("auto")
        elif on:
            self.set_backend(name)
        elif self._engine.backend == name:
            self._engine.backend = None

    # -- several ranks; most is checked and kept ---------------------------------------------
    def enable_zero(
        self, mode: bool = True, *, stage: int = 2, shard_min_size: int = 1024, shard_restore_level: int = 1
    ) -> None:
        """With several ranks: split optimizer states and gradients of parameters under sbp.broadcast over the
        ranks.

        `shard_min_size`: elements that a shard has at least. Stages 1 and 2 are one program. In stage 3 the
        first call splits the parameters as well: their sbp becomes split, and each operator gathers those it
        computes with. `shard_restore_level` is checked and has no effect.

        ValueError for another stage.
        """
        if stage not in (1, 2, 3):
            raise RefusedValue(f"enable_zero: stage must be 1, 2 or 3, found {stage!r}")
        if shard_restore_level not in (0, 1, 2):
            raise ValueError(
                f"enable_zero: shard_restore_level must be 0, 1 or 2, found {shard_restore_level!r}"
            )
        self._kept["enable_zero"] = dict(
            mode=_switch("enable_zero", mode),
            stage=stage,
            shard_min_size=_positive("enable_zero(shard_min_size)", shard_min_size, 0),
            shard_restore_level=shard_restore_level,
        )
        self._engine.zero = shard_min_size if mode else None
        self._engine.zero_stores_shards = bool(mode) and stage == 3

    def set_zero_redundancy_optimizer_mode(
        self, mode: Literal["distributed_split", "non_distributed"] = "distributed_split"
    ) -> None:
        """Older spelling: "distributed_split" is enable_zero(True), at stage 3 if that was asked for;
        "non_distributed" is stage 1.

        ValueError for another mode.
        """
        if mode not in _ZERO_MODES:
            raise ValueError(
                f"set_zero_redundancy_optimizer_mode: mode must be one of {_ZERO_MODES}, found {mode!r}"
            )
        before = self._kept.get("enable_zero", {})
        stage = max(before.get("stage", 2), 2) if mode == "distributed_split" else 1
        self.enable_zero(**{**before, "mode": True, "stage": stage})

    def set_zero_redundancy_optimizer_min_size_after_split(self, value: int) -> None:
        """Older spelling of enable_zero(shard_min_size=value)."""
        before = self._kept.get("enable_zero", dict(mode=True, stage=2, shard_restore_level=1))
        self.enable_zero(
            **{
                **before,
                "shard_min_size": _positive("set_zero_redundancy_optimizer_min_size_after_split", value),
            }
        )

    def set_outputs_buffer_size(self, value: int = 2) -> None:
        """Kept without effect: every call returns tensors of its own."""
        self._kept["set_outputs_buffer_size"] = _positive("set_outputs_buffer_size", value)

    def enable_straighten_algorithm(self, mode: str = "MemoryFirst") -> None:
        """Kept without effect: the order of operators is the captured one, or the backend's.

        ValueError for a value that OneFlow refuses.
        """
        modes = ("Disable", "SpeedFirst", "MemoryFirst", "OverlapCpuGpu", "CpuFirst", "DelayShortGpu")
        if mode not in modes:
            raise RefusedValue(f"enable_straighten_algorithm: mode must be one of {modes}, found {mode!r}")
        self._kept["enable_straighten_algorithm"] = mode

    def enable_auto_memory(self, mode: str = "AdaptiveMemory") -> None:
        """Kept without effect: it steers the search for SBP rules over several ranks.

        ValueError for a value that OneFlow refuses.
        """
        modes = (
            "Disable",
            "SlightMemoryDown",
            "ModerateMemoryDown",
            "HeavyMemoryDown",
            "AdaptiveMemory",
            "DisableAutoMemory",
        )
        if mode not in modes:
            raise RefusedValue(f"enable_auto_memory: mode must be one of {modes}, found {mode!r}")
        self._kept["enable_auto_memory"] = mode

    def set_auto_parallel_computation_cost_ratio(self, ratio: float) -> None:
        """Kept without effect: it steers the search for SBP rules over several ranks."""
        self._kept["set_auto_parallel_computation_cost_ratio"] = _number(
            "set_auto_parallel_computation_cost_ratio", ratio
        )

    def set_auto_parallel_wait_time(self, cost: float) -> None:
        """Kept without effect: it steers the search for SBP rules over several ranks."""
        self._kept["set_auto_parallel_wait_time"] = _number("set_auto_parallel_wait_time", cost)

    @property
    def proto(self) -> JobConfigProto:
        """The options and optimizers as the message of OneFlow's job configuration; changing it changes
        nothing.
        """
        return job_config(self._engine, self._kept, self._graph())

    def __repr__(self) -> str:
        return f"(CONFIG:config:GraphConfig(training={self._train}, ))"


def _warn_of_missing(backend: str, package: str) -> None:
    warnings.warn(
        f"the backend {backend!r} needs the package {package}{last_release(backend)}, which is not installed;"
        " the graph runs on the backend 'auto'",
        stacklevel=5,
    )


def _switch(name: str, mode: object) -> bool:
    if not isinstance(mode, bool):
        raise RefusedType(f"{name} takes True or False, found {type(mode).__name__} {mode!r}")
    return mode


def _dimensions(dims: object) -> bool | dict[str, tuple[int, ...]] | None:
    """The value of config.dynamic, with a tuple of dimensions for each argument."""
    if dims is None or isinstance(dims, bool):
        return dims
    if not isinstance(dims, dict):
        raise RefusedType(f"dynamic takes True, False or a dict of argument names, found {dims!r}")
    checked = {}
    for name, dimensions in dims.items():
        if not isinstance(name, str):
            raise RefusedType(f"dynamic takes the name of an argument of build(), found {name!r}")
        dimensions = (dimensions,) if isinstance(dimensions, int) else dimensions
        if not isinstance(dimensions, (tuple, list, set, frozenset)):
            raise RefusedType(f"dynamic takes dimensions (numbers) of {name!r}, found {dimensions!r}")
        checked[name] = tuple(_positive(f"dynamic: a dimension of {name!r}", n, 0) for n in dimensions)
    return checked


def _passes(names: object) -> frozenset[str]:
    """Return the names of passes that graph.config.passes(skip=) leaves out."""
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise RefusedType(f"passes(skip=) takes a list of names of passes, found {names!r}")
    unknown = [name for name in names if name not in pass_names()]
    if unknown:
        raise RefusedValue(
            f"passes(skip=) takes names of passes, found {', '.join(map(repr, unknown))};"
            f" the passes are {', '.join(pass_names())}"
        )
    return frozenset(names)


def _positive(name: str, value: object, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} takes a whole number, found {type(value).__name__} {value!r}")
    if value < least:
        raise ValueError(f"{name} takes a number of at least {least}, found {value}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} takes a number, found {type(value).__name__} {value!r}")
    return float(value)


def _ignored(name: str) -> Callable[..., None]:
    def setter(self: GraphConfig, mode: bool = True) -> None:
        self._kept[name] = _switch(name, mode)

    setter.__name__, setter.__qualname__ = name, f"GraphConfig.{name}"
    return setter


def _add_ignored() -> None:
    for name, (effect, why) in GRAPH_CONFIG.items():
        if effect == "ignored" and not hasattr(GraphConfig, name):
            setter = _ignored(name)
            setter.__doc__ = f"Kept without effect: {why}."
            setattr(GraphConfig, name, setter)


def _only_before_the_first_call(option: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(option)
    def setter(self: GraphConfig, *args: Any, **kwargs: Any) -> None:
        graph = self._graph()
        if graph is not None and graph._fixed(f"config.{option.__name__}"):
            return
        option(self, *args, **kwargs)

    return setter


_add_ignored()
for _name, _option in list(vars(GraphConfig).items()):
    if callable(_option) and not _name.startswith("_"):
        setattr(GraphConfig, _name, _only_before_the_first_call(_option))
