"""Objects that a safe load constructs: every entry of the table is saved and loaded in each container."""

import argparse
import collections
import datetime
import decimal
import fractions
import pathlib
import pickle
import sys
import types
import uuid

import numpy as np
import pytest
import torch

import oneflow as flow

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import hostile_files as h
from files_util import assert_same_bits

from oneflow._file_safety.constructors import allow

PLAIN = {
    "builtins.set": {1, "x", (2, 3)},
    "builtins.frozenset": frozenset([1]),
    "builtins.complex": 1 + 2j,
    "builtins.bytes": b"",
    "_codecs.encode": b"\xff\x00",
    "builtins.bytearray": bytearray(b"ab"),
    "builtins.slice": slice(1, None, 2),
    "builtins.range": range(10**12),
    "builtins.xrange": range(3),
    "collections.OrderedDict": collections.OrderedDict(a=1),
    "collections.Counter": collections.Counter("aab"),
    "collections.deque": collections.deque([1, 2], 5),
    "collections.defaultdict": collections.defaultdict(list, a=[1]),
    "datetime.datetime": datetime.datetime(2024, 2, 29, 23, 59, 58, 999999, datetime.timezone.utc, fold=1),
    "datetime.date": datetime.date(1999, 12, 31),
    "datetime.time": datetime.time(1, 2, 3, 4, fold=1),
    "datetime.timedelta": datetime.timedelta(-1, 5, 7),
    "datetime.timezone": datetime.timezone(datetime.timedelta(hours=2), "CEST"),
    "decimal.Decimal": decimal.Decimal("1.50"),
    "fractions.Fraction": fractions.Fraction(1, 3),
    "uuid.UUID": uuid.UUID(int=7),
    "argparse.Namespace": argparse.Namespace(lr=0.1),
    "types.SimpleNamespace": types.SimpleNamespace(a=[1]),
    **{
        f"pathlib.{type(p).__name__}": p
        for p in (pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("c:/x"), pathlib.Path("a/b"))
    },
    "numpy.dtype": [np.dtype(">i4"), np.dtype("U5"), np.dtype("?"), np.dtype("c16")],
    "numpy._core.multiarray.scalar": [np.float32(2.5), np.int64(-1), np.str_("abc"), np.bool_(True)],
    "numpy._core.multiarray._reconstruct": [
        np.arange(6.0).reshape(2, 3).T,
        np.array(["a", "bc"]),
        np.array(5),
        np.empty((0, 3), "i2"),
        np.arange(3, dtype=">i8"),
    ],
    "torch.Size": torch.Size([2, 3]),
    "torch.device": torch.device("cpu"),
}


def _conjugate():
    return torch.tensor([1 + 2j, 3j]).conj()


def _with_attributes():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.sequence_parallel, parameter._is_hf_initialized = True, 1
    return parameter


def _tensor_with_attributes():
    tensor = torch.ones(2)
    tensor.note = "mine"
    return tensor


TENSORS = {
    "torch._utils._rebuild_tensor_v2": lambda: [
        torch.arange(6.0).reshape(2, 3).T,
        torch.ones(1).expand(4),
        torch.tensor(3),
        torch.ones(2, requires_grad=True),
        torch.empty(0, 3),
    ],
    "torch._utils._rebuild_tensor_v3": lambda: [
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.ones(2).to(torch.float8_e4m3fn),
    ],
    "torch._utils._rebuild_parameter": lambda: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "torch._utils._rebuild_parameter_with_state": _with_attributes,
    "torch._tensor._rebuild_from_type_v2": _tensor_with_attributes,
    "torch._utils._rebuild_sparse_tensor": lambda: [torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()],
    "torch._utils._rebuild_meta_tensor_no_storage": lambda: torch.empty(2, 3, device="meta"),
    "torch.serialization._get_layout": lambda: torch.eye(2).to_sparse(),
    "torch neg": lambda: torch.tensor([1j]).conj().imag,
    "torch conj": _conjugate,
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_value_in_a_pickle(tmp_path, name, protocol):
    (tmp_path / "file").write_bytes(pickle.dumps(PLAIN[name], protocol))
    assert_same_bits(flow.load(tmp_path / "file"), PLAIN[name])


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "stream"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_value_in_a_torch_file(tmp_path, name, options):
    torch.save(PLAIN[name], tmp_path / "file", **options)
    assert_same_bits(flow.load(tmp_path / "file"), PLAIN[name])


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "stream"])
@pytest.mark.parametrize("name", TENSORS)
def test_tensor_of_a_torch_file(tmp_path, name, options):
    value = TENSORS[name]()
    torch.save(value, tmp_path / "file", **options)
    ours = flow.load(tmp_path / "file")
    # torch cannot read those back from a stream
    theirs = value if name.endswith("_v3") else torch.load(tmp_path / "file", weights_only=True)
    for a, b in zip(ours, theirs, strict=True) if isinstance(value, list) else [(ours, theirs)]:
        assert (
            type(a) is type(b)
            and a.dtype is b.dtype
            and a.shape == b.shape
            and a.layout is b.layout
            and a.requires_grad == b.requires_grad
            and a.device == b.device
        )
        assert vars(a) == vars(b) and a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()
        if a.layout is torch.strided:
            assert a.stride() == b.stride()
        if a.device.type == "cpu":
            assert torch.equal(
                a.to_dense().double() if a.dtype is torch.float8_e4m3fn else a.to_dense(),
                b.to_dense().double() if a.dtype is torch.float8_e4m3fn else b.to_dense(),
            )


