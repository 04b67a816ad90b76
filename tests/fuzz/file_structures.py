"""Files that keep the structure of their format and change what is in it, for fuzz_files.py.

A pickle is a list of opcodes: some are dropped, repeated, swapped, taken from another pickle, or get another
number. JSON is a tree whose nodes are replaced. Lengths, checksums and digests around them are right, so that
a reader gets to the content. Each entry of STRUCTURES is one reader: (write a file from a random generator,
read).
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import pathlib
import pickle
import pickletools
import struct
import sys
import tempfile
import zipfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "files"))
import hostile_files as h
import hostile_graphs
import hostile_sharded
import numpy as np
from file_damage import DAMAGES
from file_formats import FORMATS, Format, read_hub_zip

import oneflow as flow
from oneflow._data import images, onerec, records, wire
from oneflow._data.coco import BatchStream
from oneflow._data.gpt import TokenFile

EDGES = (
    0,
    1,
    -1,
    2,
    255,
    256,
    2**15,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
    2**64,
    10**30,
)


def _damaged(body, rng):
    return rng.choice(DAMAGES)(body, rng) if body else body


# --------------------------------------------------------------------------- pickles
@functools.cache
def _seeds():
    """Pickles as lists of opcodes: (good ones, those of hostile_files)."""
    plain = [
        {"w": [1, 2.5, None, (True, "x")], "o": {"a": b"b"}},
        np.arange(3.0),
        np.float32(1),
        {1, "a"},
        2**70,
    ]
    good = [pickle.dumps(value, protocol)[2:] for value in plain for protocol in (2, 4)]
    codes = [
        h.tensor(),
        h.call("torch._utils._rebuild_parameter", h.tensor(), True, h.call("collections.OrderedDict")),
        h.call(
            "torch._utils._rebuild_meta_tensor_no_storage", h.glob("torch.float32"), (2, 3), (3, 1), False
        ),
        h.call("torch.Size", (2, 3)),
        h.array((2,), bytes(8)),
        h.build(h.new("oneflow.Tensor"), {"data": h.array((2,), bytes(8)), "dtype": h.glob("torch.float32")}),
        h.build(h.new("oneflow.placement"), {"type": "cpu", "ranks": [0]}),
        h.build(h.new("oneflow.sbp.sbp"), ("S", 0)),
        h.build(h.new("oneflow._oneflow_internal.dtype"), 2),
        h.build(h.new("argparse.Namespace"), {"lr": 0.1}),
        h.call("collections.Counter", {"a": 2}),
        h.call("collections.deque", (1, 2), 5),
        h.call("datetime.datetime", bytes([7, 230, 1, 1, 0, 0, 0, 0, 0, 0])),
        h.layer("torch.nn.modules.linear.Linear", in_features=2, _parameters={"weight": None, "bias": None}),
        h.layer("oneflow.nn.modules.conv.Conv2d", kernel_size=(3, 3), stride=(1, 1), dilation=(1, 1)),
        h.layer("oneflow.nn.modules.pooling.AvgPool2d", divisor_override=0),
    ]
    good += [bytes(code) + b"." for code in codes]
    hostile = [bytes(code) + b"." for code in h.pickles().values() if len(code) < 2000]
    return tuple([ops for ops in map(_opcodes, bodies) if ops] for bodies in (good, hostile))


def _seed(rng):
    return rng.choice(rng.choice(_seeds()))


def _opcodes(body):
    """The bytes of each opcode, up to one that cannot be parsed."""
    starts, out = [], []
    try:
        for _, _, at in pickletools.genops(b"\x80\x04" + body):
            starts.append(at)
    except Exception:
        pass
    body = b"\x80\x04" + body
    for begin, end in zip(starts, [*starts[1:], len(body)]):
        out.append(body[begin:end])
    return out[1:-1]


def _number(rng):
    value = rng.choice(EDGES)
    return h.value(value if rng.random() < 0.7 else rng.choice((0.5, None, True, "x", b"y", (), [], {})))


def pickled(rng) -> bytes:
    """The opcodes of a changed pickle, without the end."""
    ops = list(_seed(rng))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(ops)) if ops else 0
        change = rng.randrange(6)
        if change == 0:
            del ops[at : at + rng.choice((1, 1, 3))]
        elif change == 1:
            ops[at:at] = ops[at : at + rng.choice((1, 2, 8))] * rng.choice((1, 1, 20))
        elif change == 2 and ops:
            to = rng.randrange(len(ops))
            ops[at], ops[to] = ops[to], ops[at]
        elif change == 3:
            ops[at : at + rng.choice((0, 1))] = [_number(rng)]
        elif change == 4:
            other = _seed(rng)
            begin = rng.randrange(len(other))
            ops[at : at + rng.choice((0, 1))] = other[begin : begin + rng.choice((1, 4, 40))]
        elif ops:
            ops[at] = _damaged(ops[at], rng)
    return b"".join(ops)


def _write_stream(path, rng):
    """A stream that lists the storages which its pickle names."""
    body = pickled(rng)
    named = {key: data for key, data in h.VALUES.items() if h.value(key)[:-2] in body}
    whole, h.VALUES = h.VALUES, named if rng.random() < 0.9 else h.VALUES
    try:
        h.torch_stream(path, h.Code(body))
    finally:
        h.VALUES = whole


def _write_pickle(write):
    return lambda path, rng: write(path, h.Code(pickled(rng)))


# --------------------------------------------------------------------------- JSON
def _nodes(tree, out):
    """(container, key) of each node of a tree."""
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        out.append((tree, key))
        if isinstance(tree[key], dict | list):
            _nodes(tree[key], out)
    return out


def changed_tree(tree, rng):
    """The same tree with a few of its nodes replaced, dropped, moved or wrapped."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 2, 4))):
        nodes = _nodes(tree, [])
        if not nodes:
            return tree
        (container, key), (source, other) = rng.choice(nodes), rng.choice(nodes)
        change = rng.randrange(5)
        if change == 0:
            container[key] = rng.choice(
                (*EDGES, 0.5, -0.0, 1e308, None, True, "", "x", "a\nb", "é" * 99, [], {}, [[]], {"a": 1})
            )
        elif change == 1:
            del container[key]
        elif change == 2:
            container[key] = json.loads(json.dumps(source[other]))
        elif change == 3:
            container[key] = [container[key]] * rng.choice((1, 2, 100))
        elif isinstance(container, dict):
            container[rng.choice(("x", str(other), f"{key}'"))] = container.pop(key)
    return tree


