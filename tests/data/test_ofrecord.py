"""OFRecord files and their reader against results of OneFlow 0.9.0 for the same files
(tests/golden/ofrecord).
"""

import json
import pathlib
import struct

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow._data import records
from oneflow.core.record import record_pb2 as pb

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "ofrecord"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
nn = flow.nn


# --------------------------------------------------------------------------- messages
def test_message_bytes_are_protobufs():
    """The bytes were made by google.protobuf from the same fields (OneFlow 0.9.0's record_pb2)."""
    record = pb.OFRecord()
    record.feature["f"].float_list.value[:] = [1.5, 2.5]
    record.feature["b"].bytes_list.value.append(b"abc")
    record.feature["i"].int32_list.value.extend([1, -2])
    record.feature["l"].int64_list.value[:] = [1, -2, 300]
    record.feature["d"].double_list.value[:] = [0.5]
    expected = (
        "0a0c0a016212070a050a036162630a110a0164120c1a0a0a08000000000000e03f"
        "0a110a0166120c120a0a080000c03f000020400a140a0169120f220d0a0b01"
        "feffffffffffffffff010a160a016c12112a0f0a0d01feffffffffffffffff01ac02"
    )
    assert record.SerializeToString().hex() == expected
    back = pb.OFRecord.FromString(record.SerializeToString())
    assert (
        back == record
        and back.feature["l"].int64_list.value == [1, -2, 300]
        and back.feature["i"].WhichOneof("kind") == "int32_list"
    )
    assert 'key: "b"\n  value {\n    bytes_list {\n      value: "abc"' in str(back)


def test_message_interface():
    feature = pb.Feature(int32_list=pb.Int32List(value=[1, 2]))
    feature.float_list.value.append(0.5)
    assert feature.WhichOneof("kind") == "float_list" and not feature.HasField("int32_list")
    record = pb.OFRecord(feature={"a": feature, "b": pb.Feature(bytes_list=pb.BytesList(value=[b"x", b"y"]))})
    copy = pb.OFRecord()
    copy.CopyFrom(record)
    assert copy == record and copy.ByteSize() == len(record.SerializeToString())
    assert pb.Feature().WhichOneof("kind") is None and pb.Feature.FromString(b"") == pb.Feature()
    for bad in (
        lambda: pb.Int32List(value=[2**31]),
        lambda: pb.Int32List(value=[0.5]),
        lambda: pb.BytesList(value=["x"]),
        lambda: pb.OFRecord(nothing=1),
    ):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            bad()
    with pytest.raises(ValueError, match="not a OFRecord message"):
        pb.OFRecord.FromString(b"\x0a\x50abc")


@pytest.mark.parametrize("seed", range(5))
def test_numbers_round_trip(seed):
    random = np.random.RandomState(seed)
    longs = random.randint(-(2**62), 2**62, 50) >> random.randint(0, 62, 50)
    ints = (random.randint(-(2**31), 2**31, 50) >> random.randint(0, 31, 50)).tolist()
    doubles = random.randn(7)
    parsed = pb.OFRecord.FromString(
        pb.OFRecord(
            feature={
                "l": pb.Feature(int64_list=pb.Int64List(value=longs.tolist())),
                "i": pb.Feature(int32_list=pb.Int32List(value=ints)),
                "d": pb.Feature(double_list=pb.DoubleList(value=doubles)),
            }
        ).SerializeToString()
    )
    assert (
        parsed.feature["l"].int64_list.value == longs.tolist()
        and parsed.feature["i"].int32_list.value == ints
    )
    assert parsed.feature["d"].double_list.value == doubles.tolist()


# --------------------------------------------------------------------------- reader
@pytest.mark.parametrize(
    "case", EXPECTED["orders"], ids=[f"{c[0]}-{c[1]}-{'-'.join(c[2]) or 'plain'}" for c in EXPECTED["orders"]]
)
def test_order_of_records(case):
    folder, parts, options, expected = case
    reader = nn.OFRecordReader(GOLDEN / folder, batch_size=4, data_part_num=parts, **options)
    decoder = nn.OFRecordRawDecoder("y", shape=(1,), dtype=flow.int32)
    assert [decoder(reader()).ravel().tolist() for _ in expected] == expected