def test_nested_and_quantized_tensors(tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.arange(3.0)])
    per_channel = torch.quantize_per_channel(
        torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
    )
    torch.save(
        {"n": nested, "q": torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint8), "c": per_channel},
        tmp_path / "file",
    )
    back = flow.load(tmp_path / "file")
    assert [t.tolist() for t in back["n"].unbind()] == [[1, 1], [0, 1, 2]]
    assert back["q"].dequantize().tolist() == [1, 1, 1] and back["c"].q_per_channel_axis() == 0
    assert torch.equal(back["c"].dequantize(), per_channel.dequantize())


def test_storages_are_shared_as_they_were_saved(tmp_path):
    whole = torch.arange(6.0)
    torch.save([whole, whole[2:], whole.storage()], tmp_path / "file")
    a, b, c = flow.load(tmp_path / "file")
    a[2] = 9
    assert b[0] == 9 and c._untyped_storage.data_ptr() == a.untyped_storage().data_ptr()


def test_every_constructor_of_torchs_has_a_row_or_a_reason():
    """The names that torch's own safe load calls, and which of them this one does not."""
    ours = set(allow.CONSTRUCTORS)
    assert {
        f"torch._utils.{f.__name__}" for f in torch._weights_only_unpickler._tensor_rebuild_functions()
    } <= ours
    not_called = {  # each allocates what a file tells it, and no file of torch 0.4 or newer calls it
        name
        for name, value in torch._weights_only_unpickler._get_allowed_globals().items()
        if callable(value) and not name.endswith("Storage") and name not in ours
    }
    assert all(name.endswith("Tensor") for name in not_called), not_called


def test_no_constructor_is_called_without_its_check(tmp_path):
    """Names that stand as values may not be called."""
    for full in (
        "builtins.list",
        "builtins.int",
        "builtins.str",
        "builtins.tuple",
        "builtins.dict",
        "numpy.ndarray",
        "numpy.float32",
        "torch.Tensor",
        "torch.nn.functional.relu",
    ):
        h.single_file(tmp_path / "file", h.call(full, 3))
        with pytest.raises(pickle.UnpicklingError, match="file: it calls"):
            flow.load(tmp_path / "file")


def test_own_attributes_of_layers_survive(tmp_path):
    layer = torch.nn.Linear(2, 2)
    layer.note, layer.sizes = "mine", [1, 2]
    torch.save(layer, tmp_path / "file")
    back = flow.load(tmp_path / "file")
    assert (
        type(back) is torch.nn.Linear
        and back.note == "mine"
        and back.sizes == [1, 2]
        and torch.equal(back.weight, layer.weight)
    )
    with pytest.raises(pickle.UnpicklingError):
        flow.load(tmp_path / "file", weights_only=True)


LAYERS = [
    lambda: torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2),
    lambda: torch.nn.GRU(3, 4, bias=False),
    lambda: torch.nn.RNN(3, 4, nonlinearity="relu"),
    lambda: torch.nn.Conv2d(1, 2, 3, padding="same", dilation=2),
    lambda: torch.nn.ConvTranspose1d(2, 4, 3, groups=2, output_padding=1, stride=2),
    lambda: torch.nn.MultiheadAttention(4, 2),
    lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8), 2),
    lambda: torch.nn.Embedding(5, 4, padding_idx=1),
    lambda: torch.nn.BatchNorm2d(3, affine=False),
    lambda: torch.nn.ParameterList([torch.ones(2)]),
    lambda: torch.nn.ModuleDict({"a": torch.nn.ReLU()}),
    lambda: torch.nn.LSTMCell(2, 3),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["torch", "folder", "pickle"])
@pytest.mark.parametrize("make", LAYERS)
def test_layer_keeps_its_attributes(tmp_path, make, layout):
    layer = make()
    flow.save(layer, tmp_path / "file", layout=layout)
    state = torch.get_rng_state()
    back = flow.load(tmp_path / "file")
    assert torch.equal(state, torch.get_rng_state())
    assert (
        type(back) is type(layer)
        and repr(back) == repr(layer)
        and back.__dict__.keys() == layer.__dict__.keys()
    )
    assert_same_bits(dict(back.state_dict()), dict(layer.state_dict()))
    skipped = {"_parameters", "_buffers", "_modules", "_flat_weights", "_flat_weight_refs"}
    plain = {k for k, v in layer.__dict__.items() if k not in skipped and not callable(v)}
    assert all(back.__dict__[k] == layer.__dict__[k] for k in plain)
    assert [p is q for p, q in zip(getattr(back, "_flat_weights", []), back.parameters())] == [True] * len(
        getattr(layer, "_flat_weights", [])
    )
