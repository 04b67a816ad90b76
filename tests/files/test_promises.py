"""The promises of docs/security.md: each row of its table names the test that keeps it."""

import json
import os
import pathlib
import pickle
import re
import struct
import sys
import zipfile
import zlib

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow import nn

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import hostile_files as h

from oneflow._data import images, onerec, records
from oneflow._data.coco import BatchStream
from oneflow._data.gpt import TokenFile
from oneflow._file_safety import budget, opening
from oneflow._files import layout as layouts
from oneflow.one_embedding import snapshot

ROOT = pathlib.Path(__file__).parents[2]


def test_each_promise_names_a_test():
    table = (ROOT / "docs" / "security.md").read_text().split("## Promises\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.M)[2:]
    assert len(rows) >= 20
    for promise, tests in rows:
        for path, name in re.findall(r"`(tests/\S+?)::(\w+)`", tests) or [("", promise)]:
            assert path and f"def {name}(" in (ROOT / path).read_text(), promise


def load(tmp_path, body, write=h.single_file):
    write(tmp_path / "file", body)
    return flow.load(tmp_path / "file")


def refused(message):
    return pytest.raises(flow.CheckpointError, match=message)


# --------------------------------------------------------------------------- one class of errors
class Doubled(nn.Graph):
    def build(self, x):
        return x * 2


def _graph(path):
    graph = Doubled()
    graph.config.set_backend("aten")
    graph(flow.ones(2))
    flow.save(graph, path)


READERS = {
    "file": (lambda p: p.write_bytes(b"no checkpoint"), flow.load),
    "folder": (lambda p: (p.mkdir(), (p / "pickled_data").write_bytes(b"\x80\x04junk")), flow.load),
    "graph": (lambda p: (_graph(p), (p / "program.json").write_text("{")), flow.load_graph),
    "tensors of a graph": (lambda p: (_graph(p), (p / "tensors.pt").write_bytes(b"PK")), flow.load),
    "token index": (
        lambda p: (p.with_suffix(".idx").write_bytes(b"junk"), p.with_suffix(".bin").touch()),
        TokenFile,
    ),
    "COCO annotations": (
        lambda p: p.write_text('{"images": [1], "annotations": [], "categories": []}'),
        lambda p: BatchStream(p, p.parent, 1, False, 0, False, False, True),
    ),
    "OFRecord": (lambda p: p.write_bytes(bytes(7)), lambda p: list(records.read_file(p))),
    "OneRec": (lambda p: p.write_bytes(bytes(40)), lambda p: list(onerec.read_file(p))),
    "embedding": (
        lambda p: (
            os.makedirs(p / "snapshots" / "one"),
            (p / "snapshots" / "one" / "meta.json").write_text("[]"),
        ),
        lambda p: snapshot.read(p, "one"),
    ),
    "image of a record": (
        lambda p: _write_record(p, b"no image"),
        lambda p: nn.OFRecordImageDecoder("x")(nn.OFRecordReader(p)()).cells,
    ),
    "bytes of a record": (
        lambda p: _write_record(p, b"no image"),
        lambda p: nn.image.decode()(nn.OFRecordBytesDecoder("x")(nn.OFRecordReader(p)())),
    ),
}


def _write_record(folder, data):
    with flow.utils.data.OFRecordWriter(folder / "part-0") as out:
        out.write({"x": data})


@pytest.mark.parametrize("name", READERS)
def test_every_reader_raises_one_class_that_names_the_file(tmp_path, name):
    if name == "OneRec":
        pytest.importorskip("xxhash", reason="OneRec files need xxhash")
    write, read = READERS[name]
    write(tmp_path / "target")
    with refused(re.escape(str(tmp_path / "target"))):
        read(tmp_path / "target")


# --------------------------------------------------------------------------- keys
@pytest.mark.parametrize("container", h.CONTAINERS)
@pytest.mark.parametrize("key", ["257 values", "shared tuples", "deep tuple"])
def test_a_key_has_at_most_256_plain_values(tmp_path, container, key):
    codes = {
        "257 values": h.push(tuple(range(257))),
        "shared tuples": h.laughing_tuples(),
        "deep tuple": b")" + b"\x85" * 300_000,
    }
    with refused("a key of a dict or set has more than 256 values"):
        load(tmp_path, h.Code(b"}" + codes[key] + b"Ns"), h.CONTAINERS[container])


def test_a_key_of_256_values_loads(tmp_path):
    assert load(tmp_path, h.Code(b"}" + h.push(tuple(range(256))) + b"Ns")) == {tuple(range(256)): None}


def test_at_most_32_keys_share_a_hash():
    same = [i * (2**61 - 1) for i in range(1, 34)]
    keys = budget.Keys()
    for key in [*same[:32]] * 3:
        keys.check(key)
    with refused("more than 32 keys have one hash"):
        keys.check(same[32])


# --------------------------------------------------------------------------- memory
def test_values_take_at_most_64_mib_and_4_times_the_file(tmp_path):
    copies = lambda n: h.Code(
        h.value(bytes(1 << 20)) + b"q\1](" + (h.name("builtins.bytearray") + b"h\1\x85R") * n + b"e"
    )
    assert len(load(tmp_path, copies(66))) == 66
    with refused("bytes more than a file of .* bytes may take"):
        load(tmp_path, copies(70))


def test_objects_take_at_most_64_mib_and_64_times_the_pickle(tmp_path):
    assert len(load(tmp_path, h.Code(b"](" + b"\x8f" * 300_000 + b"e"))) == 300_000
    with refused("set needs .* bytes more than a file"):
        load(tmp_path, h.Code(b"](" + b"\x8f" * 500_000 + b"e"))


def test_the_attributes_of_a_layer_are_counted(tmp_path):
    layers = lambda n: h.Code(
        h.name("torch.nn.modules.activation.ReLU") + b"q\0](" + b"h\0)\x81}b" * n + b"e"
    )
    assert len(load(tmp_path, layers(100))) == 100
    with refused("ReLU needs 4000 bytes more than a file of .* bytes may take"):
        load(tmp_path, layers(20_000))


def test_the_directory_of_a_zip_file_is_counted(tmp_path):
    entry = b"PK\1\2" + bytes(24) + struct.pack("<HHH", 1, 0, 0) + bytes(12) + b"a"
    directory = entry * 200_000
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, len(directory), 4, 0)
    (tmp_path / "zip").write_bytes(b"PK\3\4" + directory + end)
    with refused("more members than a file of its size may have"):
        flow.load(tmp_path / "zip")