@functools.cache
def _graphs():
    return list(hostile_graphs.legit_graphs().values())


def _write_graph(path, rng):
    files = dict(rng.choice(_graphs()))
    document = json.loads(files["program.json"])
    document.pop("crc32", None)
    files["program.json"] = json.dumps(changed_tree(document, rng)).encode()
    hostile_graphs.write_folder(path, files)


def _write_graph_tensors(path, rng):
    files = dict(rng.choice(_graphs()))
    members = hostile_graphs._members(files["tensors.pt"])
    at = next(i for i, (name, _) in enumerate(members) if name.endswith("/data.pkl"))
    ops = _changed_opcodes(members[at][1][2:], rng)
    members[at] = members[at][0], b"\x80\x02" + b"".join(ops) + b"."
    files["tensors.pt"] = hostile_graphs._zipped(members)
    hostile_graphs.write_folder(path, files)


def _changed_opcodes(body, rng):
    """The opcodes of a pickle, one or two of which are dropped or replaced."""
    ops = _opcodes(body)
    for _ in range(rng.choice((1, 2))):
        where = rng.randrange(len(ops))
        ops[where : where + rng.choice((0, 1))] = rng.choice(
            (
                [],
                [_number(rng)],
                _seed(rng)[: rng.choice((1, 5, 50))],
                [ops[rng.randrange(len(ops))]],
            )
        )
    return ops


def _read_graph(path):
    graph = flow.load_graph(path)
    return {"program": str(graph.program), "state": graph.state_dict()}


def _write_safetensors(path, rng):
    header = {
        f"k{i}": {"dtype": "F32", "shape": [2, i], "data_offsets": [4 * i * (i - 1), 4 * i * (i + 1)]}
        for i in range(4)
    }
    header["__metadata__"] = {"format": "pt"}
    path.write_bytes(h._safetensors(changed_tree(header, rng), bytes(rng.choice((48, 48, 48, 0, 96)))))


