"""Sharded checkpoints of one process: flow.save(layout="sharded") and flow.load."""

import collections
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import torch
from time_limits import seconds

import oneflow as flow
from oneflow import nn

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import hostile_files
import hostile_sharded
from files_util import assert_same_bits

from oneflow._files.sharded import background, shard_files

TENSORS = {
    **{
        str(dtype): torch.arange(6).reshape(2, 3).to(dtype)
        for dtype in (
            *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
            *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32),
            *(torch.uint64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
        )
    },
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "strided": torch.arange(20.0)[::3],
    "expanded": torch.arange(3.0).expand(4, 3),
    "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "conjugate": torch.complex(torch.arange(3.0), torch.ones(3)).conj(),
    "negative": torch.complex(torch.arange(3.0), torch.ones(3)).conj().imag,
    "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
    "__metadata__": torch.ones(1),
    "a.b": torch.ones(1),
    "w[0:1]": torch.ones(2),
    "w@1": torch.ones(2),
    "größe\n": torch.ones(1),
    "": torch.ones(3),
}
VALUES = {
    "a": {"b": [1, -(2**70), 2.5, -0.0, 1e-300, float("inf"), None, True, "tëxt\ud800", ()]},
    0: (1, (2, [3, {4}])),
    (1, "x"): frozenset([1]),
    2.5: collections.OrderedDict(x=1, y=collections.Counter("aab")),
    None: b"\x00\xff",
    "types": [torch.Size([1, 2]), torch.float8_e5m2, torch.device("cpu"), 1 + 2j, complex("nan+infj").imag],
    "numpy": {"array": np.arange(6.0).reshape(2, 3), "big": np.arange(3, dtype=">i4").astype("i4")},
    "global": [flow.placement("cpu", [0]), flow.sbp.split(0), flow.sbp.broadcast],
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_are_loaded_bit_for_bit(tmp_path, name):
    flow.save({name: TENSORS[name]}, tmp_path / "c", layout="sharded")
    back = flow.load(tmp_path / "c")
    assert list(back) == [name]
    assert_same_bits(back[name], TENSORS[name].resolve_neg())


def test_all_tensors_together(tmp_path):
    flow.save(TENSORS, tmp_path / "c", layout="sharded")
    assert_same_bits(flow.load(tmp_path / "c"), {k: t.resolve_neg() for k, t in TENSORS.items()})


@pytest.mark.parametrize("key", VALUES, ids=str)
def test_plain_values_are_kept(tmp_path, key):
    flow.save([{key: VALUES[key]}], tmp_path / "c", layout="sharded")
    assert_same_bits(flow.load(tmp_path / "c"), [{key: VALUES[key]}])


def test_numpy_scalars_and_nan(tmp_path):
    flow.save([np.float32(1.5), np.bool_(True), float("nan")], tmp_path / "c", layout="sharded")
    number, flag, nan = flow.load(tmp_path / "c")
    assert type(number) is np.float32 and number == 1.5 and type(flag) is np.bool_ and nan != nan


def test_states_of_training_are_kept(tmp_path):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = flow.optim.AdamW(net.parameters(), lr=0.1)
    schedule = flow.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    net(flow.randn(5, 3)).sum().backward()
    optimizer.step(), schedule.step()
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    flow.save(state, tmp_path / "c", layout="sharded")
    back = flow.load(tmp_path / "c")
    assert_same_bits(back, state)
    assert back["net"]._metadata == state["net"]._metadata


def test_shared_values_stay_shared_and_are_written_once(tmp_path):
    weight, base = nn.Parameter(torch.ones(100, 100)), torch.arange(10.0)
    state = {
        "a": weight,
        "b": weight,
        "c": weight.detach(),
        "row": base[2:4],
        "base": base,
        "odd": base[1::2],
    }
    flow.save(state, tmp_path / "c", layout="sharded")
    assert sum(p.stat().st_size for p in (tmp_path / "c").iterdir()) < 42_000
    back = flow.load(tmp_path / "c")
    assert back["a"] is back["b"] and type(back["a"]) is nn.Parameter and type(back["c"]) is torch.Tensor
    with torch.no_grad():
        back["a"][0, 0] = 5
        back["base"][3] = 7
    assert back["c"][0, 0] == 5 and back["row"].tolist() == [2, 7] and back["odd"].tolist() == [1, 7, 5, 7, 9]


def test_other_readers_of_safetensors_read_the_files(tmp_path):
    reader = pytest.importorskip(
        "safetensors.torch", reason="needs safetensors (oneflow-compat[safetensors])"
    )
    is_plain = lambda name, t: t.numel() and t.dtype is not torch.complex128 and not set("@[") & set(name)
    tensors = {name: t for name, t in TENSORS.items() if is_plain(name, t)}
    flow.save(tensors, tmp_path / "c", layout="sharded")
    [file] = (tmp_path / "c").glob("*.safetensors")
    read = reader.load_file(file)
    for name, tensor in tensors.items():
        stored = {"__metadata__": "__metadata___", "": "object"}.get(name, name)
        assert_same_bits(read[stored], tensor.resolve_conj().resolve_neg().contiguous())


@pytest.mark.parametrize(
    "value, error",
    [
        (object(), TypeError),
        (nn.Linear(1, 1), TypeError),
        ({"f": len}, TypeError),
        (np.array(["x"]), TypeError),
        ({torch.ones(1): 1}, TypeError),
        (torch.eye(2).to_sparse(), NotImplementedError),
        (torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.quint8), NotImplementedError),
        (torch.empty(1, device="meta"), NotImplementedError),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_be_saved_is_named_and_leaves_no_folder(tmp_path, value, error):
    with pytest.raises(error, match=r"state\.x"):
        flow.save({"state": {"x": value}}, tmp_path / "c", layout="sharded")
    assert not (tmp_path / "c").exists()


def test_an_object_that_contains_itself_is_refused(tmp_path):
    own = []
    own.append(own)
    with pytest.raises(ValueError, match="contains itself"):
        flow.save(own, tmp_path / "c", layout="sharded")


def test_arguments_that_do_not_fit_are_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    flow.save({}, tmp_path / "sharded", layout="sharded")
    flow.save({}, tmp_path / "oneflow", layout="folder")
    for error, target, arguments in (
        (ValueError, "a", {"layout": "sharded", "global_dst_rank": 0}),
        (ValueError, "a", {"asynchronous": True}),
        (ValueError, "a", {"layout": "sharded", "save_as_external_data": True}),
        (FileExistsError, "file", {"layout": "sharded"}),
        (FileExistsError, "oneflow", {"layout": "sharded"}),
        (FileExistsError, "sharded", {}),
    ):
        with pytest.raises(error):
            flow.save({"x": 1}, tmp_path / target, **arguments)
    with open(tmp_path / "file", "wb") as file, pytest.raises(TypeError, match="path of a folder"):
        flow.save({}, file, layout="sharded")
    flow.save({}, tmp_path / "net.pt")
    with pytest.raises(ValueError, match="into="):
        flow.load(tmp_path / "net.pt", into={})
    with pytest.raises(ValueError, match="map_location"):
        flow.load(tmp_path / "sharded", into={}, map_location="cpu")


# --------------------------------------------------------------------------- into tensors
def test_tensors_are_filled_in_place(tmp_path):
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    columns = torch.zeros(3, 5)
    flow.save({"net": net.state_dict(), "n": 3, "t": TENSORS["transposed"]}, tmp_path / "c", layout="sharded")
    into = {"net": other.state_dict(), "t": columns.t()[:4]}
    back = flow.load(tmp_path / "c", into=into)
    assert back["n"] == 3 and back["net"]["weight"] is into["net"]["weight"]
    assert torch.equal(other.weight, net.weight) and torch.equal(columns.t()[:4], TENSORS["transposed"])


def test_nothing_changes_unless_all_tensors_fit(tmp_path):
    flow.save({"a": torch.ones(3), "b": torch.ones(2)}, tmp_path / "c", layout="sharded")
    for b in (torch.zeros(3), torch.zeros(2, dtype=torch.int32), torch.zeros(2, device="meta")):
        a = torch.zeros(3)
        with pytest.raises(ValueError, match=r"'b' is .*Nothing was changed"):
            flow.load(tmp_path / "c", into={"a": a, "b": b})
        assert not a.any()
    with pytest.raises(ValueError, match=r"'x\.y' is not in the checkpoint"):
        flow.load(tmp_path / "c", into={"x": {"y": a}})
    [file] = (tmp_path / "c").glob("*.safetensors")
    body = file.read_bytes()
    file.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(flow.CheckpointError, match="CRC-32"):
        flow.load(tmp_path / "c", into={"a": a, "b": torch.zeros(2)})
    assert not a.any()


# --------------------------------------------------------------------------- interrupted saves
def test_a_killed_save_leaves_the_former_checkpoint(tmp_path):
    code = """
        import os, signal, sys
        import oneflow as flow
        from oneflow._file_safety import atomic
        from oneflow._files.sharded import saving, shard_files
        flow.save({"x": flow.full((1000, 1000), 1.0)}, sys.argv[1], layout="sharded")
        die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[2] == "values":
            blocks = shard_files.blocks
            shard_files.blocks = lambda values: (block if i < 1 else die() for i, block in enumerate([*blocks(values)] * 2))
        elif sys.argv[2] == "index":
            atomic.os.replace = die
        elif sys.argv[2] == "commit":
            saving.os.unlink = die
        flow.save({"x": flow.full((1000, 1000), 2.0)}, sys.argv[1], layout="sharded")
        """  # noqa: E501
    for moment, value in (("values", 1), ("index", 1), ("commit", 2)):
        folder = tmp_path / moment
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), folder, moment], timeout=seconds(100)
        )
        assert run.returncode == -signal.SIGKILL
        assert len(list(folder.glob("*.safetensors"))) == 2
        assert flow.load(folder)["x"].unique().tolist() == [value]
        flow.save({"x": torch.full((2,), 3.0)}, folder, layout="sharded")  # removes what is left
        assert flow.load(folder)["x"].tolist() == [3, 3]
        assert len(list(folder.glob("*.safetensors"))) == 1