def test_a_file_with_a_hole_is_read_as_it_is_needed(tmp_path):
    (tmp_path / "file").write_bytes(b"\x80\4")
    os.truncate(tmp_path / "file", 100 << 30)
    with refused("no opcode of a pickle"):
        flow.load(tmp_path / "file")


def _png(width, height, body=b""):
    chunk = lambda name, data: (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    )
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", body) + chunk(b"IEND", b"")


LARGE_IMAGES = {
    "png": _png(1 << 15, 1 << 15),
    "gif": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0),
    "bmp": b"BM" + bytes(12) + struct.pack("<IiiHHIIiiII", 40, 1 << 15, -(1 << 15), 1, 24, 0, 0, 0, 0, 0, 0),
    "jpeg": b"\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x11\x08" + struct.pack(">HH", 65535, 65535) + bytes(12),
    "webp": b"RIFF\x16\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0" + b"\xff\x7f\0" * 2,
    "webp, lossless": b"RIFF\x16\0\0\0WEBPVP8L\n\0\0\0\x2f" + struct.pack("<I", (1 << 28) - 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE_IMAGES)
@pytest.mark.parametrize("library", ["opencv", "pillow"])
def test_the_pixels_of_an_image_are_counted_before_it_is_decoded(monkeypatch, kind, library):
    if library == "pillow":
        monkeypatch.setattr(images, "opencv", lambda: None)
    with refused(r"\d+x\d+ pixels in \d+ bytes; at most \d+ pixels"):
        images.decode(LARGE_IMAGES[kind])


def test_a_jpeg_has_at_most_64_scans():
    frame = b"\xff\xc2\0\x11\x08" + struct.pack(">HH", 16, 16) + bytes(12)
    with refused("a JPEG of more than 64 scans"):
        images.decode(b"\xff\xd8" + frame + b"\xff\xda\0\2" * 65)


@pytest.mark.parametrize("library", ["opencv", "pillow"])
def test_an_image_runs_no_program(monkeypatch, library):
    """Pillow hands EPS files to Ghostscript."""
    if library == "pillow":
        monkeypatch.setattr(images, "opencv", lambda: None)
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: pytest.fail("a program runs"))
    monkeypatch.setattr("subprocess.check_call", lambda *a, **k: pytest.fail("a program runs"))
    with refused("not an image"):
        images.decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")


@pytest.mark.parametrize(
    "name", ["laughing scales", "scales of an expanded tensor", "sparse tensor of an expanded tensor"]
)
def test_parts_of_tensors_are_counted(tmp_path, name):
    with refused(""):
        load(tmp_path, h.pickles()[name], h.torch_zip)


# --------------------------------------------------------------------------- layers
def test_an_attribute_of_a_layer_hides_nothing(tmp_path):
    for name in (
        "compiled call of a layer",
        "class of a lazy layer",
        "attribute over a parameter",
        "forward of a layer",
        "hooks of a layer",
    ):
        with refused("has the attribute|which a safe load does not attach"):
            load(tmp_path, h.pickles()[name])
    with refused("no dict of attributes of its own"):
        load(tmp_path, h.pickles()["items of an OrderedDict"])