@pytest.mark.parametrize(
    "case", EXPECTED["values"], ids=[f"{c[0]}-{c[1]}-{'-'.join(c[3])}" for c in EXPECTED["values"]]
)
def test_values(case):
    field, dtype, shape, options, expected = case
    reader = nn.OfrecordReader(str(GOLDEN / "numbers"), batch_size=5, data_part_num=3)
    out = nn.OfrecordRawDecoder(field, shape, getattr(flow, dtype), **options)(reader())
    assert out.dtype is getattr(flow, dtype) and out.tolist() == expected


def test_random_seed_and_shuffle():
    def first(seed):
        reader = nn.OFRecordReader(
            GOLDEN / "many", batch_size=16, data_part_num=8, random_shuffle=True, random_seed=seed
        )
        return nn.OFRecordRawDecoder("y", (1,), flow.int32)(reader()).ravel().tolist()

    assert first(1) == first(1) != first(2)
    flow.manual_seed(4)
    a = first(-1)
    flow.manual_seed(4)
    assert first(None) == a != first(-1)


def test_ranks_share_the_files(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    seen = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        reader = nn.OFRecordReader(GOLDEN / "many", batch_size=4, data_part_num=8)
        seen.append(nn.OFRecordRawDecoder("y", (1,), flow.int32)(reader()).ravel().tolist())
    assert seen == [[0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]]
    monkeypatch.setenv("WORLD_SIZE", "9")
    with pytest.raises(ValueError, match="cannot be shared by 9 ranks"):
        nn.OFRecordReader(GOLDEN / "many", data_part_num=8)


def test_global_batches():
    where = {"placement": flow.placement("cpu", [0]), "sbp": [flow.sbp.split(0)]}
    reader = nn.OFRecordReader(GOLDEN / "numbers", batch_size=2, data_part_num=3, **where)
    label = nn.OFRecordRawDecoder("y", (1,), flow.int32)(reader())
    assert label.is_global and label.sbp == (flow.sbp.split(0),) and label.to_local().tolist() == [[0], [1]]
    assert nn.CoinFlip(batch_size=3, **where)().is_global


def test_errors_say_what_and_where(tmp_path):
    batch = nn.OFRecordReader(GOLDEN / "numbers", batch_size=2, data_part_num=1)()
    assert batch.shape == (2,) and batch.dtype is flow.record and batch.device.type == "cpu"
    with pytest.raises(
        KeyError, match=r"part-0, record at byte 0: there is no field 'z'; the record has 'd', 'l'"
    ):
        nn.OFRecordRawDecoder("z", (1,), flow.int32)(batch)
    with pytest.raises(
        RuntimeError, match=r"record at byte 0: field 'x' has 2 values, asked for 3 \(shape \(3,\)\)"
    ):
        nn.OFRecordRawDecoder("x", (3,), flow.float32)(batch)
    with pytest.raises(
        records.CorruptRecord, match="should be one byte string, found 2 values of float_list"
    ):
        nn.OFRecordBytesDecoder("x")(batch)
    with pytest.raises(records.CorruptRecord, match=r"part-0, record at byte 0: field 'n' is not an image"):
        nn.OFRecordImageDecoder("n")(batch).cells
    with pytest.raises(FileNotFoundError, match=r"part-3.*2 of 5 are missing"):
        nn.OFRecordReader(GOLDEN / "numbers", data_part_num=5)
    with pytest.raises(ValueError, match="positive whole numbers, found '2' and 1"):
        nn.OFRecordReader(GOLDEN / "numbers", batch_size="2")
    with records.RecordWriter(tmp_path / "part-0") as out:
        for wrong in (None, {3: 1}, {"x": object()}):
            with pytest.raises(TypeError, match="a record is|name of a field|field 'x'"):
                out.write(wrong)
    assert (tmp_path / "part-0").read_bytes() == b""
    with pytest.raises(TypeError, match="what OFRecordReader gives"):
        nn.OFRecordRawDecoder("x", (1,), flow.float32)(torch.ones(1))


def test_writer_and_values(tmp_path):
    with records.RecordWriter(tmp_path / "new" / "part-00007") as out:
        offsets = [
            out.write(
                {
                    "f": [1.5, 2],
                    "i": 3,
                    "big": 2**40,
                    "b": b"\0\1",
                    "s": "text",
                    "t": torch.tensor([[1, 2], [3, 4]]),
                    "d": np.float64(0.1),
                    "u8": np.uint8([5]),
                    "flags": [True, False],
                }
            )
        ]
        offsets.append(out.write(pb.OFRecord()))
        with pytest.raises(TypeError, match="field 'x'"):
            out.write({"x": object()})
    actual = list(records.read_file(tmp_path / "new" / "part-00007"))
    assert [r.offset for r in actual] == offsets and out.count == 2
    assert (
        flow.utils.data.OFRecordWriter is records.RecordWriter
        and flow.utils.data.read_ofrecord is records.read_file
    )
    kinds = {name: actual[0].field(name)[0] for name in actual[0].features}
    assert kinds == {
        "b": "bytes_list",
        "s": "bytes_list",
        "f": "float_list",
        "d": "double_list",
        "i": "int32_list",
        "u8": "int32_list",
        "flags": "int32_list",
        "big": "int64_list",
        "t": "int64_list",
    }
    assert actual[0].field("t")[1].tolist() == [1, 2, 3, 4] and actual[0].field("big")[1].tolist() == [2**40]


def _corrupted(tmp_path, change):
    body = bytearray((GOLDEN / "numbers" / "part-0").read_bytes())
    offsets = [r.offset for r in records.read_file(GOLDEN / "numbers" / "part-0")]
    change(body, offsets)
    (tmp_path / "part-0").write_bytes(body)
    return offsets


def _set_length(body, at, value):
    body[at : at + 8] = struct.pack("<q", value)


DAMAGE = {
    "length too long": (
        lambda body, o: _set_length(body, o[3], 1 << 40),
        3,
        [0, 1, 2],
        "its length is 1099511627776",
    ),
    "negative length": (lambda body, o: _set_length(body, o[3], -1), 3, [0, 1, 2], "its length is -1"),
    "message": (
        lambda body, o: body.__setitem__(o[2] + 8, 0xFF),
        2,
        [0, 1, 3, 4, 5, 6],
        "not an OFRecord message",
    ),
    "cut off": (
        lambda body, o: body.__delitem__(slice(o[6] + 20, None)),
        6,
        [0, 1, 2, 3, 4, 5],
        "bytes are left",
    ),
    "cut in the length": (
        lambda body, o: body.__delitem__(slice(o[6] + 3, None)),
        6,
        [0, 1, 2, 3, 4, 5],
        "3 bytes are left",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_corrupt_records(tmp_path, name):
    change, at, kept, text = DAMAGE[name]
    offsets = _corrupted(tmp_path, change)
    with pytest.raises(
        records.CorruptRecord, match=f"part-0: corrupt record at byte {offsets[at]}: .*{text}"
    ):
        list(records.read_file(tmp_path / "part-0"))
    reader = nn.OFRecordReader(tmp_path, batch_size=len(kept), data_part_num=1, on_corrupt="skip")
    with pytest.warns(UserWarning, match=f"corrupt record at byte {offsets[at]}.*skipped"):
        batches = [nn.OFRecordRawDecoder("y", (1,), flow.int32)(reader()) for _ in range(2)]
    assert [b.ravel().tolist() for b in batches] == [kept, kept]


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_an_error_of_a_reader_comes_again_and_no_batch_is_empty(tmp_path, is_shuffled):
    _corrupted(tmp_path, DAMAGE["cut in the length"][0])
    reader = nn.OFRecordReader(
        tmp_path, batch_size=4, data_part_num=1, random_shuffle=is_shuffled, shuffle_buffer_size=2
    )
    reader()
    for _ in range(3):
        with pytest.raises(records.CorruptRecord, match="3 bytes are left"):
            reader()


def test_nothing_readable_is_an_error_not_a_loop(tmp_path):
    (tmp_path / "part-0").write_bytes(b"")
    with pytest.raises(records.CorruptRecord, match="no readable record"):
        nn.OFRecordReader(tmp_path)()
