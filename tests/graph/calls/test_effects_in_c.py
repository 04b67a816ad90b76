"""Changes that functions in C make outside of Python's objects: each call of a step makes them."""

import contextvars
import ctypes
import gc
import hashlib
import mmap
import operator
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib

import numpy as np
import pytest
import torch
from torch import nn

import oneflow as flow

pytestmark = pytest.mark.eager_calls


class World:
    """The objects that the statements change, anew for each run."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.file = folder / "file"
        self.file.touch()
        self.descriptor = os.open(self.file, os.O_WRONLY)
        self.lock = threading.Lock()
        self.number = ctypes.c_int(0)
        self.memory = mmap.mmap(-1, 8)
        self.objects = np.empty(2, dtype=object)
        self.hash = hashlib.sha256()
        self.packer = zlib.compressobj()
        self.variable = contextvars.ContextVar("variable", default=0)
        self.random_state = random.getstate()
        self.seen = []

    def close(self):
        os.close(self.descriptor)
        self.memory.close()


# statement(world, loss) and question(world): the question also undoes what only one call could do
def write_descriptor(world, loss):
    os.write(world.descriptor, b"a")


def make_folder(world, loss):
    (world.folder / "new").mkdir()


def make_folders(world, loss):
    os.makedirs(world.folder / "new" / "newer", exist_ok=True)


def remove_file(world, loss):
    world.file.unlink()


def rename_file(world, loss):
    os.replace(world.file, world.folder / "new")


def touch_file(world, loss):
    (world.folder / "new").touch()


def save_array(world, loss):
    np.save(world.folder / "new", np.zeros(1))


def save_constant(world, loss):
    torch.save({"rate": 1}, world.folder / "new")


def copy_file(world, loss):
    shutil.copy(world.file, world.folder / "new")


def run_program(world, loss):
    subprocess.run([sys.executable, "-S", "-c", "open('new', 'w')"], cwd=world.folder, check=True)


def run_shell(world, loss):
    os.system(f"touch {world.folder}/new")


def take_or_release_lock(world, loss):
    if not world.lock.locked():
        world.lock.acquire()
    else:
        world.lock.release()


def change_c_number(world, loss):
    world.number.value += 1


def write_memory_map(world, loss):
    world.memory[0:1] = b"a"


def store_tensor_in_object_array(world, loss):
    world.objects[0] = loss.detach()


def store_number_in_object_array(world, loss):
    world.objects[1] = loss.item()


def hash_bytes(world, loss):
    world.hash.update(b"a")


def pack_bytes(world, loss):
    world.packer.compress(b"a")


def set_context_variable(world, loss):
    world.variable.set(1)


def set_python_random_state(world, loss):
    random.setstate(world.random_state)


def stop_collector(world, loss):
    gc.disable()


def set_threshold(world, loss):
    gc.set_threshold(777)


def freeze_objects(world, loss):
    gc.freeze()
    world.seen.append(loss.item())


def set_recursion_limit(world, loss):
    sys.setrecursionlimit(2222)


def set_threads(world, loss):
    torch.set_num_threads(2)


def set_error_state(world, loss):
    np.seterr(divide="ignore")


def handle_signal(world, loss):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def set_mask(world, loss):
    os.umask(0o22)


def set_environment(world, loss):
    os.environ["ONEFLOW_TEST_OF_EFFECTS"] = "1"


def call_by_name(world, loss):
    operator.methodcaller("append", loss.item())(world.seen)


def detect_anomalies(world, loss):
    torch.autograd.set_detect_anomaly(not torch.is_anomaly_enabled())


STATEMENTS = [
    write_descriptor,
    make_folder,
    make_folders,
    remove_file,
    rename_file,
    touch_file,
    save_array,
    save_constant,
    copy_file,
    run_program,
    run_shell,
    take_or_release_lock,
    change_c_number,
    write_memory_map,
    store_tensor_in_object_array,
    store_number_in_object_array,
    hash_bytes,
    pack_bytes,
    set_context_variable,
    set_python_random_state,
    stop_collector,
    set_threshold,
    freeze_objects,
    set_recursion_limit,
    set_threads,
    set_error_state,
    handle_signal,
    set_mask,
    set_environment,
    call_by_name,
    detect_anomalies,
]


def state_of(world):
    """Return all that the statements change, and set back what only a call of the step may change again."""
    files = {path.name: path.stat().st_size for path in sorted(world.folder.iterdir())}
    state = (
        files,
        world.lock.locked(),
        world.number.value,
        world.memory[:1],
        [str(value) for value in world.objects],
        world.hash.hexdigest(),
        world.packer.copy().flush(),
        world.variable.get(),
        random.random(),
        gc.isenabled(),
        gc.get_threshold(),
        list(world.seen),
        sys.getrecursionlimit(),
        torch.get_num_threads(),
        np.geterr()["divide"],
        signal.getsignal(signal.SIGUSR1),
        os.umask(0o77),
        os.environ.get("ONEFLOW_TEST_OF_EFFECTS"),
        torch.is_anomaly_enabled(),
    )
    for path in world.folder.iterdir():
        if path.name != "file":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    world.file.touch()
    world.memory[0:1] = b"\0"
    reset_process()
    return state


def reset_process():
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    sys.setrecursionlimit(3000)
    torch.set_num_threads(1)
    np.seterr(divide="warn")
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.environ.pop("ONEFLOW_TEST_OF_EFFECTS", None)


@pytest.fixture
def restored_process():
    before = gc.get_threshold(), sys.getrecursionlimit(), torch.get_num_threads(), os.umask(0o77)
    yield
    reset_process()
    gc.set_threshold(*before[0])
    sys.setrecursionlimit(before[1])
    torch.set_num_threads(before[2])
    os.umask(before[3])
    torch.autograd.set_detect_anomaly(False)


def states_of_calls(folder, statement, compiled):
    torch.manual_seed(0)
    random.seed(0)
    reset_process()
    torch.autograd.set_detect_anomaly(False)
    model, world = nn.Linear(3, 1), World(folder)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        statement(world, loss)
        return loss.detach()

    run = flow.compile_step(step, backend="aten") if compiled else step
    states = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a call may run in eager mode
            for _ in range(4):
                loss = run(torch.randn(2, 3, generator=torch.Generator().manual_seed(1)))
                states.append((loss.item(), state_of(world), model.weight.tolist()))
    finally:
        world.close()
    return states


@pytest.mark.usefixtures("restored_process")
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.__name__)
def test_each_call_makes_the_change(tmp_path, statement):
    expected = states_of_calls(tmp_path / "eager", statement, compiled=False)
    assert states_of_calls(tmp_path / "step", statement, compiled=True) == expected


@pytest.mark.usefixtures("restored_process")
def test_a_step_keeps_its_objects_after_the_caller_froze_all():
    """The collector does not list frozen objects, and a capture asks it who holds what."""
    model, kept, sums = nn.Linear(3, 1), [], {}

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        kept.append(loss.detach())
        if len(kept) > 2:
            kept.pop(0)
        for name in ("a", "b"):
            sums[name] = sums.get(name, 0.0) + loss.item()
        return torch.stack(kept).mean()

    gc.freeze()
    run = flow.compile_step(step, backend="aten")
    losses = []
    for k in range(4):
        x = torch.full((1, 3), float(k))
        losses.append(model(x).square().mean().item())
        run(x)
        assert [loss.item() for loss in kept] == losses[-2:]
        assert sums == dict.fromkeys("ab", sum(losses))


def test_a_step_waits_in_each_call():
    model, waits = nn.Linear(1, 1), []

    def step(x):
        model(x).sum().backward()
        time.sleep(0.01)

    run = flow.compile_step(step, backend="aten")
    for _ in range(3):
        begun = time.perf_counter()
        run(torch.ones(1, 1))
        waits.append(time.perf_counter() - begun)
    assert min(waits) >= 0.01


def test_a_list_that_a_second_capture_has_replaced_is_there_again(tmp_path):
    """The first capture of a step that steps two optimizers ends at the second one."""
    model, head, log = nn.Linear(2, 2), nn.Linear(2, 1), {"kept": []}
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, head)]

    def step(x):
        head(model(x)).sum().backward()
        log["kept"].append({"w": model.weight.detach().clone()})
        log["kept"] = log["kept"][-2:]
        for optimizer in optimizers:
            optimizer.step()

    run = flow.compile_step(step, backend="aten")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a call may run in eager mode
        for count in (1, 2, 2):
            before = model.weight.detach().clone()
            run(torch.ones(1, 2))
            assert len(log["kept"]) == count
            assert torch.equal(log["kept"][-1]["w"], before)
