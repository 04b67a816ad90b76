"""Damaged and hostile files raise an error that names the file, execute nothing, and leave the old checkpoint
intact.
"""

import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from time_limits import seconds

import oneflow as flow
from oneflow._files import layout as layouts

LAYOUTS = ["torch", "folder", "pickle"]


class Custom:
    """A class of the user's; __reduce__ would show that loading ran code."""

    ran = False

    def __init__(self, n=0):
        self.n = n

    def __setstate__(self, state):
        Custom.ran = True
        self.__dict__.update(state)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [lambda: Custom(4), Net])
def test_own_classes_need_the_opt_out(tmp_path, layout, make):
    path = tmp_path / "c"
    flow.save({"x": make(), "t": torch.ones(1)}, path, layout=layout)
    Custom.ran = False
    with pytest.raises(
        pickle.UnpicklingError, match=r"c(/pickled_data)?: .*(Custom|Net).*weights_only=False"
    ):
        flow.load(path)
    assert not Custom.ran
    back = flow.load(path, weights_only=False)["x"]
    assert isinstance(back, (Custom, Net))
    with torch.serialization.safe_globals([Custom, Net]):
        assert type(flow.load(path)["x"]) is type(back)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_opt_out_of_torchs_environment_variables(tmp_path, layout, monkeypatch):
    flow.save({"x": Custom(4)}, tmp_path / "c", layout=layout)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert isinstance(flow.load(tmp_path / "c")["x"], Custom)
    with pytest.raises(pickle.UnpicklingError):
        flow.load(tmp_path / "c", weights_only=True)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        flow.load(tmp_path / "c", weights_only=False)


HOSTILE = {
    "os.system": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0ctouch RANFILE\x85R.",
    "eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x031+1\x85R.",
    "getattr": b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93\x8c\x01a\x8c\x01b\x86R.",
    "dotted": b"\x80\x04\x8c\x05torch\x8c\x0bSize.__new__\x93.",
    "import": b"\x80\x04\x8c\x0boneflow.hub\x8c\x04load\x93\x8c\x01x\x85R.",
    "change a class": b"\x80\x04\x8c\x0bcollections\x8c\x0bOrderedDict\x93N}\x8c\x03get\x8c\x03bad\x73\x86b.",
    "object scalar": (
        b"\x80\x04\x8c\x15numpy.core.multiarray\x8c\x06scalar\x93\x8c\x05numpy\x8c\x05dtype\x93"
        b"\x8c\x01O\x85R\x8c\x01x\x86R."
    ),
    "persistent": b"\x80\x04\x8c\x01xQ.",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("where", ["file", "folder"])
def test_hostile_pickles_are_refused(tmp_path, monkeypatch, name, where):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad"
    if where == "folder":
        path.mkdir()
    (path / "pickled_data" if where == "folder" else path).write_bytes(HOSTILE[name])
    with pytest.raises((pickle.UnpicklingError, RuntimeError), match="bad"):
        flow.load(path)
    assert not (tmp_path / "RANFILE").exists()
    from collections import OrderedDict

    assert OrderedDict.get is dict.get


@pytest.mark.parametrize("name", ["../secret", "/etc", "..", "a/b", ""])
def test_tensor_folders_stay_inside(tmp_path, name):
    from oneflow._files import pickles

    (tmp_path / "c").mkdir()
    layouts.write_tensor(tmp_path / "secret", torch.ones(1))
    (tmp_path / "c" / "pickled_data").write_bytes(pickles.dumps(torch.ones(1), store=lambda tensor: name))
    with pytest.raises(RuntimeError, match="pickled_data: altered"):
        flow.load(tmp_path / "c")


def _make(tmp_path, layout):
    flow.save({"w": torch.arange(100.0), "name": "something"}, tmp_path / "c", layout=layout)
    return tmp_path / "c"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, layout, keep):
    path = _make(tmp_path, layout)
    for file in [f for f in path.rglob("*") if f.name in ("out", "pickled_data", "meta")] or [path]:
        whole = file.read_bytes()
        # a meta file may lack its last newline
        file.write_bytes(whole[: min(int(len(whole) * keep), len(whole) - 2)])
        with pytest.raises(RuntimeError, match=file.name):
            flow.load(path)
        file.write_bytes(whole)
    assert flow.load(path)["w"].sum() == 4950


