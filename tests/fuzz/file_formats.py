"""The file formats of fuzz_files.py: how each is written, read and compared."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "files"))
import hostile_files
import numpy as np
import torch

import oneflow as flow
from oneflow._data import onerec, records


@dataclasses.dataclass(frozen=True)
class Format:
    """How a format is written and read. `checked`: it has check sums, so that a wrong value is an error."""

    write: object
    read: object
    checked: bool
    counted: bool = True  # whether a file that lacks whole records at its end is damaged


def _content():
    generator = torch.Generator().manual_seed(5)
    return {
        "weight": torch.randn(40, 5, generator=generator),
        "ids": torch.arange(30),
        "name": "a run",
        "steps": [1, 2.5, None, (True, "x")],
        "half": torch.ones(7, dtype=torch.float16),
        "part": torch.nn.Parameter(torch.zeros(3)),
        "array": np.arange(6.0).reshape(2, 3),
    }


def _save(**options):
    return lambda path: flow.save(_content(), path, **options)


def _save_modules(path):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        flow.save(
            flow.nn.Sequential(flow.nn.Conv2d(1, 2, 3), flow.nn.BatchNorm2d(2), flow.nn.LSTM(2, 2)),
            path,
            layout="pickle",
        )


def _read_modules(path):
    module = flow.load(path)
    return {"text": repr(module), "state": dict(module.state_dict())}


def _save_safetensors(path):
    tensors = {k: v for k, v in _content().items() if type(v) is torch.Tensor}
    header, data = {}, b""
    for name, tensor in tensors.items():
        body = tensor.numpy().tobytes()
        of = {torch.float32: "F32", torch.int64: "I64", torch.float16: "F16"}[tensor.dtype]
        header[name] = {
            "dtype": of,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(body)],
        }
        data += body
    path.write_bytes(hostile_files._safetensors(header, data))


def _save_dcp(path):
    import torch.distributed.checkpoint as dcp

    tensors = {k: v for k, v in _content().items() if type(v) is torch.Tensor}
    dcp.save({"tensors": tensors, "steps": [1, 2.5, (True, "x")]}, checkpoint_id=path, no_dist=True)


def _save_variables(path):
    from oneflow._files import layout

    path.mkdir()
    (path / "snapshot_done").touch()
    for name, tensor in _content().items():
        if type(tensor) is torch.Tensor:
            layout.write_tensor(path / name, tensor)


def _save_ofrecord(path):
    with flow.utils.data.OFRecordWriter(path) as out:
        for i in range(8):
            out.write({"x": np.float32([i, 2]), "label": i, "name": f"sample {i}"})


def _read_ofrecord(path):
    return [{name: record.field(name) for name in record.features} for record in records.read_file(path)]


def _save_onerec(path):
    with flow.utils.data.OneRecWriter(path) as out:
        for i in range(8):
            out.write({"x": np.float32([i, 2]), "text": ["a", "b"], "n": np.int64([[i]])})


def _read_onerec(path):
    return [onerec.parse(payload.tobytes(), where) for payload, where in onerec.read_file(path)]


def _save_snapshot(path):
    from oneflow.one_embedding import snapshot

    keys = np.arange(50)
    snapshot.write(
        path, "one", [(keys, np.ones((50, 4), np.float32)), (keys + 50, np.zeros((50, 4), np.float32))], 4
    )


def _read_snapshot(path):
    from oneflow.one_embedding import snapshot

    line, chunks = snapshot.read(path, "one")
    return [line, *(array for chunk in chunks for array in chunk)]


def _save_hub_zip(path):
    folder = path.with_name(path.name + " source")
    flow.save(_content(), folder / "model", layout="folder")
    shutil.make_archive(str(path), "zip", folder)
    pathlib.Path(f"{path}.zip").rename(path)
    shutil.rmtree(folder)


def read_hub_zip(path):
    from oneflow import hub

    shutil.rmtree(f"{path}.unpacked", ignore_errors=True)
    return flow.load(hub._unpacked(str(path)))


FORMATS = {
    "torch": Format(_save(), flow.load, True),
    "stream": Format(_save(_use_new_zipfile_serialization=False), flow.load, False),
    "folder": Format(_save(layout="folder"), flow.load, True),
    "pickle": Format(_save(layout="pickle"), flow.load, True),
    "modules": Format(_save_modules, _read_modules, True),
    "variables": Format(_save_variables, flow.load, False),  # the names of the folders are not summed
    "sharded": Format(_save(layout="sharded"), flow.load, True),
    "dcp": Format(_save_dcp, flow.load, False),  # its metadata is not summed
    "safetensors": Format(_save_safetensors, flow.load, False),
    "ofrecord": Format(_save_ofrecord, _read_ofrecord, False),
    "onerec": Format(_save_onerec, _read_onerec, True, counted=False),
    "snapshot": Format(_save_snapshot, _read_snapshot, True),
    "hub zip": Format(_save_hub_zip, read_hub_zip, True),
}


ANY = Format(None, flow.load, False)
