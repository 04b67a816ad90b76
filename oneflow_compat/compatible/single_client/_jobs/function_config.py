"""flow.function_config(): settings of one job function.

The table `_tables/legacy/config.py` says what each does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

import torch

from ...._errors import unsupported
from ...._graph import Config
from ...._tables.legacy.config import ARGUMENTS, FUNCTION_CONFIG
from ..optimizer import _from_conf
from . import context as _context
from . import session as _session
from .boxing import boxing
from .devices import default
from .settings import setter


class _Section:
    """A group of settings, `function_config.train`."""


class FunctionDescription:
    """The result of `function_config.function_desc`: the settings that the user made, under their names."""

    def __init__(self, config: FunctionConfig) -> None:
        self._config = config

    def IsTrainable(self) -> bool:
        return self._config.describes_training()

    def HasAttr(self, name: str) -> bool:
        return name in self._config.values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._config.values:
            raise AttributeError(
                f"the function_config has no setting {name!r}; it has {sorted(self._config.values)}"
            )
        return self._config.values[name]


class FunctionConfig:
    """Settings of a job function.

    Examples: `config.default_data_type(flow.float)`, `config.train.primary_lr(0.1)`.
    """

    def __init__(self) -> None:
        self.values = {}
        for name, row in FUNCTION_CONFIG.items():
            group, _, last = name.rpartition(".")
            if group:
                if group not in self.__dict__:
                    self.__dict__[group] = _Section()
                set_option = setter(
                    name, row, ARGUMENTS.get(name, "value"), self._record, f"FunctionConfig.{name}"
                )
                setattr(self.__dict__[group], last, set_option)

    @property
    def function_desc(self) -> FunctionDescription:
        """The settings as the description of a job.

        It has `IsTrainable()`, `HasAttr(name)`, and each setting as an attribute.
        """
        return FunctionDescription(self)

    def _record(self, name: str, value: Any = None) -> bool | None:
        if name == "static_mem_alloc_policy_white_list.has":
            return value in self.values.get("static_mem_alloc_policy_white_list.add", ())
        if name == "static_mem_alloc_policy_white_list.add":
            self.values.setdefault(name, []).append(value)
            return None
        self.values[name] = value
        return None

    # -- what the rest of the package reads --------------------------------------
    @property
    def default_placement(self) -> Any:
        scope = self.values.get("default_placement_scope")
        return getattr(scope, "value", scope)

    @property
    def default_dtype(self) -> torch.dtype:
        return self.values.get("default_data_type", torch.float32)

    def describes_training(self) -> bool:
        """Whether a setting of `train` was made."""
        return any(name.startswith("train.") for name in self.values)

    def sparse_rows(self) -> set[Any]:
        conf = self.values.get("indexed_slices_optimizer_conf") or {}
        return set((conf.get("include_op_names") or {}).get("op_name", ()))

    def engine_config(self) -> Any:
        """The engine's options for this job."""
        config = Config(eager_calls=False)  # a job has an eager mode of its own
        config.fuse_add_to_output = bool(self.values.get("enable_fuse_add_to_output", False))
        config.fuse_cast_scale = bool(self.values.get("enable_fuse_cast_scale", False))
        config.check = bool(_session.default().settings.get("enable_debug_mode", False))
        return config

    @contextlib.contextmanager
    def scopes(self, trace: Any) -> Iterator[Any]:
        """The state around the body: default view, autocast, and moving tensors to the scope's device."""
        with contextlib.ExitStack() as stack:
            view = self.values.get("default_logical_view") or self.values.get("default_distribute_strategy")
            if view is not None:
                stack.enter_context(_context.scope("view", getattr(view, "value", view)))
            if self.values.get("enable_auto_mixed_precision"):
                device_type = default(trace.job).type
                stack.enter_context(
                    torch.autocast(device_type, torch.float16 if device_type == "cuda" else torch.bfloat16)
                )
            stack.enter_context(boxing(trace))
            if not torch.is_grad_enabled():
                stack.enter_context(torch.enable_grad())
            yield

    def optimizers(self) -> list[Any]:
        """The optimizer described by `train.model_update_conf` and `train.primary_lr`, if any."""
        conf = self.values.get("train.model_update_conf")
        if conf is None:
            return []

        if "train.primary_lr" not in self.values:
            raise ValueError(
                "function_config.train.model_update_conf needs function_config.train.primary_lr(value) too"
            )
        return [
            _from_conf.optimizer(
                conf, self.values["train.primary_lr"], self.values.get("train.loss_scale_factor")
            )
        ]


for _name, _row in FUNCTION_CONFIG.items():
    if "." not in _name:
        setattr(
            FunctionConfig,
            _name,
            setter(
                _name,
                _row,
                ARGUMENTS.get(_name, "value"),
                FunctionConfig._record,
                f"FunctionConfig.{_name}",
                method=True,
            ),
        )


ExecutionConfig = FunctionConfig
function_config = FunctionConfig


# --------------------------------------------------------------------------- flow.tensorrt
def _refuse_calibration(name: str) -> NoReturn:
    raise unsupported(
        f"flow.tensorrt.{name}",
        "legacy-tensorrt",
        "Choose the TensorRT backend of nn.Graph and calibrate with torch_tensorrt.",
    )


def write_int8_calibration(path: str) -> None:
    _refuse_calibration("write_int8_calibration")


def cache_int8_calibration() -> None:
    _refuse_calibration("cache_int8_calibration")