@pytest.mark.parametrize("layout", LAYOUTS)
def test_altered_values_fail_the_checksum(tmp_path, layout):
    """One flipped bit in the values: our checksum protects the folder and the pickle; torch's zip has one
    that torch does not check.
    """
    path = _make(tmp_path, layout)
    file = path / "tensor_0" / "out" if layout == "folder" else path
    body = bytearray(file.read_bytes())
    at = body.index(torch.arange(40.0, 60.0).numpy().tobytes())
    body[at + 2] ^= 4
    file.write_bytes(body)
    with pytest.raises(RuntimeError, match="altered"):
        flow.load(path)


@pytest.mark.parametrize("layout", ["torch", "pickle"])
def test_an_altered_byte_anywhere(tmp_path, layout):
    """It gives the same values, or an error that names the file: names, sizes, offsets and flags of the
    archive are damaged too.
    """
    path = _make(tmp_path, layout)
    whole = path.read_bytes()
    expected = flow.load(path)
    for at in range(0, len(whole), 5):
        body = bytearray(whole)
        body[at] ^= 0x41
        path.write_bytes(body)
        try:
            actual = flow.load(path)
        except RuntimeError as error:
            assert path.name in str(error), at
        else:
            assert torch.equal(actual["w"], expected["w"]), at


@pytest.mark.parametrize("damage", ["cut", "alter"])
def test_damage_anywhere_in_a_torch_file_of_before_2020(tmp_path, damage):
    """It has no check sums: altered values are read; whatever cannot be read is an error that names
    the file.
    """
    path = tmp_path / "old"
    torch.save({"w": torch.arange(4.0), "name": "something"}, path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    for at in range(0, len(whole), 2):
        path.write_bytes(
            whole[:at] if damage == "cut" else whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]
        )
        try:
            flow.load(path)
        except (RuntimeError, pickle.UnpicklingError) as error:
            assert str(path) in str(error), at
        else:
            assert damage == "alter", at


def test_missing_and_wrong_parts(tmp_path):
    path = _make(tmp_path, "folder")
    (path / "tensor_0" / "crc32").unlink()
    flow.load(path)
    (path / "tensor_0" / "meta").write_text("shape {\n  dim: 99\n}\ndata_type: kFloat\n")
    with pytest.raises(
        RuntimeError, match=r"out: truncated or altered: meta says \[99\] of kFloat, 396 bytes; found 400"
    ):
        flow.load(path)
    (path / "tensor_0" / "meta").write_text("shape { dim: 100 } data_type: kOFRecord")
    with pytest.raises(RuntimeError, match="kOFRecord is none of"):
        flow.load(path)
    (path / "tensor_0" / "meta").write_text("shape { dim: 100 } data_type: kFloat")
    (path / "tensor_0" / "out").unlink()
    with pytest.raises(RuntimeError, match="out: missing"):
        flow.load(path)
    (path / "pickled_data").unlink()
    with pytest.raises(RuntimeError, match="pickled_data: missing; the checkpoint is incomplete"):
        flow.load(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match="empty: not a OneFlow checkpoint"):
        flow.load(tmp_path / "empty")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RuntimeError, match="text: not a file of OneFlow, torch or safetensors"):
        flow.load(tmp_path / "text")


