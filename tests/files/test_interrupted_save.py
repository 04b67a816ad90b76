"""Failed or killed saves leave the old content intact, for every layout."""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from time_limits import seconds

import oneflow as flow
from oneflow.one_embedding import snapshot

LAYOUTS = ["torch", "folder", "pickle", "embedding"]
SAVE = """
    import os, resource, signal, sys
    import numpy as np, oneflow as flow, torch
    from oneflow.one_embedding import snapshot
    def save(folder, layout, value):
        if layout == "embedding":
            snapshot.write(folder, "c", [(np.arange(300), np.full((300, 4), value, np.float32))], 4)
        else:
            flow.save({"w": torch.full((1200,), value), "v": torch.full((3,), value)}, os.path.join(folder, "c"), layout=layout)
"""  # noqa: E501


def _save(folder, layout, value):
    if layout == "embedding":
        snapshot.write(str(folder), "c", [(np.arange(300), np.full((300, 4), value, np.float32))], 4)
    else:
        flow.save(
            {"w": torch.full((1200,), value), "v": torch.full((3,), value)}, folder / "c", layout=layout
        )


def _value(folder, layout) -> float:
    """The one value that all of the saved content has."""
    if layout == "embedding":
        ((_, rows),) = snapshot.read(str(folder), "c")[1]
        values = set(rows.reshape(-1).tolist())
    else:
        back = flow.load(folder / "c")
        values = set(back["w"].tolist()) | set(back["v"].tolist())
    (value,) = values
    return value


def _run(code, *arguments, before=None):
    script = textwrap.dedent(SAVE) + textwrap.dedent(code)
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=seconds(120),
        preexec_fn=before,
    )


def _obey_permission_bits() -> None:
    """Let permission bits bind root too, from the next exec on: drop the capability that overrides them."""
    drop, dac_override = 24, 1  # PR_CAPBSET_DROP and CAP_DAC_OVERRIDE of Linux
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(drop, dac_override, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "root may not drop CAP_DAC_OVERRIDE; run the test as another user")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_disk_leaves_the_old_file(tmp_path, layout):
    """A file may not grow beyond 2000 bytes: the save raises an OSError that names the file and leaves
    nothing new.
    """
    _save(tmp_path, layout, 1.0)
    before = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    done = _run(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            save(sys.argv[1], sys.argv[2], 7.0)
        except OSError as error:
            print("failed", error)
    """,
        tmp_path,
        layout,
    )
    assert done.stdout.startswith(f"failed [Errno 27] File too large: '{tmp_path}/"), (
        done.stderr + done.stdout
    )
    assert _value(tmp_path, layout) == 1.0
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_only_folder(tmp_path, layout):
    _save(tmp_path, layout, 1.0)
    done = _run(
        """
        for folder, _, _ in os.walk(sys.argv[1]):
            os.chmod(folder, 0o555)
        try:
            save(sys.argv[1], sys.argv[2], 7.0)
        except PermissionError as error:
            print("failed", error.filename)
    """,
        tmp_path,
        layout,
        before=_obey_permission_bits,
    )
    for folder, _, _ in os.walk(tmp_path):
        os.chmod(folder, 0o755)
    assert done.stdout.startswith("failed"), done.stderr
    assert _value(tmp_path, layout) == 1.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_save_leaves_the_old_or_the_new_content(tmp_path, layout):
    """kill -9 before each call that makes a change visible; a later save works and removes what was left."""
    seen = set()
    for step in (1, 2, 4, 7, 10, 14, 60):
        folder = tmp_path / str(step)
        folder.mkdir()
        _save(folder, layout, 1.0)
        done = _run(
            """
            left = int(sys.argv[3])
            def dying(function):
                def call(*arguments, **options):
                    global left
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*arguments, **options)
                return call
            for name in ("fsync", "replace", "rename", "makedirs", "rmdir", "unlink"):
                setattr(os, name, dying(getattr(os, name)))
            save(sys.argv[1], sys.argv[2], 7.0)
        """,
            folder,
            layout,
            step,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        seen.add(_value(folder, layout))
        for leftover in folder.rglob(".*.tmp"):
            os.utime(leftover, (0, 0))  # an hour has passed
        _save(folder, layout, 9.0)
        assert _value(folder, layout) == 9.0
        assert not [p for p in folder.rglob("*") if p.name.endswith((".tmp", ".old"))]
        if done.returncode == 0:
            break
    assert seen == {1.0, 7.0}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_processes_write_one_target(tmp_path, layout):
    code = textwrap.dedent(SAVE) + "for _ in range(8): save(sys.argv[1], sys.argv[2], float(sys.argv[3]))\n"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path, layout, str(value)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for value in (2, 3)
    ]
    assert [process.wait(seconds(120)) for process in running] == [0, 0]
    assert _value(tmp_path, layout) in (2.0, 3.0)
    assert not list(tmp_path.glob(".c.*.tmp"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_follow_the_umask(tmp_path, layout, mask):
    before = os.umask(mask)
    try:
        _save(tmp_path / "new", layout, 1.0)
    finally:
        os.umask(before)
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_a_leftover_of_a_living_save_stays(tmp_path):
    """Only old files that no process has locked are removed."""
    import fcntl

    locked, fresh, old = (tmp_path / f".c.{name}.tmp" for name in ("locked00", "fresh000", "old00000"))
    for path in (locked, fresh, old):
        path.touch()
    for path in (locked, old):
        os.utime(path, (0, 0))
    with open(locked) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _save(tmp_path, "torch", 1.0)
    assert locked.exists() and fresh.exists() and not old.exists()
