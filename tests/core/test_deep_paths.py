"""Modules that OneFlow's own tests and clients import by deep paths."""

import importlib
import importlib.util
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow._tables.deep_paths import NAMES, PACKAGES, SAME_MODULES


# --------------------------------------------------------------------------- old keywords
def test_save_takes_the_old_name_of_the_writing_rank(tmp_path):
    flow.save({"w": torch.ones(2)}, tmp_path / "a", consistent_dst_rank=0)
    assert torch.equal(flow.load(tmp_path / "a")["w"], torch.ones(2))
    with pytest.raises(TypeError, match="old name"):
        flow.save({}, tmp_path / "b", global_dst_rank=0, consistent_dst_rank=0)


# --------------------------------------------------------------------------- readers and module paths
def test_raw_reader_gives_every_record_once_an_epoch(tmp_path):
    np.arange(15, dtype=np.float32).tofile(tmp_path / "a")
    np.arange(15, 24, dtype=np.float32).tofile(tmp_path / "b")
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    plain = flow.nn.RawReader(files, (3,), flow.float32, 2, random_shuffle=False)
    got = torch.cat([plain() for _ in range(4)])
    assert torch.equal(got, torch.arange(24.0).reshape(8, 3)) and torch.equal(plain(), got[:2])
    mixed, again = (
        flow.nn.RawReader(files, (3,), flow.float32, 4, random_seed=3, shuffle_block_size=24)
        for _ in range(2)
    )
    epoch = torch.cat([mixed(), mixed()])
    assert torch.equal(epoch, torch.cat([again(), again()])) and not torch.equal(epoch, got)
    assert sorted(epoch[:, 0].tolist()) == got[:, 0].tolist() and all(
        epoch[i + 1, 0] - epoch[i, 0] == 3 for i in range(0, 8, 2)
    )
    with pytest.raises(ValueError, match="no multiple of a record's 16"):
        flow.nn.RawReader(files, (4,), flow.float32, 2)


def test_modules_that_are_only_deep_paths():
    import oneflow.nn.functional.deform_conv as deform_conv
    import oneflow.nn.functional.maxpool as maxpool
    import oneflow.nn.parallel.ddp as ddp
    from oneflow.special import special_ops

    assert (
        maxpool.max_pool2d is flow.nn.functional.max_pool2d
        and deform_conv.deform_conv2d is flow.nn.functional.deform_conv2d
    )
    assert special_ops.erf is flow.special.erf is torch.special.erf
    assert ddp.DistributedDataParallel is flow.nn.parallel.DistributedDataParallel


def test_old_path_of_the_bridge_to_torch():
    from oneflow.utils.torch import from_torch, to_torch

    assert from_torch is flow.utils.tensor.from_torch and to_torch is flow.utils.tensor.to_torch
    assert (
        flow.utils.data.__name__ == "oneflow.utils.data"
        and flow.utils.hooks.RemovableHandle is torch.utils.hooks.RemovableHandle
    )


def test_torchs_operators_under_the_name_of_our_functions():
    from oneflow._ops import OpOverload

    assert OpOverload is torch._ops.OpOverload