class Bomb:
    """Cannot be pickled."""

    def __reduce__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_failed_save_leaves_the_old_one(tmp_path, layout):
    path = _make(tmp_path, layout)
    before = sorted(str(f) for f in tmp_path.rglob("*"))
    with pytest.raises(ZeroDivisionError):
        flow.save({"w": torch.zeros(100), "bomb": Bomb()}, path, layout=layout)
    assert flow.load(path)["w"].sum() == 4950
    assert sorted(str(f) for f in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_killed_save_leaves_a_whole_checkpoint(tmp_path, layout):
    """Kill the process at each system call that makes a change visible; what is left loads, old or new."""
    script = tmp_path / "kill.py"
    script.write_text(
        textwrap.dedent("""
        import os, signal, sys
        import oneflow as flow, torch
        left = int(sys.argv[3])
        def dying(function):
            def call(*args, **kwargs):
                global left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)
            return call
        for name in ("fsync", "replace", "makedirs", "rmdir", "unlink"):
            setattr(os, name, dying(getattr(os, name)))
        flow.save({"w": torch.full((100,), 7.0), "v": torch.full((3,), 7.0)}, sys.argv[1], layout=sys.argv[2])
    """)
    )
    seen = set()
    for step in (1, 6, 9, 12, 60) if layout == "folder" else (1, 2, 40):
        path = tmp_path / f"s{step}" / "c"
        path.parent.mkdir()
        flow.save({"w": torch.ones(100), "v": torch.ones(3)}, path, layout=layout)
        done = subprocess.run(
            [sys.executable, script, path, layout, str(step)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=seconds(60),
        )
        assert done.returncode in (0, -signal.SIGKILL)
        back = flow.load(path)
        value = back["w"][0].item()
        assert set(back["w"].tolist()) == set(back["v"].tolist()) == {value} and value in (1.0, 7.0)
        seen.add(value)
        if done.returncode == 0:
            assert value == 7.0
            break
    assert seen == {1.0, 7.0}


def test_saving_again_removes_only_its_own_old_tensors(tmp_path):
    path = tmp_path / "c"
    flow.save([torch.ones(1), torch.ones(2)], path, save_as_external_data=True)
    (path / "notes.txt").write_text("mine")
    (path / "tensor_0" / "mine.txt").write_text("mine")
    flow.save(torch.zeros(1), path, save_as_external_data=True)
    assert sorted(f.name for f in path.iterdir()) == ["notes.txt", "pickled_data", "tensor_0", "tensor_2"]
    assert flow.load(path).tolist() == [0.0]


def test_processes_that_save_to_one_folder_wait_for_each_other(tmp_path):
    """Four ranks without global_dst_rank: whichever is last, the checkpoint is whole and holds one rank's
    tensors only.
    """
    code = (
        "import sys, oneflow as flow, torch\n"
        "for _ in range(5): flow.save({'a': torch.full((999,), float(sys.argv[2])), 'b':"
        " torch.full((9,), float(sys.argv[2]))}, sys.argv[1], save_as_external_data=True)"
    )
    path = tmp_path / "c"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, path, str(i)], env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        for i in range(3)
    ]
    assert [p.wait(seconds(60)) for p in running] == [0, 0, 0]
    back = flow.load(path)
    assert len(set(back["a"].tolist()) | set(back["b"].tolist())) == 1
    assert len(list(path.glob("tensor_*"))) == 2


class Runs:
    """Pickles as a call of a function that a file must not choose."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["", "old"])
def test_calls_in_files_are_not_made(tmp_path, layout, options):
    if options and layout != "torch":
        options = {}
    mark = tmp_path / "ran"
    flow.save({"w": torch.ones(2), "x": Runs(os.mkdir, str(mark))}, tmp_path / "c", layout=layout, **options)
    with pytest.raises(pickle.UnpicklingError, match="mkdir.*weights_only=False"):
        flow.load(tmp_path / "c")
    with pytest.raises(pickle.UnpicklingError):
        flow.load(tmp_path / "c", weights_only=True)
    assert not mark.exists()
    flow.load(tmp_path / "c", weights_only=False)
    assert mark.exists()
