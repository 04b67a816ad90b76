"""oneflow.save: layouts, round trips, torch's call forms, OneFlow's handling of paths."""

import argparse
import collections
import io
import os
import pickle
import pickletools
import sys

import numpy as np
import pytest
import torch

import oneflow as flow

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from files_util import CKPT, assert_same_bits

from oneflow._files.modules import reduced_without_local_hooks

LAYOUTS = ["torch", "folder", "pickle"]
shared = torch.arange(3.0)
OBJECTS = {
    "state_dict": torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
    "parameter": torch.nn.Parameter(torch.tensor([1.0, -0.0, float("nan")])),
    "nested": {
        "epoch": 3,
        "lst": [torch.tensor([1, 2]), "x", None, 2.5],
        "tup": (torch.tensor(7.0), True),
        5: {"deep": [[]]},
    },
    "dtypes": {
        str(d): torch.tensor([0, 1, 2]).to(d)
        for d in (
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int8,
            torch.uint8,
            torch.bool,
            torch.int16,
            torch.complex64,
        )
    },
    "shapes": {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "strided": torch.arange(6.0).reshape(2, 3).T,
        "conj": torch.tensor([1 + 2j]).conj(),
    },
    "plain": {
        "dtype": torch.float32,
        "size": torch.Size([2, 3]),
        "np": np.arange(4.0),
        "scalar": np.float32(2.5),
        "set": {1, 2},
        "dd": collections.OrderedDict(a=1),
    },
    "options": argparse.Namespace(lr=0.1, name="run"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OBJECTS)
def test_a_saved_object_loads_with_the_same_bits(tmp_path, name, layout):
    path = tmp_path / "new" / "parents" / "ckpt"
    flow.save(OBJECTS[name], path, layout=layout)
    assert path.is_dir() == (layout == "folder")
    assert_same_bits(flow.load(path), OBJECTS[name])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_module_and_optimizer(tmp_path, layout):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 2)
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(3, 1, 4, 4)
    net(x).sum().backward()
    opt.step()
    flow.save({"net": net, "opt": opt.state_dict()}, tmp_path / "c", layout=layout)
    back = flow.load(tmp_path / "c")
    assert torch.equal(back["net"](x), net(x))
    assert_same_bits(back["opt"], opt.state_dict())


def test_save_writes_a_folder_only_on_request(tmp_path):
    """A file by default; a folder on request, or if the path is a folder."""
    flow.save(torch.ones(1), tmp_path / "a")
    assert torch.load(tmp_path / "a").tolist() == [1]
    flow.save(torch.ones(1), tmp_path / "b", save_as_external_data=True)
    assert (tmp_path / "b" / "pickled_data").exists()
    (tmp_path / "c").mkdir()
    flow.save(torch.ones(1), str(tmp_path / "c"))
    assert (tmp_path / "c" / "tensor_0" / "out").read_bytes() == np.ones(1, np.float32).tobytes()
    flow.save(torch.ones(1), str(tmp_path / "d") + os.sep)
    assert (tmp_path / "d" / "pickled_data").exists()
    with pytest.raises(FileExistsError, match="is a file"):
        flow.save(torch.ones(1), tmp_path / "a", save_as_external_data=True)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        flow.save(torch.ones(1), tmp_path / "b", layout="pickle")
    with pytest.raises(ValueError, match="layout must be one of"):
        flow.save(torch.ones(1), tmp_path / "e", layout="hdf5")
    with pytest.raises(ValueError, match="give one of the two"):
        flow.save(torch.ones(1), tmp_path / "e", layout="pickle", save_as_external_data=True)
    assert not (tmp_path / "e").exists()


def _opcodes(body):
    return [
        (op.name, arg)
        for op, arg, _ in pickletools.genops(body)
        if op.name not in ("FRAME", "MEMOIZE", "BINGET", "LONG_BINGET")
    ]


def test_folder_is_what_oneflow_writes(tmp_path):
    """pickled_data opcode for opcode and the meta files byte for byte, against the recorded state_dict."""
    state = flow.load(CKPT / "state_dict")
    flow.save(state, tmp_path / "c", save_as_external_data=True)
    ours, theirs = (
        _opcodes((tmp_path / "c" / "pickled_data").read_bytes()),
        _opcodes((CKPT / "state_dict" / "pickled_data").read_bytes()),
    )
    rename = {f"tensor_{i + 7}": f"tensor_{i}" for i in range(9)}
    assert ours == [(op, rename.get(arg, arg)) for op, arg in theirs]
    for theirs_name, ours_name in rename.items():
        for part in ("meta", "out"):
            assert (tmp_path / "c" / ours_name / part).read_bytes() == (
                CKPT / "state_dict" / theirs_name / part
            ).read_bytes()


