"""oneflow.load for files of OneFlow 0.9.0, torch and safetensors."""

import io
import json
import os
import struct
import sys

import numpy as np
import pytest
import torch

import oneflow as flow

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from files_util import CKPT, EXPECTED, compare

ARRAYS = np.load(CKPT / "expected.npz")


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_checkpoint(name):
    compare(flow.load(CKPT / name), EXPECTED[name], ARRAYS)


def test_recorded_checkpoint_gives_usable_parameters():
    state = flow.load(str(CKPT / "state_dict"))
    assert state["0.weight"].requires_grad and not state["1.running_mean"].requires_grad
    state["0.weight"].sum().backward()
    assert torch.equal(state["0.weight"].grad, torch.ones_like(state["0.weight"]))
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    )
    shapes = {k: v.shape for k, v in net.state_dict().items()}
    if shapes == {k: v.shape for k, v in state.items()}:
        net.load_state_dict(state)
    assert "_metadata" in vars(state)


def test_single_file_pickles():
    """tensor.pickle and parameter.pickle hold [1, 2]; module.pickle a ReLU."""
    tensor = flow.load(CKPT / "tensor.pickle")
    assert type(tensor) is torch.Tensor and tensor.tolist() == [1.0, 2.0] and not tensor.requires_grad
    parameter = flow.load(CKPT / "parameter.pickle")
    assert type(parameter) is torch.nn.Parameter and parameter.requires_grad
    module = flow.load(CKPT / "module.pickle")
    assert isinstance(module, flow.nn.ReLU) and module(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    with open(CKPT / "tensor.pickle", "rb") as file:
        assert flow.load(file).tolist() == [1.0, 2.0]


def test_bfloat16_folder_as_oneflow_writes_it(tmp_path):
    """OneFlow 0.9.0 stores bfloat16 as float32 under the name kBFloat16 (recorded), and cannot read it back
    itself.
    """
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "meta").write_text("shape {\n  dim: 2\n}\ndata_type: kBFloat16\n")
    (folder / "out").write_bytes(np.array([1.0, -2.5], np.float32).tobytes())
    assert flow.load(tmp_path)["x"].tolist() == [1.0, -2.5]
    (folder / "out").write_bytes(
        torch.tensor([1.0, -2.5], dtype=torch.bfloat16).view(torch.int16).numpy().tobytes()
    )
    loaded = flow.load(tmp_path)["x"]
    assert loaded.dtype is torch.bfloat16 and loaded.tolist() == [1.0, -2.5]


def test_older_folder_of_named_variables(tmp_path):
    for name, value in (
        ("conv.weight", np.arange(6, dtype=np.float32).reshape(2, 3)),
        ("step", np.array(7, np.int64)),
    ):
        (tmp_path / name).mkdir()
        dims = "".join(f"  dim: {d}\n" for d in value.shape)
        (tmp_path / name / "meta").write_text(
            f"shape {{\n{dims}}}\ndata_type: {'kFloat' if value.ndim else 'kInt64'}\n"
        )
        (tmp_path / name / "out").write_bytes(value.tobytes())
    (tmp_path / "snapshot_done").touch()
    state = flow.load(tmp_path)
    assert state["conv.weight"].tolist() == [[0, 1, 2], [3, 4, 5]] and state["step"].item() == 7


MODULES = CKPT.parent / "modules"
RECORDED = np.load(MODULES / "expected.npz")


@pytest.mark.parametrize("name", sorted({key.split("/")[0] for key in RECORDED}))
def test_pickled_module_computes_what_oneflow_computed(name):
    module = flow.load(MODULES / f"{name}.pickle")
    out = module(torch.from_numpy(RECORDED[f"{name}/in"]))
    out = (out[0] if isinstance(out, tuple) else out).detach().numpy()
    # other kernels, sums of at most 18 products of numbers below 1
    np.testing.assert_allclose(out, RECORDED[f"{name}/out"], rtol=1e-5, atol=1e-6)