def test_a_failed_save_leaves_the_former_checkpoint(tmp_path, monkeypatch):
    flow.save({"x": torch.ones(2)}, tmp_path / "c", layout="sharded")
    before = sorted(os.listdir(tmp_path / "c"))

    def full_disk(path, parts):
        open(path, "wb").close()
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(shard_files, "write", full_disk)
    with pytest.raises(OSError, match="No space"):
        flow.save({"x": torch.zeros(2)}, tmp_path / "c", layout="sharded")
    pending = flow.save({"x": torch.zeros(2)}, tmp_path / "c", layout="sharded", asynchronous=True)
    with pytest.raises(OSError, match="No space"):
        pending.wait()
    assert sorted(os.listdir(tmp_path / "c")) == before and flow.load(tmp_path / "c")["x"].tolist() == [1, 1]


# --------------------------------------------------------------------------- asynchronous saves
@pytest.fixture
def slow_writes(monkeypatch):
    """Writes that wait for an event."""
    write, go = shard_files.write, threading.Event()

    def wait(path, parts):
        assert go.wait(seconds(60))
        return write(path, parts)

    monkeypatch.setattr(shard_files, "write", wait)
    yield go
    go.set()
    background.finish_last()


def test_an_asynchronous_save_has_the_values_of_the_call(tmp_path, slow_writes):
    x = {k: t.clone() for k, t in TENSORS.items() if k.startswith("torch")}
    expected = {k: t.clone() for k, t in x.items()}
    pending = flow.save(x, tmp_path / "c", layout="sharded", asynchronous=True)
    for tensor in x.values():
        tensor.zero_()
    assert not pending.done() and not (tmp_path / "c" / "checkpoint.json").exists()
    slow_writes.set()
    pending.wait()
    assert pending.done()
    assert_same_bits(flow.load(tmp_path / "c"), expected)


