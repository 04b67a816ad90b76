"""Hostile sharded checkpoints, and folders of torch.distributed.checkpoint: `hostile(folder)` yields (name,
path).
"""

import json
import os
import shutil
import struct

import hostile_files as h
import torch

import oneflow as flow
from oneflow._files.sharded import index

INDEX = "checkpoint.json"


def content():
    base = torch.arange(12.0)
    return {"w": torch.arange(20.0).reshape(4, 5), "base": base, "part": base[2:5], "lr": 0.1}


def write_index(path, text):
    (path / INDEX).write_bytes(
        index.with_checksum(text if isinstance(text, bytes) else json.dumps(text).encode())
    )


def read_index(path):
    out = json.loads((path / INDEX).read_bytes())
    del out["crc32"]
    return out


# name: a change of the index, as a dict
INDEXES = {
    "file above": lambda i: i["files"][0].__setitem__(0, "../secret.safetensors"),
    "absolute file": lambda i: i["files"][0].__setitem__(0, "/etc/passwd"),
    "file of a folder": lambda i: i["files"][0].__setitem__(0, "inner/x"),
    "file of a backslash": lambda i: i["files"][0].__setitem__(0, "..\\x"),
    "file of zero bytes": lambda i: i["files"][0].__setitem__(0, "a\0b"),
    "file of a number": lambda i: i["files"][0].__setitem__(0, 3),
    "file of no name": lambda i: i["files"][0].__setitem__(0, ""),
    "file twice": lambda i: i["files"].append(i["files"][0]),
    "missing file": lambda i: i["files"][0].__setitem__(0, "rank-9.safetensors"),
    "size of a file": lambda i: i["files"][0].__setitem__(1, 7),
    "negative size of a file": lambda i: i["files"][0].__setitem__(1, -7),
    "no files": lambda i: i["files"].clear(),
    "files of text": lambda i: i.__setitem__("files", "x"),
    "tensors of a list": lambda i: i.__setitem__("tensors", []),
    "no object": lambda i: i.pop("object"),
    "more entries": lambda i: i.__setitem__("code", "x"),
    "no format": lambda i: i.pop("format"),
    "version": lambda i: i.__setitem__("version", 99),
    "no ranks": lambda i: i.__setitem__("ranks", 0),
    "ranks of a bool": lambda i: i.__setitem__("ranks", True),
    "many ranks": lambda i: i.__setitem__("ranks", 1 << 40),
    "dtype": lambda i: i["tensors"]["w"].__setitem__("dtype", "int32"),
    "dtype of another size": lambda i: i["tensors"]["w"].__setitem__("dtype", "float64"),
    "dtype of no tensor": lambda i: i["tensors"]["w"].__setitem__("dtype", "quint8"),
    "dtype of a name": lambda i: i["tensors"]["w"].__setitem__("dtype", "system"),
    "dtype of a list": lambda i: i["tensors"]["w"].__setitem__("dtype", ["float32"]),
    "shape": lambda i: i["tensors"]["w"].__setitem__("shape", [5, 4]),
    "huge shape": lambda i: i["tensors"]["w"].__setitem__("shape", [1 << 61, 4]),
    "endless shape": lambda i: i["tensors"]["w"].__setitem__("shape", [1 << 80]),
    "negative shape": lambda i: i["tensors"]["w"].__setitem__("shape", [-4, -5]),
    "shape of floats": lambda i: i["tensors"]["w"].__setitem__("shape", [4.0, 5.0]),
    "shape of bools": lambda i: i["tensors"]["w"].__setitem__("shape", [True, 5]),
    "many dimensions": lambda i: i["tensors"]["w"].__setitem__("shape", [1] * 1000),
    "empty and huge": lambda i: i["tensors"]["w"].update(
        shape=[0, 1 << 61], chunks=[[0, [0, 0], [0, 1 << 61], 0]]
    ),
    "gap": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(2, [3, 5]),
    "chunk beyond": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(2, [4, 6]),
    "offset beyond": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(1, [1, 0]),
    "negative offset": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(1, [-1, 0]),
    "overlap": lambda i: i["tensors"]["w"]["chunks"].append(i["tensors"]["w"]["chunks"][0]),
    "partial overlap": lambda i: i["tensors"]["w"].__setitem__(
        "chunks", [[0, [0, 0], [3, 5], 0], [0, [2, 0], [2, 5], 0]]
    ),
    "no chunks": lambda i: i["tensors"]["w"]["chunks"].clear(),
    "chunk of another file": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(0, 5),
    "chunk of other dimensions": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(1, [0]),
    "chunk of text": lambda i: i["tensors"]["w"].__setitem__("chunks", ["x"]),
    "checksum": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(3, 1),
    "checksum of text": lambda i: i["tensors"]["w"]["chunks"][0].__setitem__(3, "1"),
    "chunk of no entry": lambda i: i["tensors"].__setitem__("absent", i["tensors"].pop("w")),
    "view beyond": lambda i: i["tensors"]["part"]["view"].__setitem__(1, 11),
    "view by strides": lambda i: i["tensors"]["part"]["view"].__setitem__(2, [1 << 40]),
    "negative view": lambda i: i["tensors"]["part"]["view"].__setitem__(1, -1),
    "negative stride": lambda i: i["tensors"]["part"]["view"].__setitem__(2, [-1]),
    "view of itself": lambda i: i["tensors"]["part"]["view"].__setitem__(0, "part"),
    "view of nothing": lambda i: i["tensors"]["part"]["view"].__setitem__(0, "x"),
    "view of another dtype": lambda i: i["tensors"]["part"].__setitem__("dtype", "float64"),
    "expanded view": lambda i: i["tensors"]["part"].update(shape=[1 << 40], view=["base", 0, [0]]),
    "sbp": lambda i: i["tensors"]["w"].update(placement=["cpu", [0]], sbp=["X"]),
    "sbp of a dimension": lambda i: i["tensors"]["w"].update(placement=["cpu", [0]], sbp=["S(5)"]),
    "partial sum": lambda i: i["tensors"]["w"].update(placement=["cpu", [0]], sbp=["P"]),
    "sbp without placement": lambda i: i["tensors"]["w"].update(sbp=["B"]),
    "placement of a device": lambda i: i["tensors"]["w"].update(placement=["/dev/zero", [0]], sbp=["B"]),
    "placement of negative ranks": lambda i: i["tensors"]["w"].update(placement=["cpu", [-1]], sbp=["B"]),
    "placement of huge ranks": lambda i: i["tensors"]["w"].update(placement=["cpu", [1 << 80]], sbp=["B"]),
    "ragged placement": lambda i: i["tensors"]["w"].update(placement=["cpu", [[0], [1, 2]]], sbp=["B", "B"]),
    "object of a class": lambda i: i.__setitem__("object", {"os.system": "true"}),
    "object of nothing": lambda i: i.__setitem__("object", {}),
    "object of no tensor": lambda i: i.__setitem__("object", {"tensor": "x"}),
    "object of a flag": lambda i: i.__setitem__("object", {"tensor": "w", "hook": True}),
    "object of a false flag": lambda i: i.__setitem__("object", {"tensor": "w", "parameter": 1}),
    "array of a flag": lambda i: i.__setitem__("object", {"array": "w", "parameter": True}),
    "ranks of ranks": lambda i: i.__setitem__("object", {"ranks": [{"ranks": [1]}]}),
    "ranks of none": lambda i: i.__setitem__("object", {"ranks": []}),
    "dict of one": lambda i: i.__setitem__("object", {"dict": [["a"]]}),
    "dict of a dict": lambda i: i.__setitem__("object", {"dict": {"a": 1}}),
    "key twice": lambda i: i.__setitem__("object", {"dict": [["a", 1], ["a", 2]]}),
    "key of a list": lambda i: i.__setitem__("object", {"dict": [[[1], 1]]}),
    "key of a tensor": lambda i: i.__setitem__("object", {"dict": [[{"tensor": "w"}, 1]]}),
    "keys of one hash": lambda i: i.__setitem__(
        "object", {"dict": [[k * (2**61 - 1), 1] for k in range(1, 5000)]}
    ),
    "set of lists": lambda i: i.__setitem__("object", {"set": [[1]]}),
    "float of text": lambda i: i.__setitem__("object", {"float": "1e999"}),
    "bytes of text": lambda i: i.__setitem__("object", {"bytes": "!"}),
    "device of text": lambda i: i.__setitem__("object", {"device": "x" * 10}),
    "dtype of text": lambda i: i.__setitem__("object", {"dtype": "nn"}),
    "complex of one": lambda i: i.__setitem__("object", {"complex": [1.0]}),
    "placement of text": lambda i: i.__setitem__("object", {"placement": "cpu"}),
    "two types": lambda i: i.__setitem__("object", {"tuple": [], "set": []}),
    "metadata of a dict": lambda i: i.__setitem__("object", {"dict": [], "metadata": 1}),
    "gradient of integers": lambda i: (
        i["tensors"]["w"].__setitem__("dtype", "int32"),
        i.__setitem__("object", {"tensor": "w", "requires_grad": True}),
    ),
}

