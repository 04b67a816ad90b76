"""flow.Model: a trainer around job functions.

Subclass it, define training_step (and validation_step), then call fit().
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from . import checkpoint
from ._jobs import session as _session
from ._jobs.job import Job
from .typing import Bundle, Numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class DataModule:
    """Gives one batch per step: `forward(step_idx, optimizer_idx)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return self.forward(*args)

    def forward(self, step_idx: int = 0, optimizer_idx: int = 0) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define forward(step_idx, optimizer_idx)")

    def infer_oneflow_data_placeholder(self, batch: Any = None, optimizer_idx: int = 0) -> Any:
        return None


class NumpyDataModule(DataModule):
    """A DataModule whose batches are tuples of arrays."""

    def infer_oneflow_data_placeholder(
        self, batch: Sequence[Any] | None = None, optimizer_idx: int = 0
    ) -> list[Any]:
        """The placeholders of a batch: one per array, of its shape and dtype."""
        if not isinstance(batch, tuple) or not all(isinstance(a, np.ndarray) for a in batch):
            raise TypeError(
                f"NumpyDataModule.forward must return a tuple of arrays, found {type(batch).__name__}"
            )
        return [
            Numpy.Placeholder(a.shape, dtype=torch.from_numpy(a[:0] if a.ndim else a).dtype) for a in batch
        ]


class _Config:
    def __init__(self) -> None:
        self.exe_cfg: Any = None
        self.data: Any = None

    def config_execution(self, exe_cfg: Any = None) -> None:
        """The FunctionConfig of the job."""
        self.exe_cfg = exe_cfg

    def config_data(self, data: Any = None) -> None:
        """The DataModule."""
        self.data = data

    def check_valid(self) -> bool:
        return self.data is not None


class TrainingConfig(_Config):
    """The data and settings that fit() trains with."""


class ValidationConfig(_Config):
    """The data that fit() validates with, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.step_interval = 10

    def config_step_interval(self, step_interval: int = 1) -> None:
        self.step_interval = step_interval


class CheckpointConfig:
    """The folders that fit() loads from and saves to."""

    def __init__(self) -> None:
        self.load_dirpath: str | None = None
        self.save_dirpath: str | None = None
        self.save_interval = 1

    def config_load(self, dirpath: str | None = None) -> None:
        self.load_dirpath = dirpath

    def config_save(self, dirpath: str | None = None, step_interval: int = 1) -> None:
        self.save_dirpath, self.save_interval = dirpath, step_interval

    def check_valid(self) -> bool:
        return self.load_dirpath is not None or self.save_dirpath is not None


class Callback:
    """Hooks of fit(): sub-class and override."""

    def on_training_step_end(self, outputs: Any, step_idx: int = 0, optimizer_idx: int = 0) -> None:
        pass

    def on_validation_step_end(self, outputs: Any, step_idx: int = 0) -> None:
        pass


class Model:
    """Base class of models.

    Define forward(x), training_step(batch, optimizer_idx), configure_optimizers() and validation_step(batch).
    training_step returns the loss, or (loss, other results); the optimizer minimizes the loss.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.is_function_style = kwargs.get("is_deprecated_function_style", True)

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define training_step")

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define validation_step")

    def configure_optimizers(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define configure_optimizers")

    def method_overrided(self, method_name: str | None = None) -> bool:
        """True when the sub-class defines the method itself."""
        return getattr(type(self), method_name) is not getattr(Model, method_name)

    def fit(
        self,
        training_config: TrainingConfig | None = None,
        validation_config: ValidationConfig | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        callbacks: Any = None,
        max_steps: int = 100,
    ) -> None:
        """Train for `max_steps` steps, and validate, save and call the callbacks in between."""
        if training_config is None and validation_config is None:
            raise ValueError("Model.fit: give training_config or validation_config")
        callbacks = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
        trainers = self._training_jobs(training_config) if training_config is not None else []
        validate = self._validation_job(validation_config) if validation_config is not None else None
        _load(checkpoint_config)
        for step in range(max_steps):
            for index, (run, data) in enumerate(trainers):
                outputs = run(*_batch(data(step, index)))
                for callback in callbacks:
                    callback.on_training_step_end(outputs, step, index)
            if validate is not None and step % validation_config.step_interval == 0:
                outputs = validate(*_batch(validation_config.data(step)))
                for callback in callbacks:
                    callback.on_validation_step_end(outputs, step)
            _save_if_due(checkpoint_config, step)

    def _training_jobs(self, config: TrainingConfig) -> list[Any]:
        optimizers = self.configure_optimizers()
        optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
        jobs = []
        for index, optimizer in enumerate(optimizers):

            def train(*batch: Any, index: Any = index, optimizer: Any = optimizer) -> torch.Tensor:
                outputs = self.training_step(batch, index)
                optimizer.minimize(outputs[0] if isinstance(outputs, tuple) else outputs)
                return outputs

            jobs.append(
                (
                    self._job(train, f"TrainJob_{type(self).__name__}_{index}", "train", config, index),
                    config.data,
                )
            )
        return jobs

    def _validation_job(self, config: ValidationConfig) -> Any:
        return self._job(
            lambda *batch: self.validation_step(batch), f"EvalJob_{type(self).__name__}", "predict", config, 0
        )

    def _job(
        self,
        body: Callable[..., Any],
        name: str,
        job_type: str,
        config: TrainingConfig | ValidationConfig,
        index: int,
    ) -> Any:
        import inspect

        declared = config.data.infer_oneflow_data_placeholder(
            _batch(config.data(0, index) if job_type == "train" else config.data(0)), index
        )

        def function(*batch: Any) -> torch.Tensor:
            return body(*batch)

        P = inspect.Parameter
        function.__signature__ = inspect.Signature(
            [P(f"batch_{i}", P.POSITIONAL_OR_KEYWORD, annotation=d) for i, d in enumerate(declared)],
            return_annotation=Bundle[Numpy],
        )
        function.__name__ = name
        return Job(function, job_type, config.exe_cfg)


def _load(config: CheckpointConfig) -> None:
    """Load the checkpoint that the configuration names."""
    if config is not None and config.load_dirpath:
        _session.load_variables(checkpoint.get(config.load_dirpath))


def _save_if_due(config: CheckpointConfig, step: int) -> None:
    """Save a checkpoint if the configuration asks for one after this step."""
    if config is not None and config.save_dirpath and step % config.save_interval == 0:
        checkpoint.save(f"{config.save_dirpath}-{step}")


def _batch(value: Sequence[Any]) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