def test_modules_of_one_function():
    import oneflow.nn.modules.where
    from oneflow.asyncs.thread import Thread
    from oneflow.framework.distribute import split_sbp
    from oneflow.framework.function_util import FunctionConfig
    from oneflow.nn.modules import (
        as_tensor,
        einsum,
        grid_sample,
        linspace,
        math_ops,
        meshgrid,
        nms,
        norm,
        roll,
    )

    assert (
        einsum.einsum_op is flow.einsum
        and meshgrid.meshgrid_op is flow.meshgrid
        and nms.nms_op is flow.nms
        and roll.roll_op is flow.roll
    )
    assert (
        linspace.linspace_op is flow.linspace
        and as_tensor.as_tensor is flow.as_tensor
        and norm.norm is flow.norm
    )
    assert (
        math_ops.addmm_op is flow.addmm and math_ops.fmod_op is flow.fmod and math_ops.arcsin_op is flow.asin
    )
    assert grid_sample.grid_sample is flow.nn.functional.grid_sample and FunctionConfig is flow.FunctionConfig
    # without an import, as onefx has it
    assert (
        flow.nn.modules.constant.new_ones_op is flow.new_ones
        and flow.nn.modules.arange.arange_op is flow.arange
    )
    assert (
        flow.nn.modules.where is sys.modules["oneflow.nn.modules.where"]
        and oneflow.nn.modules.where.where_op is flow.where
    )
    for module, row in NAMES.items():
        assert sorted(n for n in vars(importlib.import_module(module)) if not n.startswith("__")) == sorted(
            pair.split("=")[0] for pair in row.split()
        )
    assert (
        Thread is flow.asyncs.Thread
        and isinstance(flow.asyncs.thread, type)
        and split_sbp(1) == flow.sbp.split(1)
    )


@pytest.mark.parametrize("path", [*NAMES, *PACKAGES, *SAME_MODULES])
def test_a_module_without_a_file_is_imported_like_one_with_a_file(path):
    spec = importlib.util.find_spec(path)
    module = importlib.import_module(path)
    parent, _, name = path.rpartition(".")
    assert spec is not None and importlib.util.find_spec(path) is not None
    assert sys.modules[path] is module is getattr(sys.modules[parent], name)
    assert path not in SAME_MODULES or module is importlib.import_module(f"oneflow.{SAME_MODULES[path]}")


def test_source_files_of_0_9_that_define_functions_and_tensor_types_give_the_public_objects():
    from oneflow.framework.tensor_str import set_printoptions
    from oneflow.framework.type_tensor import FloatTensor, LongTensor
    from oneflow.nn.functional.functional_batch_norm import batch_norm
    from oneflow.nn.functional.functional_deform_conv import deform_conv2d
    from oneflow.nn.functional.functional_maxpool import adaptive_max_pool2d, max_pool2d
    from oneflow.nn.functional.functional_pad import pad

    assert set_printoptions is flow.set_printoptions
    assert FloatTensor is flow.FloatTensor and LongTensor is flow.LongTensor
    F = flow.nn.functional
    assert (batch_norm, pad, deform_conv2d) == (F.batch_norm, F.pad, F.deform_conv2d)
    assert (adaptive_max_pool2d, max_pool2d) == (F.adaptive_max_pool2d, F.max_pool2d)


def test_a_path_without_a_row_is_missing():
    assert importlib.util.find_spec("oneflow.core.no_such_module") is None
    with pytest.raises(AttributeError, match="'oneflow.core' has no attribute 'no_such_module'"):
        flow.core.no_such_module
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("oneflow.core.no_such_module")


def test_classes_of_deep_paths_are_pickled():
    from oneflow.core.record import record_pb2

    assert pickle.loads(pickle.dumps(record_pb2.OFRecord)) is record_pb2.OFRecord
    old_pickle = b"coneflow.core.record.record_pb2\nOFRecord\n."  # written when the path had a file
    assert pickle.loads(old_pickle) is record_pb2.OFRecord


@pytest.mark.parametrize(
    "path, expected",
    [("framework.tensor", ""), ("utils.torch", ""), ("distributed.run", "usage: ")],
)
def test_modules_without_a_file_run_as_programs(path, expected):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"oneflow.{path}", "--help"], capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stdout.startswith(expected), run.stderr
    assert not expected or "distributed.run [-h]" in run.stdout  # Python 3.14 says `python -m oneflow...`


def test_interpolation_as_a_module():
    from oneflow.nn.modules.custom import Interpolate

    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    want = flow.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
    assert torch.equal(Interpolate(scale_factor=2.0, mode="bilinear", align_corners=True)(x), want)
    assert Interpolate(size=(4, 4))(x).shape == (1, 1, 4, 4)
