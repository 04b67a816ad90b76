"""OneRec files: writing, reading in OneFlow's order, decoding; errors for damaged files name the file and
offset.
"""

import numpy as np
import pytest

import oneflow as flow

pytest.importorskip("flatbuffers", reason="needs the package flatbuffers")
pytest.importorskip("xxhash", reason="needs the package xxhash")
from oneflow.utils.data import CorruptRecord, OneRecWriter


@pytest.fixture
def files(tmp_path):
    """Two files of ten records, "a" their numbers."""
    for f in range(2):
        with OneRecWriter(tmp_path / f"{f}") as out:
            for i in range(10):
                n = i % 4 + 1
                out.write(
                    {
                        "a": np.array([f * 100 + i]),
                        "v": np.arange(n, dtype=np.float32) + 1,
                        "m": np.ones((n, 3)) * i,
                        "u": np.arange(4, dtype=np.int8).reshape(2, 2),
                        "short": np.zeros(4, np.int16),
                        "text": "hello",
                        "scalar": np.int32(5),
                    }
                )
    return [str(tmp_path / f"{f}") for f in range(2)]


def reader(files, batch=4, **options):
    return flow.nn.OneRecReader(
        files, batch, options.pop("shuffle", False), options.pop("mode", "batch"), **options
    )


def numbers(r, count):
    return [
        flow.decode_onerec(r(), "a", dtype=flow.int64, shape=(1,)).flatten().tolist() for _ in range(count)
    ]


# orders recorded from real OneFlow 0.9.0 for the same files
@pytest.mark.parametrize(
    "options, expected",
    [
        (dict(batch=3), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 100, 101]]),
        (
            dict(batch=3, shuffle=True, mode="instance", random_seed=7, shuffle_buffer_size=4),
            [
                [3, 0, 1],
                [4, 5, 6],
                [2, 100, 8],
                [7, 101, 102],
                [104, 105, 106],
                [103, 109, 0],
                [9, 2, 108],
                [1, 4, 5],
                [6, 3, 107],
            ],
        ),
        (
            dict(batch=3, shuffle=True, mode="batch", random_seed=7, shuffle_buffer_size=4),
            [
                [9, 100, 101],
                [0, 1, 2],
                [3, 4, 5],
                [102, 103, 104],
                [105, 106, 107],
                [108, 109, 0],
                [6, 7, 8],
                [100, 101, 102],
                [4, 5, 6],
            ],
        ),
    ],
)
def test_order(files, options, expected):
    assert numbers(reader(files, **options), len(expected)) == expected


def test_files_are_reordered_from_the_first_epoch_on(files, tmp_path):
    with OneRecWriter(tmp_path / "2") as out:
        for i in range(10):
            out.write({"a": np.array([200 + i])})
    firsts = [
        batch[0]
        for batch in numbers(reader([*files, str(tmp_path / "2")], batch=10, shuffle_after_epoch=True), 12)
    ]
    assert firsts == [100, 0, 200, 0, 100, 200, 200, 0, 100, 0, 100, 200]  # as real OneFlow 0.9.0


