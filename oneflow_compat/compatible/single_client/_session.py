"""The session: everything job functions share. Variables, job registry, resource settings."""

from __future__ import annotations

import threading

from . import _initializers


class Variable:
    """A named tensor of the session, created by `get_variable` or by an optimizer (its slots)."""

    __slots__ = ("name", "tensor", "initializer", "regularizer", "trainable", "model_name", "seed")

    def __init__(
        self, name, tensor, initializer=None, regularizer=None, trainable=False, model_name=None, seed=None
    ):
        self.name, self.tensor, self.initializer = name, tensor, initializer
        self.regularizer, self.trainable, self.model_name, self.seed = (
            regularizer,
            trainable,
            model_name,
            seed,
        )

    def initialize(self):
        """Fill the tensor again from its initializer (with zeros if it has none)."""
        import torch

        with torch.no_grad():
            if self.initializer is None:
                self.tensor.zero_()
            else:
                _initializers.fill(self.tensor, self.initializer, self.seed)


class VariableBlob:
    """A named value with `numpy()`, `shape`, `dtype`.

    `get_all_variables` and `checkpoint.get` return it.
    """

    def __init__(self, name, tensor):
        self.name, self._tensor = name, tensor

    shape = property(lambda self: tuple(self._tensor.shape))
    dtype = property(lambda self: self._tensor.dtype)

    def numpy(self, parallel_id=None):
        return self._tensor.detach().cpu().numpy().copy()

    def __array__(self, dtype=None, copy=None):
        value = self.numpy()
        return value if dtype is None else value.astype(dtype)

    def __repr__(self):
        return f"VariableBlob({self.name!r}, shape={self.shape}, dtype={self.dtype})"


class Session:
    """Variables by name, jobs by name, resource settings. One default session exists per process."""

    def __init__(self):
        self.jobs = {}
        self.variables: dict[str, Variable] = {}
        self.modules = {}  # find_or_create_module
        self.settings = {}
        self.eager = False
        self.lock = threading.RLock()

    def steps(self) -> dict[str, int]:
        return {
            f"System-Train-TrainStep-{job.name}": job.step for job in self.jobs.values() if job.has_update
        }

    def all_values(self) -> dict:
        """{name: tensor} of every variable, optimizer slot and step counter."""
        import torch

        values = {v.name: v.tensor for v in self.variables.values()}
        for name, step in self.steps().items():
            values[name] = torch.tensor([step], dtype=torch.int64)
        return values

    def start(self):
        """Define every registered job that is not defined yet, so that all its variables exist."""
        for job in list(self.jobs.values()):
            job.define()

    def load(self, values: dict, ignore_mismatch: bool):
        """Copy arrays into variables by name.

        A name that no variable has, or a shape that differs, is an error or is skipped.
        """
        import numpy as np
        import torch

        steps = {f"System-Train-TrainStep-{job.name}": job for job in self.jobs.values()}
        for name, value in values.items():
            array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
            if name in steps:
                steps[name].step = int(np.asarray(array).reshape(-1)[0])
                continue
            variable = self.variables.get(name)
            if variable is None:
                if not ignore_mismatch:
                    raise KeyError(
                        f"load_variables: there is no variable {name!r}; the session has"
                        f" {sorted(self.variables)}"
                    )
                continue
            if tuple(array.shape) != tuple(variable.tensor.shape):
                if not ignore_mismatch:
                    raise ValueError(
                        f"load_variables: {name!r} has shape {tuple(variable.tensor.shape)}, the value has"
                        f" {tuple(array.shape)}"
                    )
                continue
            with torch.no_grad():
                variable.tensor.copy_(torch.from_numpy(np.ascontiguousarray(array)))


_default = Session()


def default() -> Session:
    return _default


def clear_default_session():
    """Forget every job, variable and setting.

    Jobs defined before keep working on their old session.
    """
    global _default
    _default = Session()


def sync_default_session():
    """Wait until everything launched is done.

    Jobs run synchronously here, so this waits for the device only.
    """
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def enable_eager_execution(val=True):
    """Run job functions op by op in each call instead of compiling them."""
    _default.eager = bool(val)


def eager_execution_enabled() -> bool:
    return _default.eager


def get_all_variables() -> dict:
    """{name: VariableBlob} of the variables, the optimizers' slots and the step counters of all jobs."""
    _default.start()
    return {name: VariableBlob(name, tensor) for name, tensor in _default.all_values().items()}


def load_variables(value_dict, ignore_mismatch=True):
    """Set variables by name from arrays or from what `checkpoint.get` returned.

    A name that does not exist and a shape that does not fit are skipped, or with
    `ignore_mismatch=False` a KeyError and a ValueError.
    """
    _default.start()
    _default.load(value_dict, ignore_mismatch)


def is_multi_client() -> bool:
    """False: job functions are single-client."""
    return False
