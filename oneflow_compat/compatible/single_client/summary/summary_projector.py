"""Embeddings and exceptions step by step, as JSON lines (OneFlow's own viewer format is gone)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import torch


class Projector:
    """Writer of embedding projections.

    Call create_embedding_projector(), then embedding_projector(value=..., label=..., tag=..., step=...) for
    each step.
    """

    def __init__(self, logdir: str | None = None) -> None:
        if logdir is None:
            raise ValueError("summary.Projector needs a logdir")
        os.makedirs(logdir, exist_ok=True)
        self._logdir = logdir
        self._embedding: str | None = None
        self._exception: str | None = None

    logdir = property(lambda self: self._logdir)
    embedding_filename = property(lambda self: self._embedding)
    exception_filename = property(lambda self: self._exception)

    def _create(self, record_type: str) -> str:
        folder = os.path.join(self._logdir, "projector")
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f"projector.{record_type}.{int(time.time())}.jsonl")

    def create_embedding_projector(self) -> None:
        self._embedding = self._create("embedding")

    def create_exception_projector(self) -> None:
        self._exception = self._create("exception")

    def embedding_projector(
        self,
        value: np.ndarray | None = None,
        label: np.ndarray | torch.Tensor | None = None,
        tag: str | None = None,
        step: int | None = None,
        sample_name: str | None = None,
        sample_type: str | None = None,
        x: np.ndarray | torch.Tensor | None = None,
    ) -> None:
        """One line: the matrix `value`, its labels, and a sample if given."""
        self._write(
            self._embedding,
            "create_embedding_projector",
            value,
            label,
            tag,
            step,
            sample_name,
            sample_type,
            x,
        )

    def exception_projector(
        self,
        value: np.ndarray | None = None,
        tag: str | None = None,
        step: int | None = None,
        sample_name: Any = None,
        sample_type: Any = None,
        x: torch.Tensor | None = None,
    ) -> None:
        self._write(
            self._exception, "create_exception_projector", value, None, tag, step, sample_name, sample_type, x
        )

    def _write(
        self,
        filename: str | None,
        create: str,
        value: np.ndarray,
        label: np.ndarray | torch.Tensor | None,
        tag: str,
        step: int,
        sample_name: str | None,
        sample_type: str | None,
        x: np.ndarray | torch.Tensor | None,
    ) -> None:
        if filename is None:
            raise RuntimeError(f"summary.Projector: call {create}() first")
        line: dict[str, Any] = {}
        if x is not None:
            line["sample"] = {}
            self.set_sample(line["sample"], sample_name, x, sample_type)
        self.set_projector(line, tag, step, value, label)
        self.write_projector(filename, line)

    def set_projector(
        self,
        pro: dict[str, Any],
        tag: str,
        step: int,
        value: np.ndarray,
        label: np.ndarray | torch.Tensor | None = None,
    ) -> None:
        pro["tag"], pro["step"], pro["wall_time"] = tag, int(step), time.time()
        pro["value"] = {}
        self.set_tensor(pro["value"], value)
        if label is not None:
            pro["label"] = {}
            self.set_tensor(pro["label"], label)

    def set_tensor(self, tensor: dict[str, Any] | torch.Tensor, value: np.ndarray) -> None:
        import numpy as np

        value = np.asarray(value)
        tensor.update(shape=list(value.shape), dtype=value.dtype.name, content=value.reshape(-1).tolist())

    def set_sample(
        self, sample: dict[str, Any], name: str, x: np.ndarray | torch.Tensor, sample_type: str
    ) -> None:
        if sample_type not in ("image", "audio", "text"):
            raise ValueError(
                f'Projector: sample_type must be "image", "audio" or "text", found {sample_type!r}'
            )
        sample.update(name=name, type=sample_type)
        self.set_tensor(sample, x)

    def write_projector(self, filename: str | None = None, projector: dict[str, Any] | None = None) -> None:
        with open(filename, "a", encoding="utf8") as f:
            f.write(json.dumps(projector) + "\n")