def test_decoding(files):
    batch = reader(files)()
    assert batch.dtype is flow.tensor_buffer and tuple(batch.shape) == (4,)
    decode = lambda key, dtype, shape, **options: flow.decode_onerec(batch, key, dtype, shape, **options)
    assert decode("u", flow.int8, (2, 2))[3].tolist() == [[0, 1], [2, 3]]
    assert decode("u", flow.int8, (4, 1), reshape=(-1, 1))[0].tolist() == [[0], [1], [2], [3]]
    padded = decode("v", flow.float32, (5,), batch_padding=(5,))
    assert (
        padded.tolist() == [[1, 0, 0, 0, 0], [1, 2, 0, 0, 0], [1, 2, 3, 0, 0], [1, 2, 3, 4, 0]]
        and padded.dtype == flow.float32
    )
    assert decode("m", flow.float64, (4, 3), batch_padding=(4, 0)).sum(dim=(1, 2)).tolist() == [0, 6, 18, 36]
    assert decode("u", flow.int8, (9, 9), is_dynamic=True).shape == (4, 2, 2)
    assert flow._C.decode_onerec(batch, "a", flow.int64, (1,)).tolist() == [[0], [1], [2], [3]]
    assert decode("scalar", flow.int32, (1,), reshape=(1,)).tolist() == [[5]] * 4


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            dict(key="nothing", dtype=flow.int64, shape=(1,)),
            KeyError,
            "record at byte 0: there is no field 'nothing'",
        ),
        (dict(key="a", dtype=flow.int32, shape=(1,)), RuntimeError, "holds int64, asked for int32"),
        (dict(key="text", dtype=flow.int32, shape=(1,)), RuntimeError, "holds text"),
        (dict(key="short", dtype=flow.int32, shape=(4,)), RuntimeError, "holds int16"),
        (dict(key="a", dtype=flow.uint8, shape=(1,)), NotImplementedError, "found torch.uint8"),
        (dict(key="a", dtype=flow.int64, shape=(2,)), RuntimeError, r"has shape \[1\], asked for \[2\]"),
        (
            dict(key="a", dtype=flow.int64, shape=(1, 1)),
            RuntimeError,
            r"has shape \[1\], asked for 2 dimensions",
        ),
        (dict(key="v", dtype=flow.float32, shape=(4,)), RuntimeError, "several shapes in one batch"),
        (
            dict(key="v", dtype=flow.float32, shape=(2,), batch_padding=(2,)),
            RuntimeError,
            "batch_padding is 2",
        ),
        (
            dict(key="m", dtype=flow.float64, shape=(4, 3), batch_padding=(4, 3)),
            NotImplementedError,
            "first dimension only",
        ),
        (
            dict(key="m", dtype=flow.float64, shape=(4, 3), batch_padding=(4,)),
            ValueError,
            "as many dimensions as shape",
        ),
        (dict(key="u", dtype=flow.int8, shape=(3,), reshape=(3,)), RuntimeError, "cannot become"),
    ],
)
def test_what_does_not_fit_is_refused(files, call, error, text):
    with pytest.raises(error, match=text):
        flow.decode_onerec(reader(files)(), **call)


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda d: d[:60] + bytes([d[60] ^ 1]) + d[61:], "byte 0: its digest is another one"),
        (lambda d: d[:8] + b"\1" + d[9:], "byte 0: this is no header"),
        (lambda d: d[:-20], "bytes are left"),
        (lambda d: d + b"123", "3 bytes are left"),
    ],
)
def test_damage_names_file_and_offset(files, damage, text):
    data = open(files[0], "rb").read()
    with open(files[0], "wb") as file:
        file.write(damage(data))
    with pytest.raises(CorruptRecord, match=text) as error:
        numbers(reader(files[:1]), 6)
    assert files[0] in str(error.value)


def test_a_payload_that_is_no_message_is_corrupt_however_it_is_cut(tmp_path):
    """Whole frames around damaged messages: verify_example finds them when reading, else decoding does."""
    from oneflow._data import onerec

    payload = onerec._encode({"a": np.arange(3)})
    for cut in [payload[:n] for n in range(0, len(payload) - 8, 5)] + [
        payload[:4] + b"2REC" + payload[8:],
        b"\xff" * 64,
    ]:
        head = onerec._HEAD.pack(onerec._MAGIC, 0, len(cut))
        (tmp_path / "f").write_bytes(
            head + onerec._digest(head) + cut + bytes(-len(cut) % 8) + onerec._digest(cut)
        )
        with pytest.raises(CorruptRecord, match="not a OneRec message"):
            reader([str(tmp_path / "f")], batch=1)()
        batch = reader([str(tmp_path / "f")], batch=1, verify_example=False)()
        with pytest.raises(CorruptRecord, match="not a OneRec message"):
            flow.decode_onerec(batch, "a", flow.int64, (3,))


def test_in_a_graph(files):
    class Sum(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.reader = reader(files, batch=2)

        def build(self):
            batch = self.reader()
            return (
                flow.decode_onerec(batch, "a", flow.int64, (1,)).sum()
                + flow.decode_onerec(batch, "u", flow.int8, (2, 2)).sum()
            )

    graph = Sum()
    assert [int(graph()) for _ in range(3)] == [0 + 1 + 12, 2 + 3 + 12, 4 + 5 + 12]


def test_bad_arguments(files, tmp_path):
    with pytest.raises(ValueError, match="shuffle_mode"):
        reader(files, mode="bogus")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        reader([str(tmp_path / "nowhere")])
    with pytest.raises(TypeError, match="takes what OneRecReader gives"):
        flow.decode_onerec(flow.zeros(2), "a", flow.int64, (1,))
    with OneRecWriter(tmp_path / "w") as out, pytest.raises(TypeError, match="field 'x': a value is numbers"):
        out.write({"x": np.zeros(2, np.complex64)})


def test_the_function_goes_on_where_it_was(files):
    def read(batch):
        return (
            flow.decode_onerec(
                flow.read_onerec(files, batch, False, "instance"), "a", dtype=flow.int64, shape=(1,)
            )
            .flatten()
            .tolist()
        )

    assert [read(3), read(3), read(2), read(3)] == [[0, 1, 2], [3, 4, 5], [0, 1], [6, 7, 8]]