def test_a_second_save_waits_for_the_first(tmp_path, slow_writes):
    first = flow.save({"x": torch.ones(2)}, tmp_path / "a", layout="sharded", asynchronous=True)
    threading.Timer(0.3, slow_writes.set).start()
    second = flow.save({"x": torch.zeros(3)}, tmp_path / "b", layout="sharded", asynchronous=True)
    assert first.done()
    second.wait()
    assert (
        flow.load(tmp_path / "a")["x"].tolist() == [1, 1]
        and flow.load(tmp_path / "b")["x"].tolist() == [0] * 3
    )


def test_the_next_save_raises_an_error_that_nobody_has_seen(tmp_path, monkeypatch):
    write = shard_files.write
    monkeypatch.setattr(shard_files, "write", lambda path, parts: 1 / 0)
    flow.save({"x": torch.ones(2)}, tmp_path / "a", layout="sharded", asynchronous=True)
    monkeypatch.setattr(shard_files, "write", write)
    with pytest.raises(ZeroDivisionError):
        flow.save({"x": torch.ones(2)}, tmp_path / "b", layout="sharded")
    flow.save({"x": torch.ones(2)}, tmp_path / "b", layout="sharded")


def test_the_exit_of_the_process_waits_and_reports(tmp_path):
    code = """
        import sys, time
        import oneflow as flow
        from oneflow._files.sharded import shard_files
        write = shard_files.write
        def slow(path, parts):
            time.sleep(0.5)
            if sys.argv[2] == "fails":
                raise OSError("no space")
            return write(path, parts)
        shard_files.write = slow
        flow.save({"x": flow.ones(3)}, sys.argv[1], layout="sharded", asynchronous=True)
        """
    for outcome in ("works", "fails"):
        folder = tmp_path / outcome
        command = [sys.executable, "-c", textwrap.dedent(code), folder, outcome]
        run = subprocess.run(command, timeout=seconds(100), capture_output=True, text=True)
        assert run.returncode == 0
        if outcome == "works":
            assert flow.load(folder)["x"].tolist() == [1, 1, 1]
        else:
            assert "the last asynchronous save failed: no space" in run.stderr, run.stderr


