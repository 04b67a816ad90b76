"""The session: everything job functions share. Variables, job registry, resource settings."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from .._functions import initializers as _initializers

if TYPE_CHECKING:
    import numpy as np


class Variable:
    """A named tensor of the session, created by `get_variable` or by an optimizer (its slots)."""

    __slots__ = ("name", "tensor", "initializer", "regularizer", "trainable", "model_name", "seed")

    def __init__(
        self,
        name: str,
        tensor: torch.Tensor,
        initializer: Any = None,
        regularizer: Any = None,
        trainable: bool = False,
        model_name: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.name, self.tensor, self.initializer = name, tensor, initializer
        self.regularizer, self.trainable, self.model_name, self.seed = (
            regularizer,
            trainable,
            model_name,
            seed,
        )

    def initialize(self) -> None:
        """Fill the tensor again from its initializer (with zeros if it has none)."""
        with torch.no_grad():
            if self.initializer is None:
                self.tensor.zero_()
            else:
                _initializers.fill(self.tensor, self.initializer, self.seed)


class VariableBlob:
    """A named value with `numpy()`, `shape`, `dtype`.

    `get_all_variables` and `checkpoint.get` return it.
    """

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self._tensor = name, tensor

    shape = property(lambda self: tuple(self._tensor.shape))
    dtype = property(lambda self: self._tensor.dtype)

    def numpy(self, parallel_id: Any = None) -> np.ndarray:
        return self._tensor.detach().cpu().numpy().copy()

    def __array__(self, dtype: torch.dtype | None = None, copy: Any = None) -> Any:
        value = self.numpy()
        return value if dtype is None else value.astype(dtype)

    def __repr__(self) -> str:
        return f"VariableBlob({self.name!r}, shape={self.shape}, dtype={self.dtype})"


class Session:
    """Variables by name, jobs by name, resource settings. One default session exists per process."""

    def __init__(self) -> None:
        self.jobs = {}
        self.variables: dict[str, Variable] = {}
        self.modules = {}  # find_or_create_module
        self.stale_values: dict[Any, Any] = {}  # (job, variable, buffer size) -> StaleValues
        self.settings = {}
        self.eager = False
        self.lock = threading.RLock()

    def steps(self) -> dict[str, int]:
        return {
            f"System-Train-TrainStep-{job.name}": job.step for job in self.jobs.values() if job.has_update
        }

    def all_values(self) -> dict[str, Any]:
        """{name: tensor} of every variable, optimizer slot and step counter."""
        values = {v.name: v.tensor for v in self.variables.values()}
        for name, step in self.steps().items():
            values[name] = torch.tensor([step], dtype=torch.int64)
        return values

    def start(self) -> None:
        """Define every registered job that is not defined yet, so that all its variables exist."""
        for job in list(self.jobs.values()):
            job.define()

    def load(self, values: dict[str, Any], ignore_mismatch: bool) -> None:
        """Copy arrays into variables by name.

        A name that no variable has, or a shape that differs, is an error or is skipped.
        """
        import numpy as np

        steps = {f"System-Train-TrainStep-{job.name}": job for job in self.jobs.values()}
        # all values are read and checked before the first is written
        arrays = {
            name: np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
            for name, value in values.items()
            if name in steps or self._takes(name, value, ignore_mismatch)
        }
        for name, array in arrays.items():
            if array.dtype.kind not in "biufc" or name in steps and not array.size:
                raise TypeError(f"load_variables: {name!r} is {str(array)[:60]!r}, no array of numbers")
        for name, array in arrays.items():
            if name in steps:
                steps[name].step = int(array.reshape(-1)[0])
            else:
                with torch.no_grad():
                    self.variables[name].tensor.copy_(torch.from_numpy(array))
        self.forget_stale_values()

    def forget_stale_values(self) -> None:
        """Fill the old values of variables anew before the next call."""
        for stale in self.stale_values.values():
            stale.is_filled = False

    def _takes(self, name: str, value: Any, ignore_mismatch: bool) -> bool:
        """Whether there is a variable of this name and shape."""
        import numpy as np

        variable = self.variables.get(name)
        if variable is None:
            if not ignore_mismatch:
                raise KeyError(
                    f"load_variables: there is no variable {name!r}; the session has {sorted(self.variables)}"
                )
            return False
        shape, expected = tuple(np.shape(value)), tuple(variable.tensor.shape)
        if shape != expected and not ignore_mismatch:
            raise ValueError(f"load_variables: {name!r} has shape {expected}, the value has {shape}")
        return shape == expected


_default = Session()


def default() -> Session:
    return _default


def clear_default_session() -> None:
    """Forget every job, variable and setting.

    Jobs defined before keep working on their old session.
    """
    global _default
    _default = Session()


def sync_default_session() -> None:
    """Wait until everything launched is done.

    Jobs run synchronously here, so this waits for the device only.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def enable_eager_execution(val: bool = True) -> None:
    """Run job functions op by op in each call instead of compiling them."""
    _default.eager = bool(val)


def eager_execution_enabled() -> bool:
    return _default.eager


def get_all_variables() -> dict[str, Any]:
    """{name: VariableBlob} of the variables, the optimizers' slots and the step counters of all jobs."""
    _default.start()
    return {name: VariableBlob(name, tensor) for name, tensor in _default.all_values().items()}


def load_variables(value_dict: dict[str, Any], ignore_mismatch: bool = True) -> None:
    """Set variables by name from arrays or from what `checkpoint.get` returned.

    A name that does not exist and a shape that does not fit are skipped, or with
    `ignore_mismatch=False` a KeyError and a ValueError.
    """
    if not isinstance(value_dict, Mapping):
        raise TypeError(f"load_variables takes a dict of arrays by name, found {type(value_dict).__name__}")
    _default.start()
    _default.load(value_dict, ignore_mismatch)


def is_multi_client() -> bool:
    """False: job functions are single-client."""
    return False