@pytest.mark.parametrize(
    "name,value",
    [("tensor", torch.tensor([1.0, 2.0])), ("parameter", torch.nn.Parameter(torch.tensor([1.0, 2.0])))],
)
def test_single_file_is_what_oneflow_pickles(name, value):
    """The tensor inside, opcode for opcode, against OneFlow 0.9.0's pickle of the same tensor."""
    buffer = io.BytesIO()
    flow.save(value, buffer, layout="pickle")
    ours, theirs = _opcodes(buffer.getvalue()), _opcodes((CKPT / f"{name}.pickle").read_bytes())
    # which repeated word is written and which refers back to it depends on string identity
    ours, theirs = ([op for op in ops if op[1] not in ("data", "dtype")] for ops in (ours, theirs[1:-1]))
    start = ours.index(theirs[0])
    assert ours[start : start + len(theirs)] == theirs


def test_torch_call_forms(tmp_path):
    torch_bytes, ours = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.ones(2)}, torch_bytes)
    flow.save({"a": torch.ones(2)}, ours, pickle, 2)
    assert (
        torch.load(io.BytesIO(ours.getvalue()))["a"].tolist()
        == torch.load(io.BytesIO(torch_bytes.getvalue()))["a"].tolist()
    )
    flow.save({"a": 1}, f=tmp_path / "k", _use_new_zipfile_serialization=False)
    assert torch.load(tmp_path / "k") == {"a": 1}
    flow.save({"a": 1}, path=tmp_path / "p")
    assert torch.load(tmp_path / "p") == {"a": 1}
    with pytest.raises(TypeError, match="one of path_or_buffer, f, path"):
        flow.save({"a": 1})
    with pytest.raises(TypeError, match="path or a binary file"):
        flow.save({"a": 1}, 7)


def test_save_refuses_a_rank_that_does_not_exist(tmp_path):
    flow.save({"a": torch.ones(2)}, tmp_path / "g", 0, True)
    assert flow.load(tmp_path / "g", global_src_rank=0)["a"].is_global
    with pytest.raises(ValueError, match="global_dst_rank must be in 0..0, found 1"):
        flow.save({"a": 1}, tmp_path / "h", global_dst_rank=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_global_tensors_are_saved_whole(tmp_path, layout):
    glob = torch.arange(4.0).to_global(placement=flow.placement("cpu", [0]), sbp=flow.sbp.split(0))
    flow.save({"w": glob, "p": torch.nn.Parameter(glob)}, tmp_path / "g", global_dst_rank=0, layout=layout)
    back = flow.load(tmp_path / "g")
    assert type(back["w"]) is torch.Tensor and back["w"].tolist() == [0, 1, 2, 3]
    assert type(back["p"]) is torch.nn.Parameter and back["p"].requires_grad


def test_frozen_parameters_and_one_tensor_twice(tmp_path):
    frozen, twice = torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.ones(3)
    for layout in LAYOUTS:
        flow.save([frozen, twice, twice], tmp_path / layout, layout=layout)
        a, b, c = flow.load(tmp_path / layout)
        assert not a.requires_grad and type(a) is torch.nn.Parameter and b is c


def test_what_oneflows_formats_cannot_hold(tmp_path):
    for layout in ("folder", "pickle"):
        with pytest.raises(NotImplementedError, match="dense tensors only"):
            flow.save(torch.eye(3).to_sparse(), tmp_path / layout, layout=layout)
    assert list(tmp_path.iterdir()) == []


def _print_shape(module, inputs, output):
    print(output.shape)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hooks_that_cannot_be_pickled_are_left_out(tmp_path, layout):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    model.register_forward_pre_hook(lambda module, inputs: None)
    with pytest.warns(UserWarning, match="hooks of a Sequential"):
        flow.save(model, tmp_path / "m", layout=layout)
    back = flow.load(tmp_path / "m")
    assert len(model._forward_pre_hooks) == 1 and not back._forward_pre_hooks
    x = torch.ones(1, 2)
    assert torch.equal(back(x), model(x))


def test_a_hook_that_can_be_pickled_stays_beside_one_that_cannot():
    model = torch.nn.Linear(1, 1)
    model.register_forward_hook(_print_shape)
    model.register_forward_hook(lambda module, inputs, output: None)
    with pytest.warns(UserWarning, match="hooks of a Linear"):
        function, arguments, state = reduced_without_local_hooks(model)[:3]
    assert list(state["_forward_hooks"].values()) == [_print_shape] and len(model._forward_hooks) == 2