def _write_annotations(path, rng):
    image = lambda i: {"id": i, "height": 4, "width": 3 + i, "file_name": f"{i}.jpg"}
    segment = {"image_id": 1, "category_id": 3, "bbox": [0, 0, 2, 2], "segmentation": [[0, 0, 1, 1, 2, 2]]}
    content = {
        "images": [image(1), image(2)],
        "annotations": [segment, {**segment, "image_id": 2}],
        "categories": [{"id": 3}],
    }
    path.write_text(json.dumps(changed_tree(content, rng)))


def _read_annotations(path):
    try:
        return len(next(iter(BatchStream(path, path.parent, 1, False, 0, True, False, True))))
    except FileNotFoundError:  # the images are not there
        return 0
    except ValueError as error:
        if "no image is left" not in str(error):
            raise
        return 0


# --------------------------------------------------------------------------- records, images and indices
def _message(rng, depth=0):
    """A protobuf message like an OFRecord, with some fields that it does not have."""
    if depth == 3:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(12)))
    out = b""
    for _ in range(rng.randrange(4)):
        body = _message(rng, depth + 1) if rng.random() < 0.8 else rng.choice((b"name", b"", b"\xff"))
        key = rng.choice((1, 1, 2, 3, 4, 5, 9)) << 3 | rng.choice((2, 2, 2, 0, 1, 5, 7))
        out += wire.varint(key) + wire.varint(len(body) if rng.random() < 0.9 else rng.choice(EDGES)) + body
    return out


def _write_ofrecord(path, rng):
    bodies = [_message(rng) if rng.random() < 0.5 else _damaged(_record(), rng) for _ in range(3)]
    path.write_bytes(b"".join(struct.pack("<q", len(body)) + body for body in bodies))


def _record():
    return wire.encode_record(
        {"x": ("float_list", np.float32([1, 2])), "n": ("int64_list", [1, -1]), "b": ("bytes_list", [b"abc"])}
    )


@functools.cache
def _onerec_payload():
    return onerec._encode({"x": np.float32([1, 2]), "text": ["a", "b"], "n": np.int64([[3]])})


def _write_onerec(path, rng):
    payload = _damaged(_onerec_payload(), rng)
    head = onerec._HEAD.pack(onerec._MAGIC, 0, len(payload))
    path.write_bytes(
        head + onerec._digest(head) + payload + bytes(-len(payload) % 8) + onerec._digest(payload)
    )


@functools.cache
def _pictures():
    image_module = __import__("PIL.Image").Image
    picture = image_module.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3))
    out = []
    for kind, options in (
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("PPM", {}),
    ):
        file = io.BytesIO()
        picture.save(file, kind, **options)
        out.append(file.getvalue())
    return out


def _with_sums(png):
    """A PNG whose chunks have the right CRC-32."""
    out, at = bytearray(png), 8
    while at + 12 <= len(out):
        size = int.from_bytes(out[at : at + 4], "big")
        if at + 12 + size > len(out):
            break
        out[at + 8 + size : at + 12 + size] = zlib.crc32(out[at + 4 : at + 8 + size]).to_bytes(4, "big")
        at += 12 + size
    return bytes(out)


def _write_image(path, rng):
    body = bytearray(rng.choice(_pictures()))
    if rng.random() < 0.5:  # a number in the header
        at, size = rng.randrange(min(len(body), 64)), rng.choice((1, 2, 4))
        body[at : at + size] = (rng.choice(EDGES) % 256**size).to_bytes(size, rng.choice(("little", "big")))
    else:
        body = bytearray(_damaged(bytes(body), rng))
    path.write_bytes(_with_sums(body) if body[:4] == b"\x89PNG" else body)


def _read_image(path):
    return images.decode(path.read_bytes(), "RGB", str(path))