def test_no_constructor_of_a_data_reader_runs(tmp_path):
    """COCOReader(1, 1) opened file descriptor 1, and closed the output of the process."""
    for name in (
        n for n in dir(nn) if isinstance(getattr(nn, n), type) and issubclass(getattr(nn, n), nn.Module)
    ):
        if name.endswith("Reader"):
            with pytest.raises(pickle.UnpicklingError, match=f"{name}, which a safe load does not construct"):
                load(tmp_path, h.layer(f"oneflow.nn.{name}"))


# --------------------------------------------------------------------------- files that were read silently
def _index(path, sizes, starts, documents, data=64):
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(sizes), len(documents))
    arrays = np.array(sizes, "<i4").tobytes() + np.array([*starts, *documents], "<i8").tobytes()
    path.with_suffix(".idx").write_bytes(head + arrays)
    path.with_suffix(".bin").write_bytes(bytes(data))


@pytest.mark.parametrize(
    "sizes, starts, documents",
    [
        ([2, -1, 3], [0, 8, 4], [0, 3]),
        ([2, 2], [0, 4], [0, 2]),
        ([2, 2], [0, 16], [0, 2]),
        ([2, 2], [-8, 0], [0, 2]),
        ([2, 2], [2**63 - 8, -(2**63)], [0, 2]),
        ([2, 2], [0, 8], [0, 3]),
        ([2, 2], [0, 8], [-1, 2]),
        ([2, 2], [0, 8], [0, 2, 1]),
    ],
)  # fmt: skip
def test_an_index_of_tokens_describes_adjacent_sequences_and_documents_in_order(
    tmp_path, sizes, starts, documents
):
    _index(tmp_path / "t", [2, 2], [0, 8], [0, 1, 2])
    assert len(TokenFile(tmp_path / "t")) == 2
    _index(tmp_path / "t", sizes, starts, documents)
    with refused(r"t\.idx: altered: of the (sequences|documents)"):
        TokenFile(tmp_path / "t")


def test_documents_without_tokens_are_few(tmp_path):
    _index(tmp_path / "t", [2], [0], [0, *[1] * 1000])
    with refused(r"t\.idx is altered: 1000 documents hold 2 tokens"):
        next(iter(nn.GPTIndexedBinDataReader(tmp_path / "t", 1000, 10**9, 1)._samples))


@pytest.mark.parametrize("part", ["out", "crc32"])
def test_a_variable_without_meta_is_damage(tmp_path, part):
    (tmp_path / "c").mkdir()
    layouts.write_tensor(tmp_path / "c" / "weight", torch.ones(2))
    layouts.write_tensor(tmp_path / "c" / "bias", torch.ones(2))
    (tmp_path / "c" / "snapshot_done").touch()
    assert sorted(flow.load(tmp_path / "c")) == ["bias", "weight"]
    for name in {"meta", "out", "crc32"} - {part}:
        (tmp_path / "c" / "bias" / name).unlink()
    with refused("bias/meta: missing; the checkpoint is incomplete"):
        flow.load(tmp_path / "c")


def test_an_image_of_annotations_stays_in_its_folder(tmp_path):
    for name in ("/etc/passwd", "../x", "a/../../x", "", "a\0b"):
        image = {"id": 1, "height": 2, "width": 2, "file_name": name}
        (tmp_path / "a.json").write_text(json.dumps({"images": [image], "annotations": [], "categories": []}))
        with refused(r"a\.json: altered: images has"):
            BatchStream(tmp_path / "a.json", tmp_path, 1, False, 0, False, False, True)


# --------------------------------------------------------------------------- links
def test_a_symbolic_link_out_of_a_checkpoint_is_refused(tmp_path):
    flow.save(torch.ones(3), tmp_path / "c", layout="folder")
    out = tmp_path / "c" / "tensor_0" / "out"
    out.rename(tmp_path / "elsewhere")
    out.symlink_to(tmp_path / "elsewhere")
    with refused("a link to .*elsewhere, outside of the checkpoint"):
        flow.load(tmp_path / "c")


def test_a_hard_link_is_a_file(tmp_path):
    flow.save(torch.ones(3), tmp_path / "c", layout="folder")
    out = tmp_path / "c" / "tensor_0" / "out"
    out.rename(tmp_path / "elsewhere")
    os.link(tmp_path / "elsewhere", out)
    assert flow.load(tmp_path / "c").tolist() == [1.0] * 3


def test_a_zip_file_from_the_hub_unpacks_to_8_times_its_size(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/pickled_data", b"\x80\4N.")
        archive.writestr("m/zeros", bytes(70 << 20))
    with refused("unpacks to more than 8 times"):
        flow.hub._unpacked(str(tmp_path / "model.zip"))


def test_opening_counts_only_the_directory(tmp_path):
    """A member may hold the bytes that begin an entry of the directory."""
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a", opening._ENTRY * 200_000)
    with open(tmp_path / "zip", "rb") as file, opening.open_zip(file, 1000) as archive:
        assert archive.read("a") == opening._ENTRY * 200_000