# name: the bytes of the index
TEXTS = {
    "empty": b"",
    "no JSON": b"{hello",
    "list": b"[]",
    "NaN": b'{"format":"oneflow-sharded","version":NaN}',
    "infinite": b'{"format":"oneflow-sharded","version":Infinity}',
    "deep lists": b'{"object":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "many lists": b'{"object":[' + b"[]," * 500_000 + b"[]]}",
    "name twice": b'{"format":"oneflow-sharded","format":"oneflow-sharded"}',
    "digits": b'{"format":"oneflow-sharded","version":' + b"9" * 10_000 + b"}",
    "no utf-8": b'{"\xff\xfe":1}',
}

# name: a change of the safetensors file, as (header, values) -> bytes
FILES = {
    "huge header": lambda header, values: struct.pack("<Q", 1 << 60) + header + values,
    "long header": lambda header, values: struct.pack("<Q", len(header) + 9) + header + values,
    "entries that overlap": lambda header, values: _file(header.replace(b"[80,128]", b"[32,80] "), values),
    "entry of another dtype": lambda header, values: _file(header.replace(b'"F32"', b'"I32"'), values),
    "entry of another shape": lambda header, values: _file(header.replace(b"[4,5]", b"[5,4]"), values),
    "entry of another name": lambda header, values: _file(header.replace(b'"w"', b'"v"'), values),
    "name twice": lambda header, values: _file(header.replace(b'"base"', b'"w"   '), values),
    "truncated": lambda header, values: _file(header, values[:-1]),
    "longer": lambda header, values: _file(header, values + b"x"),
    "altered value": lambda header, values: _file(header, values[:-1] + b"\x01"),
    "deep header": lambda header, values: _file(b'{"w":' * 2000 + b"1" + b"}" * 2000, values),
}


def _file(header, values):
    return struct.pack("<Q", len(header)) + header + values


def _parts(body):
    length = struct.unpack("<Q", body[:8])[0]
    return body[8 : 8 + length], body[8 + length :]


def _sharded(folder):
    good = folder / "good"
    flow.save(content(), good, layout="sharded")
    [name] = [p.name for p in good.iterdir() if p.suffix == ".safetensors"]
    for title, change in INDEXES.items():
        path = folder / f"sharded {title}"
        shutil.copytree(good, path)
        altered = read_index(path)
        change(altered)
        write_index(path, altered)
        yield path.name, path
    for title, text in TEXTS.items():
        path = folder / f"sharded text {title}"
        shutil.copytree(good, path)
        write_index(path, text or b"{")
        yield path.name, path
    for title, change in FILES.items():
        path = folder / f"sharded file {title}"
        shutil.copytree(good, path)
        body = change(*_parts((path / name).read_bytes()))
        (path / name).write_bytes(body)
        altered = read_index(path)
        if title not in ("truncated", "longer"):  # otherwise the size alone would refuse the file
            altered["files"][0][1] = len(body)
        write_index(path, altered)
        yield path.name, path
    yield from _linked(folder, good, name)


def _linked(folder, good, name):
    secret = folder / "secret"
    secret.mkdir()
    shutil.copy(good / name, secret / name)
    shutil.copy(good / INDEX, secret / INDEX)
    for title, part, make in (
        ("link", name, lambda p: p.symlink_to(secret / name)),
        ("link of the index", INDEX, lambda p: p.symlink_to(secret / INDEX)),
        ("link to itself", name, lambda p: p.symlink_to(p)),
        ("pipe", name, os.mkfifo),
        ("pipe as index", INDEX, os.mkfifo),
        ("device", name, lambda p: p.symlink_to("/dev/zero")),
        ("folder", name, os.mkdir),
        ("hole", INDEX, lambda p: _hole(p)),
    ):
        path = folder / f"sharded {title} as a file"
        shutil.copytree(good, path)
        (path / part).unlink()
        make(path / part)
        yield path.name, path


def _hole(path):
    path.touch()
    os.truncate(path, 1 << 40)


# --------------------------------------------------------------------------- torch.distributed.checkpoint
_METADATA = "torch.distributed.checkpoint.metadata"


def metadata(
    file="data", offset=0, length=None, sizes=(4,), shape=(4,), dtype="torch.float32", info=None, **fields
):
    """The opcodes of a `.metadata` with one tensor "w"."""
    size = lambda values: h.call("torch.Size", tuple(values))
    layout = h.call("torch.serialization._get_layout", "torch.strided")
    properties = h.build(h.new(f"{_METADATA}.TensorProperties"), (h.glob(dtype), layout, False, None, False))
    chunk = h.build(
        h.new(f"{_METADATA}.ChunkStorageMetadata"), {"offsets": size([0] * len(sizes)), "sizes": size(sizes)}
    )
    chunks = h.Code(b"](" + chunk + b"e")
    tensor = h.build(
        h.new(f"{_METADATA}.TensorStorageMetadata"),
        {"properties": properties, "size": size(shape), "chunks": chunks},
    )
    key = h.build(
        h.new(f"{_METADATA}.MetadataIndex"), {"fqn": "w", "offset": size([0] * len(sizes)), "index": 0}
    )
    place = {"relative_path": file, "offset": offset, "length": length, **(info or {})}
    item = h.build(h.new("torch.distributed.checkpoint.filesystem._StorageInfo"), place)
    storage = h.Code(b"}(" + key + item + b"u")
    return h.build(
        h.new(f"{_METADATA}.Metadata"),
        {
            "state_dict_metadata": {"w": tensor},
            "storage_data": storage,
            "planner_data": {"w": ("w",)},
            **fields,
        },
    )


def _dcp(folder):
    torch.save(torch.arange(4.0), folder / "item")
    body = (folder / "item").read_bytes()
    torch.save(torch.arange(4), folder / "item")
    integers = (folder / "item").read_bytes()
    size = len(body)
    value = h.call(f"{_METADATA}.BytesStorageMetadata")
    cases = {
        "file above": metadata("../data", length=size),
        "absolute file": metadata("/etc/passwd", length=size),
        "missing file": metadata("other", length=size),
        "file of a number": metadata(3, length=size),
        "offset beyond": metadata(offset=10, length=size),
        "negative offset": metadata(offset=-1, length=size),
        "length beyond": metadata(length=1 << 50),
        "length of text": metadata(length="x"),
        "transforms": metadata(length=size, info={"transform_descriptors": ["zstd"]}),
        "other sizes": metadata(length=size, sizes=(2,), shape=(2,)),
        "gap": metadata(length=size, shape=(5,)),
        "negative shape": metadata(length=size, sizes=(-4,), shape=(-4,)),
        "huge shape": metadata(length=size, sizes=(1 << 40,), shape=(1 << 40,)),
        "other dtype": metadata(length=size, dtype="torch.int32"),
        "dtype of a function": metadata(length=size, dtype="torch.nn.functional.relu"),
        "value in no file": metadata(length=size, state_dict_metadata={"x": value}),
        "tables of text": metadata(length=size, storage_data="x"),
        "value of text": metadata(length=size, state_dict_metadata={"w": "a value"}),
        "path of objects": metadata(length=size, planner_data={"w": ({"a": 1},)}),
        "path of nothing": metadata(length=size, planner_data={"w": ()}),
        "deep path": metadata(length=size, planner_data={"w": tuple("x" * 5000)}),
        "code": h.call("posix.system", f"touch {h.MARKER}"),
        "code in a field": metadata(length=size, version=h.call("posix.system", f"touch {h.MARKER}")),
        "Metadata with arguments": h.new(f"{_METADATA}.Metadata", {"x": 1}),
        "Metadata of text": h.build(h.new(f"{_METADATA}.Metadata"), "x"),
        "no metadata": h.Code(h.value(3)),
    }
    for title, code in cases.items():
        path = folder / f"dcp {title}"
        path.mkdir()
        (path / ".metadata").write_bytes(b"\x80\x04" + code + b".")
        (path / "data").write_bytes(body)
        yield path.name, path
    for title, item in {
        "item of code": _zip(folder, h.call("posix.system", f"touch {h.MARKER}")),
        "item of integers": integers,
        "item of zeros": bytes(size),
    }.items():
        path = folder / f"dcp {title}"
        path.mkdir()
        (path / ".metadata").write_bytes(b"\x80\x04" + metadata(length=len(item)) + b".")
        (path / "data").write_bytes(item)
        yield path.name, path


def _zip(folder, code):
    h.torch_zip(folder / "zip", code)
    return (folder / "zip").read_bytes()


def good_dcp(folder):
    """The folder that the hostile ones differ from."""
    torch.save(torch.arange(4.0), folder / "data")
    code = metadata(length=(folder / "data").stat().st_size)
    (folder / ".metadata").write_bytes(b"\x80\x04" + code + b".")


def hostile(folder):
    """Write all hostile folders below `folder`; yield (name, path) of each."""
    for make in (_sharded, _dcp):
        inner = folder / make.__name__
        inner.mkdir(parents=True)
        yield from make(inner)