# --------------------------------------------------------------------------- hostile folders
def test_hostile_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count = 0
    for name, path in hostile_sharded.hostile(tmp_path):
        began = time.perf_counter()
        with pytest.raises((flow.CheckpointError, IsADirectoryError)) as caught:
            print(name, flow.load(path))
        assert path.name in str(caught.value), name
        assert time.perf_counter() - began < seconds(5), name
        count += 1
    assert count > 130 and not os.path.exists(hostile_files.MARKER)


def test_the_folders_that_the_hostile_ones_differ_from_are_read(tmp_path):
    flow.save(hostile_sharded.content(), tmp_path / "c", layout="sharded")
    hostile_sharded.write_index(tmp_path / "c", hostile_sharded.read_index(tmp_path / "c"))
    assert_same_bits(flow.load(tmp_path / "c"), hostile_sharded.content())
    (tmp_path / "dcp").mkdir()
    hostile_sharded.good_dcp(tmp_path / "dcp")
    assert flow.load(tmp_path / "dcp")["w"].tolist() == [0, 1, 2, 3]


def test_a_folder_of_links_is_read_if_it_is_trusted(tmp_path):
    flow.save({"x": torch.ones(2)}, tmp_path / "real", layout="sharded")
    (tmp_path / "c").mkdir()
    for path in (tmp_path / "real").iterdir():
        (tmp_path / "c" / path.name).symlink_to(path)
    with pytest.raises(flow.CheckpointError, match="weights_only=False"):
        flow.load(tmp_path / "c")
    assert flow.load(tmp_path / "c", weights_only=False)["x"].tolist() == [1, 1]


def test_an_index_without_its_checksum_is_read_on_request(tmp_path):
    flow.save({"lr": 0.1}, tmp_path / "c", layout="sharded")
    path = tmp_path / "c" / "checkpoint.json"
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(flow.CheckpointError, match="CRC-32"):
        flow.load(tmp_path / "c")
    assert flow.load(tmp_path / "c", check_crc=False) == {"lr": 0.2}
    assert json.loads(path.read_text())["format"] == "oneflow-sharded"


def test_a_folder_of_torchs_distributed_checkpoint(tmp_path):
    import torch.distributed.checkpoint as dcp

    state = {
        "model": {"w": TENSORS["transposed"], "half": torch.ones(3, dtype=torch.bfloat16)},
        "optimizer": {"groups": [{"lr": 0.1, "betas": (0.9, 0.99)}, {"lr": None}]},
        "step": 3,
    }
    dcp.save(state, checkpoint_id=tmp_path / "c", no_dist=True)
    back = flow.load(tmp_path / "c")
    assert_same_bits(back, state)
    into = {"model": {"w": torch.zeros(4, 3)}}
    assert flow.load(tmp_path / "c", into=into)["step"] == 3
    assert torch.equal(into["model"]["w"], TENSORS["transposed"])
