"""flow.checkpoint: save and read snapshots.

A snapshot is a folder with one folder per variable, holding the raw values (`out`) and their shape and
dtype (`meta`, text), and an empty file `snapshot_done`. Snapshots of OneFlow 0.2 to 0.5 are read.
"""

from __future__ import annotations

import os
import re

from . import _session

_KINDS = {
    "kFloat": "float32",
    "kDouble": "float64",
    "kFloat16": "float16",
    "kInt8": "int8",
    "kInt32": "int32",
    "kInt64": "int64",
    "kUInt8": "uint8",
    "kChar": "int8",
    "kBFloat16": "bfloat16",
}


def save(path, var_dict=None):
    """Write every variable (or those of `var_dict`, {name: blob or array}) into the folder `path`."""
    import numpy as np

    if var_dict is None:
        _session.default().start()
        var_dict = {n: _session.VariableBlob(n, t) for n, t in _session.default().all_values().items()}
    if os.path.isdir(path) and os.listdir(path):
        raise FileExistsError(f"checkpoint.save: the folder {path!r} is not empty; give a new one")
    os.makedirs(path, exist_ok=True)
    for name, value in var_dict.items():
        array = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
        folder = os.path.join(path, _file_name(name))
        os.makedirs(folder, exist_ok=True)
        data_type = next((k for k, v in _KINDS.items() if v == array.dtype.name), None)
        if data_type is None:
            raise TypeError(
                f"checkpoint.save: variable {name!r} has dtype {array.dtype}, which snapshots cannot hold"
            )
        with open(os.path.join(folder, "out"), "wb") as f:
            f.write(array.tobytes())
        with open(os.path.join(folder, "meta"), "w", encoding="utf8") as f:
            dims = "".join(f"  dim: {d}\n" for d in array.shape)
            f.write(f"shape {{\n{dims}}}\ndata_type: {data_type}\n")
    with open(os.path.join(path, "snapshot_done"), "w", encoding="utf8"):
        pass


def _file_name(name):
    if not name or name.startswith(".") or re.search(r"[/\\\0]", name):
        raise ValueError(f"checkpoint.save: {name!r} cannot be the name of a folder")
    return name


class FileBackedVariableBlob:
    """One variable of a snapshot. The values are read on demand."""

    def __init__(self, name, folder, shape, dtype):
        self.name, self._folder, self.shape, self._dtype = name, folder, shape, dtype

    @property
    def dtype(self):
        import torch

        return getattr(torch, self._dtype)

    def numpy(self, parallel_id=None):
        import numpy as np

        raw = np.fromfile(os.path.join(self._folder, "out"), dtype=self._dtype)
        if raw.size != np.prod(self.shape, dtype=int):
            raise ValueError(
                f"snapshot variable {self.name!r}: {raw.size} values in the file, its shape {self.shape}"
                f" needs {np.prod(self.shape, dtype=int)}"
            )
        return raw.reshape(self.shape)

    def __repr__(self):
        return f"FileBackedVariableBlob({self.name!r}, shape={self.shape}, dtype={self._dtype})"


def get(path):
    """{name: blob} of the snapshot in the folder `path`; a blob has numpy(), shape, dtype.

    A variable without `meta` (OneFlow's first layout) gets its shape and dtype from the variable of the
    same name in the session, and is left out when there is none.
    """
    if not os.path.isdir(path):
        raise FileNotFoundError(f"checkpoint.get: there is no folder {path!r}")
    variables = {}
    for name in sorted(os.listdir(path)):
        folder = os.path.join(path, name)
        if not os.path.isfile(os.path.join(folder, "out")):
            continue
        meta = os.path.join(folder, "meta")
        if os.path.isfile(meta):
            with open(meta, encoding="utf8") as f:
                description = f.read()
            shape = tuple(int(d) for d in re.findall(r"dim:\s*(\d+)", description))
            data_type = re.search(r"data_type:\s*(\w+)", description)
            dtype = _KINDS.get(data_type.group(1) if data_type else "kFloat")
            if dtype is None or dtype == "bfloat16":
                raise TypeError(
                    f"checkpoint.get: variable {name!r} has data_type {data_type.group(1)}, which is not"
                    " readable as an array"
                )
        else:
            _session.default().start()
            live_value = _session.default().all_values().get(name)
            if live_value is None:
                continue
            shape, dtype = tuple(live_value.shape), str(live_value.dtype).removeprefix("torch.")
        variables[name] = FileBackedVariableBlob(name, folder, shape, dtype)
    return variables


def init():
    """Fill every variable again from its initializer and set the step counters to 0."""
    session = _session.default()
    session.start()
    for variable in session.variables.values():
        variable.initialize()
    for job in session.jobs.values():
        job.step = 0
