"""flow.checkpoint: save and read snapshots.

A snapshot is a folder with one folder per variable, holding the raw values (`out`) and their shape and
dtype (`meta`, text), and an empty file `snapshot_done`. Snapshots of OneFlow 0.2 to 0.5 are read, with the
checks of `oneflow.load`.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..._files import dtypes, layout
from ._jobs import session as _session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def save(path: str, var_dict: Any = None) -> None:
    """Write every variable (or those of `var_dict`, {name: blob or array}) into the folder `path`."""
    if var_dict is None:
        _session.default().start()
        var_dict = {n: _session.VariableBlob(n, t) for n, t in _session.default().all_values().items()}
    if os.path.isdir(path) and os.listdir(path):
        raise FileExistsError(f"checkpoint.save: the folder {path!r} is not empty; give a new one")
    tensors = {_file_name(name): _tensor_of(name, value) for name, value in var_dict.items()}
    os.makedirs(path, exist_ok=True)
    try:
        for name, tensor in tensors.items():
            layout.write_tensor(os.path.join(path, name), tensor)
        with open(os.path.join(path, layout.LEGACY_MARK), "w", encoding="utf8"):
            pass
    except BaseException:
        for name in tensors:
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)
        raise


def _tensor_of(name: str, value: Any) -> torch.Tensor:
    array = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
    try:
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
        dtypes.name_of(tensor.dtype)
    except (TypeError, NotImplementedError):
        raise TypeError(
            f"checkpoint.save: variable {name!r} has dtype {array.dtype}, which snapshots cannot hold"
        ) from None
    return tensor


def _file_name(name: str) -> str:
    if not name or name.startswith(".") or re.search(r"[/\\\0]", name):
        raise ValueError(f"checkpoint.save: {name!r} cannot be the name of a folder")
    return name


class FileBackedVariableBlob:
    """One variable of a snapshot. The values are read on demand."""

    def __init__(self, name: str, snapshot: str, shape: Sequence[int], data_type: str) -> None:
        self.name, self._snapshot, self.shape, self._data_type = name, snapshot, shape, data_type

    @property
    def dtype(self) -> Any:
        return dtypes.PROTO[self._data_type][1]

    def numpy(self, parallel_id: Any = None) -> np.ndarray:
        folder = os.path.join(self._snapshot, self.name)
        return dtypes.to_numpy(layout.read_data(folder, self._snapshot, self.shape, self._data_type))

    def __repr__(self) -> str:
        return f"FileBackedVariableBlob({self.name!r}, shape={self.shape}, dtype={self.dtype})"


def get(path: str) -> dict[str, Any]:
    """{name: blob} of the snapshot in the folder `path`; a blob has numpy(), shape, dtype.

    A variable without `meta` (OneFlow's first layout) gets its shape and dtype from the variable of the
    same name in the session, and is left out when there is none. A damaged file is a CheckpointError.
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        raise FileNotFoundError(f"checkpoint.get: there is no folder {path!r}")
    variables = {}
    for name in sorted(os.listdir(path)):
        folder = os.path.join(path, name)
        if not os.path.lexists(os.path.join(folder, layout.DATA)):
            continue
        if os.path.lexists(os.path.join(folder, layout.META)):
            shape, data_type = layout.read_meta(folder, path)
        else:
            _session.default().start()
            live_value = _session.default().all_values().get(name)
            if live_value is None:
                continue
            shape, data_type = tuple(live_value.shape), dtypes.name_of(live_value.dtype)
        variables[name] = FileBackedVariableBlob(name, path, shape, data_type)
    return variables


def init() -> None:
    """Fill every variable again from its initializer and set the step counters to 0."""
    session = _session.default()
    session.start()
    for variable in session.variables.values():
        variable.initialize()
    session.forget_stale_values()
    for job in session.jobs.values():
        job.step = 0