def _write_tokens(path, rng):
    count, documents = rng.choice((0, 1, 3, 5)), rng.choice((1, 2, 4))
    sizes = [rng.choice((0, 1, 2, 2, 3)) for _ in range(count)]
    starts = [4 * sum(sizes[:i]) for i in range(count)]
    edges = sorted(rng.randrange(count + 1) for _ in range(documents))
    for values in (sizes, starts, edges):
        if values and rng.random() < 0.4:
            values[rng.randrange(len(values))] = rng.choice((*EDGES[:14], 3, 4, 8))
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, count, documents)
    body = (
        head
        + np.array(sizes, object).astype(np.int64).astype("<i4").tobytes()
        + np.array([*starts, *edges], "<i8").tobytes()
    )
    pathlib.Path(f"{path}.idx").write_bytes(body if rng.random() < 0.8 else _damaged(body, rng))
    pathlib.Path(f"{path}.bin").write_bytes(bytes(4 * sum(s for s in sizes if 0 < s < 99)))
    path.touch()


def _read_tokens(path):
    tokens = TokenFile(path)
    return [tokens.document(i) for i in range(min(len(tokens), 100))]


# --------------------------------------------------------------------------- folders and zip files
def _damaged_format(name):
    """Write a file of a format of FORMATS, and damage one of its parts at random."""

    def write(path, rng):
        for part, body in _good(name).items():
            target = path / part if part else path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
        parts = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        victim = rng.choice(parts)
        victim.write_bytes(_damaged(victim.read_bytes(), rng))

    return write


def _write_sharded(path, rng):
    """Change the index of a sharded folder; its checksum is right."""
    _write_good("sharded", path)
    document = hostile_sharded.read_index(path)
    hostile_sharded.write_index(path, changed_tree(document, rng))


def _write_dcp(path, rng):
    """Change opcodes in the metadata of a folder of torch.distributed.checkpoint."""
    _write_good("dcp", path)
    target = path / ".metadata"
    target.write_bytes(b"\x80\x04" + b"".join(_changed_opcodes(target.read_bytes()[2:], rng)) + b".")


def _write_good(name, path):
    for part, body in _good(name).items():
        target = path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)


@functools.cache
def _good(name):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file"
        FORMATS[name].write(path)
        if path.is_file():
            return {"": path.read_bytes()}
        return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def _write_zip(path, rng):
    """A torch zip file with a changed pickle, or with changed fields of its directory."""
    h.torch_zip(
        path, h.Code(pickled(rng)), rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    )
    if rng.random() < 0.4:
        body = path.read_bytes()
        at = body.find(rng.choice((b"PK\1\2", b"PK\5\6", b"PK\3\4")), rng.randrange(len(body)))
        if at >= 0:
            body = body[:at] + _damaged(body[at : at + 46], rng) + body[at + 46 :]
        path.write_bytes(body)


@dataclasses.dataclass(frozen=True)
class Structure:
    """A reader, and how files for it are written: write(path, random generator)."""

    write: object
    form: Format


def _structure(write, read=flow.load):
    return Structure(write, Format(None, read, False))


STRUCTURES = {
    "pickle": _structure(_write_pickle(h.single_file)),
    "folder": _structure(_write_pickle(h.checkpoint_folder)),
    "torch zip": _structure(_write_zip),
    "torch stream": _structure(_write_stream),
    "variables": _structure(_damaged_format("variables")),
    "safetensors": _structure(_write_safetensors),
    "sharded": _structure(_write_sharded),
    "dcp": _structure(_write_dcp),
    "graph program": _structure(_write_graph, _read_graph),
    "graph tensors": _structure(_write_graph_tensors, _read_graph),
    "embedding": _structure(_damaged_format("snapshot"), FORMATS["snapshot"].read),
    "hub zip": _structure(_damaged_format("hub zip"), read_hub_zip),
    "OFRecord": _structure(_write_ofrecord, FORMATS["ofrecord"].read),
    "OneRec": _structure(_write_onerec, FORMATS["onerec"].read),
    "image": _structure(_write_image, _read_image),
    "token index": _structure(_write_tokens, _read_tokens),
    "COCO annotations": _structure(_write_annotations, _read_annotations),
}


def warm_up(folder) -> None:
    """Write and read one file for each reader here, so that a child imports nothing."""
    import random

    for name, structure in STRUCTURES.items():
        path = folder / f"warm up {name}"
        structure.write(path, random.Random(0))
        try:
            structure.form.read(path)
        except (RuntimeError, records.CorruptRecord):
            pass