def test_pickled_module_is_a_working_torch_module():
    net = flow.load(MODULES / "net.pickle")
    assert type(net) is torch.nn.Sequential and type(net[0]) is torch.nn.Conv2d and not net.training
    net.train()(torch.randn(2, 1, 6, 6)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    assert net[1].num_batches_tracked.item() == 1
    both = flow.load(MODULES / "modulelist.pickle")
    assert isinstance(both, torch.nn.ModuleList) and len(both) == 2
    lstm = flow.load(MODULES / "lstm.pickle")
    lstm.double()
    assert lstm(torch.randn(2, 1, 3, dtype=torch.float64))[0].dtype is torch.float64


def test_torch_files(tmp_path):
    state = {"w": torch.arange(4.0), "n": 3, "o": torch.nn.Linear(2, 2).state_dict()}
    for name, options in (("zip", {}), ("old", {"_use_new_zipfile_serialization": False})):
        torch.save(state, tmp_path / name, **options)
        back = flow.load(tmp_path / name)
        assert back["w"].tolist() == [0, 1, 2, 3] and back["n"] == 3 and list(back["o"]) == ["weight", "bias"]
    with pytest.raises(ValueError, match="support_pytorch_format"):
        flow.load(tmp_path / "zip", support_pytorch_format=False)


def test_torch_call_forms(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "f")
    assert flow.load(f=tmp_path / "f", map_location=torch.device("cpu"), weights_only=True)["w"].tolist() == [
        1,
        1,
    ]
    assert flow.load(tmp_path / "f", "cpu")["w"].device.type == "cpu"
    assert flow.load(tmp_path / "f", torch.device("meta"))["w"].device.type == "meta"
    assert flow.load(str(tmp_path / "f"), mmap=True)["w"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="needs a path, found BytesIO"):
        flow.load(io.BytesIO((tmp_path / "f").read_bytes()), mmap=True)
    assert flow.load(tmp_path / "f", lambda storage, location: storage)["w"].tolist() == [1, 1]
    with pytest.raises(TypeError, match="one of path, f"):
        flow.load()
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        flow.load(tmp_path / "nothing-here")


@pytest.mark.parametrize("layout", ["torch", "folder", "pickle"])
def test_map_location(tmp_path, layout):
    flow.save({"w": torch.ones(2, 3)}, tmp_path / "c", layout=layout)
    assert flow.load(tmp_path / "c", map_location="meta")["w"].device.type == "meta"
    assert flow.load(tmp_path / "c", map_location=lambda s, where: s)["w"].device.type == "cpu"
    glob = flow.load(tmp_path / "c", map_location=flow.placement("cpu", [0]))["w"]
    assert glob.is_global and glob.to_local().tolist() == torch.ones(2, 3).tolist()
    glob = flow.load(tmp_path / "c", 0)["w"]
    assert glob.is_global and glob.placement == flow.placement("cpu", [0])
    with pytest.raises(ValueError, match="global_src_rank must be in 0..0, found 3"):
        flow.load(tmp_path / "c", global_src_rank=3)


def test_safetensors(tmp_path):
    """The format by hand: header length, header, values."""
    values = {"a": np.arange(3, dtype=np.float32), "b": np.array([[1, 2]], np.int64)}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in values.items():
        header[name] = {
            "dtype": "F32" if value.dtype == np.float32 else "I64",
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + value.nbytes],
        }
        data += value.tobytes()
    head = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)
    out = flow.load(path)
    assert out["a"].tolist() == [0, 1, 2] and out["b"].tolist() == [[1, 2]] and out["b"].dtype is torch.int64
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RuntimeError, match="m.safetensors.*truncated"):
        flow.load(path)


def test_safetensors_of_the_library(tmp_path):
    st = pytest.importorskip("safetensors.torch", reason="needs the package safetensors")
    tensors = {
        "h": torch.randn(3, 2).half(),
        "b": torch.randn(4).bfloat16(),
        "e": torch.empty(0, 2),
        "t": torch.tensor([True, False]),
    }
    st.save_file(tensors, tmp_path / "x.safetensors")
    out = flow.load(tmp_path / "x.safetensors")
    assert out.keys() == tensors.keys()
    assert all(torch.equal(out[k], v) and out[k].dtype is v.dtype for k, v in tensors.items())


def test_bytes_io():
    for layout in ("torch", "pickle"):
        buffer = io.BytesIO()
        flow.save({"a": torch.ones(2)}, buffer, layout=layout)
        buffer.seek(0)
        assert flow.load(buffer)["a"].tolist() == [1, 1]


@pytest.mark.parametrize("where", ["cpu:0", "cpu", flow.device("cpu:0"), torch.device("cpu", 0)])
def test_map_location_in_oneflows_spelling(tmp_path, where):
    flow.save({"x": flow.ones(2)}, tmp_path / "file")
    assert flow.load(tmp_path / "file", map_location=where)["x"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "device"]
)
def test_pipe_or_device_is_an_error_at_once(tmp_path, make):
    make(tmp_path / "checkpoint")
    with pytest.raises(flow.CheckpointError, match="checkpoint: no regular file"):
        flow.load(tmp_path / "checkpoint")


def test_file_in_text_mode_is_an_error_that_says_so(tmp_path):
    flow.save({"x": flow.ones(2)}, tmp_path / "file")
    with open(tmp_path / "file", errors="replace") as file, pytest.raises(TypeError, match="mode 'rb'"):
        flow.load(file)


def loaded(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    return flow.load(io.BytesIO(file.getvalue()), **options)


def test_attributes_of_tensors_that_torch_reads():
    """torch.compile's marks of dynamic dimensions, and containers of plain values."""
    x = torch.ones(3)
    x.tags, x.options = {"a", "b"}, {"k": [1, {2}]}
    torch._dynamo.mark_dynamic(x, 0, min=2, max=9)
    read = loaded(x)
    assert torch.equal(read, x) and read.tags == x.tags and read.options == x.options
    assert read._dynamo_dynamic_range == x._dynamo_dynamic_range


def test_a_jagged_nested_tensor():
    from torch.nested._internal.nested_tensor import NestedTensor, _rebuild_njt

    parts = [torch.ones(2), torch.ones(3)]
    with torch.serialization.safe_globals(
        [NestedTensor, _rebuild_njt]
    ):  # torch 2.15 allows neither by itself
        read = loaded(torch.nested.nested_tensor(parts, layout=torch.jagged))
    assert all(torch.equal(a, b) for a, b in zip(read.unbind(), parts, strict=True))


def test_a_stream_of_python_2_with_bytes():
    """Python 2 wrote texts as byte strings, the keys of the storages among them."""
    file = io.BytesIO()
    torch.save({"w": torch.arange(3.0)}, file, _use_new_zipfile_serialization=False)
    data, written, at = file.getvalue(), bytearray(), 0
    while at < len(data):
        text = data[at + 5 : at + 5 + data[at + 1]] if data[at : at + 1] == b"X" else b""
        if text and data[at + 2 : at + 5] == bytes(3) and len(text) < 60 and all(32 <= c < 127 for c in text):
            written += b"U" + bytes([len(text)]) + text
            at += 5 + len(text)
        else:
            written.append(data[at])
            at += 1
    assert flow.load(io.BytesIO(bytes(written)), encoding="bytes")[b"w"].tolist() == [0, 1, 2]
