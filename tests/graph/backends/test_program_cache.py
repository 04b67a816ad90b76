"""The disk cache of compiled regions: cache hits, and files that it refuses to load."""

import concurrent.futures
import errno
import json
import multiprocessing
import os
import subprocess
import sys
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
import torch
from time_limits import seconds

import oneflow as flow
import oneflow.nn as nn
from oneflow import cache
from oneflow._graph.compile import program_cache
from oneflow._graph.compile.inductor import compiler
from oneflow._graph.compile.program_cache import region_record
from oneflow._graph.compile.program_cache.environment import _override_of
from oneflow._graph.compile.program_cache.store import Store, Unsafe, default_folder, default_store
from oneflow._graph.config import Config

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of this test."""
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "100")
    monkeypatch.setattr("oneflow._graph.compile.program_cache.store._told", set())
    return tmp_path / "programs"


def scaled(factor=2.0, offset=(1.0, 2.0, 3.0)):
    """A graph with a scalar and a constant tensor."""

    class Scaled(nn.Graph):
        def build(self, x):
            return (x * factor).sin() + torch.tensor(offset)

    graph = Scaled()
    graph.config.set_backend("inductor")
    return graph


def training():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    graph = Step()
    graph.config.set_backend("inductor")
    return graph, model


def request(graph, x):
    graph.config.set_backend("aten")
    program = graph._engine.compile(x)
    return compiler.plan_for(program, Config()).request


def test_the_second_graph_runs_the_binary_of_the_first_one(folder, compilations):
    x = torch.randn(8, 4)
    results = []
    for _ in range(2):
        graph, model = training()
        losses = [graph(x) for _ in range(3)]
        results.append([*losses, *model.state_dict().values()])
    assert len(compilations) == 1 and len(Store(folder).entries()) == 1
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_constants_are_part_of_the_key_and_of_the_entry(folder, compilations):
    x = torch.zeros(3)
    for offset in ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)):
        assert torch.equal(scaled(offset=offset)(x), torch.tensor(offset))
    assert len(compilations) == 2


def test_a_large_constant_is_read_from_the_entry(folder, compilations):
    offset = tuple(float(i) for i in range(40))
    for _ in range(2):
        assert torch.equal(scaled(offset=offset)(torch.zeros(40)), torch.tensor(offset))
    assert len(compilations) == 1


def test_what_decides_the_machine_code_decides_the_key(monkeypatch):
    x, keys = torch.zeros(3), set()
    keys.add(request(scaled(), x).keys)
    assert request(scaled(), x).keys in keys
    for other in (scaled(factor=3.0), scaled(factor=2), scaled(offset=(1.0, 2.0, 4.0))):
        keys.add(request(other, x).keys)
    keys.add(request(scaled(), torch.zeros(1, 3)).keys)
    keys.add(request(scaled(), torch.zeros(3, dtype=torch.float64)).keys)
    keys.add(request(scaled(), torch.zeros(6)[::2]).keys)
    with monkeypatch.context() as patch:
        patch.setenv("ATEN_CPU_CAPABILITY", "default")
        keys.add(request(scaled(), x).keys)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 77)
        keys.add(request(scaled(), x).keys)
    with monkeypatch.context() as patch:
        patch.setattr(program_cache.environment, "versions", lambda: {"torch": "another"}, raising=False)
        patch.setitem(program_cache.environment.__globals__, "versions", lambda: {"torch": "another"})
        keys.add(request(scaled(), x).keys)
    import torch._inductor.config as inductor_config

    with inductor_config.patch(max_autotune=True):
        keys.add(request(scaled(), x).keys)
    assert len(keys) == 11 and request(scaled(), x).keys in keys


def test_a_region_is_rebuilt_from_its_record():
    class Mixed(nn.Graph):
        def build(self, x):
            a, b = x.split([1, 3])
            mask = torch.full((4,), float("-inf"), dtype=torch.float64)
            return (
                torch.cat([a, b]).to(torch.float64) + mask,
                x.mean(dim=[0], dtype=torch.float64),
                torch.tensor([[1, 2], [3, 4]]).t() * 2,
            )

    first = request(Mixed(), torch.zeros(4))
    region, infos, options = region_record.module_of(json.loads(json.dumps(first.record)))
    assert program_cache.request_for(region, infos, options).keys == first.keys


@pytest.mark.parametrize(
    "damage",
    [
        "library cut",
        "library altered",
        "library missing",
        "record cut",
        "record of another key",
        "record of a list",
        "record nested deeply",
    ],
)
def test_a_damaged_entry_is_compiled_again(folder, compilations, damage):
    x, want = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(scaled()(x), want)
    (entry,) = Store(folder).entries()
    library, record = entry.library, folder / f"{entry.key}.json"
    if damage == "library cut":
        library.write_bytes(library.read_bytes()[:1000])
    elif damage == "library altered":
        library.write_bytes(library.read_bytes()[:-1] + b"\x01")
    elif damage == "library missing":
        library.unlink()
    elif damage == "record cut":
        record.write_text(record.read_text()[:50])
    elif damage == "record of another key":
        record.write_text(json.dumps({**entry.record, "key": "0" * 64}))
    else:
        record.write_text("[1]" if damage == "record of a list" else "[" * 100_000)
    assert torch.equal(scaled()(x), want) and len(compilations) == 2
    assert torch.equal(scaled()(x), want) and len(compilations) == 2, "the new entry serves"


@pytest.mark.parametrize("target", ["folder", "library", "record"])
def test_what_others_may_write_is_not_loaded(folder, compilations, target):
    x, want = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
    scaled()(x)
    (entry,) = Store(folder).entries()
    path = {"folder": folder, "library": entry.library, "record": folder / f"{entry.key}.json"}[target]
    os.chmod(path, 0o777)
    with pytest.warns(UserWarning, match="others may write it; run chmod go-w"):
        assert torch.equal(scaled()(x), want)
    assert len(compilations) == 2


def test_a_link_in_place_of_a_library_is_not_loaded(folder, compilations, tmp_path):
    scaled()(torch.zeros(3))
    (entry,) = Store(folder).entries()
    (tmp_path / "elsewhere.so").write_bytes(entry.library.read_bytes())
    entry.library.unlink()
    entry.library.symlink_to(tmp_path / "elsewhere.so")
    scaled()(torch.zeros(3))
    assert len(compilations) == 2


def test_a_folder_below_one_that_others_may_write_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chmod(shared, 0o777)
    with pytest.raises(Unsafe, match="other users may replace .*mode 777; set ONEFLOW_CACHE_DIR"):
        Store(shared / "programs")


def test_size_0_switches_the_cache_off(folder, compilations, monkeypatch):
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "0")
    scaled()(torch.zeros(3)), scaled()(torch.zeros(3))
    assert len(compilations) == 2 and not folder.exists()


def test_the_entries_that_were_not_used_for_the_longest_time_are_removed(folder, monkeypatch):
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "1")
    store = Store(folder)
    keys = [f"{i:064x}" for i in range(5)]
    for i, key in enumerate(keys[:4]):
        store.put(key, {}, bytes([i]) * 250_000)
        os.utime(folder / f"{key}.json", (i, i))
    assert store.find(keys[0]) is not None, "the oldest one is used once more"
    store.put(keys[4], {}, b"\4" * 250_000)
    assert [store.find(k) is not None for k in keys] == [True, False, False, True, True]
    assert store.size() <= 1 << 20


def test_threads_may_write_and_read_one_entry_at_once(folder):
    key = "a" * 64

    def work(i):
        store = Store(folder)
        for n in range(10):
            store.put(key, {"by": i}, bytes([i]) * 10_000)
            entry = store.find(key)
            assert entry is None or entry.library.exists()
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert Store(folder).find(key) is not None and not list(folder.glob("*.tmp"))


def _write_and_read(folder, number):
    store = Store(folder)
    for n in range(40):
        key = f"{n % 8:064x}"
        store.put(key, {"by": number}, bytes([n % 8]) * 50_000)
        entry = store.find(key)
        assert entry is None or entry.record["bytes"] == 50_000


def test_processes_may_write_read_and_evict_at_once(folder, monkeypatch):
    monkeypatch.setattr("oneflow._graph.compile.program_cache.store.quota", lambda: 200_000)
    context = multiprocessing.get_context("fork")  # no import of torch in each
    workers = [context.Process(target=_write_and_read, args=(folder, i)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds(60))
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = Store(folder)
    assert all(store.find(entry.key) for entry in store.entries()) and not list(folder.glob("*.tmp"))
    assert store.size() < 500_000, "the last writer may leave what others wrote meanwhile"


def test_a_full_disk_only_costs_the_entry(folder, compilations, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("oneflow._graph.compile.program_cache.store.os.fsync", full)
    assert torch.equal(scaled()(torch.zeros(3)), torch.tensor([1.0, 2.0, 3.0]))
    assert list(folder.iterdir()) == [], "no temporary file is left"
    monkeypatch.undo()
    assert len(compilations) == 1


@pytest.fixture
def read_only(monkeypatch):
    """Let every change of a folder fail, as on a file system that is mounted read-only."""

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("unlink", "rename", "utime"):
        monkeypatch.setattr(f"oneflow._graph.compile.program_cache.store.os.{name}", refuse)
    monkeypatch.setattr("oneflow._graph.compile.program_cache.store.secrets.token_hex", refuse)


def test_entries_of_a_read_only_folder_serve(folder, request):
    store, key = Store(folder), "a" * 64
    store.put(key, {"program": "P"}, b"code")
    request.getfixturevalue("read_only")
    assert store.find(key).record["program"] == "P"
    with pytest.raises(OSError, match="Read-only"):
        store.put(key, {}, b"other")


def test_a_damaged_entry_of_a_read_only_folder_is_passed_over(folder, request):
    store = Store(folder)
    keys = ["a" * 64, "b" * 64]
    for key in keys:
        store.put(key, {}, key.encode())
    (folder / f"{keys[0]}.json").write_text("{")
    store.find(keys[1]).library.write_bytes(b"altered")
    request.getfixturevalue("read_only")
    assert [store.find(key) for key in keys] == [None, None]


def test_the_folder_of_another_user_is_refused_with_one_warning(folder, monkeypatch):
    Store(folder)
    uid = os.getuid()
    monkeypatch.setattr("oneflow._graph.compile.program_cache.store.os.getuid", lambda: uid + 1)
    with pytest.warns(UserWarning, match=f"not kept on disk: .* belongs to user {uid}") as warned:
        assert default_store() is None and default_store() is None
    assert len(warned) == 1


def test_without_a_home_folder_programs_are_not_kept(monkeypatch, folder, capsys):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ONEFLOW_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("oneflow._graph.compile.program_cache.store.Path.home", no_home)
    with pytest.warns(UserWarning, match="not kept on disk: Could not determine home directory"):
        assert default_store() is None
    assert cache.main(["--list"]) == 1 and "the cache is not used" in capsys.readouterr().err


def test_without_the_variable_the_folder_is_in_the_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("ONEFLOW_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "oneflow" / "programs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_folder() == tmp_path / "home" / ".cache" / "oneflow" / "programs"


def test_an_operator_of_the_user_is_not_cached(folder, compilations):
    @torch.library.custom_op("test_program_cache::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))

    class Twice(nn.Graph):
        def build(self, x):
            return torch.ops.test_program_cache.twice(x) + 1

    graph = Twice()
    graph.config.set_backend("inductor")
    assert graph(torch.ones(2)).tolist() == [3.0, 3.0] and not folder.exists()


SECOND_PROCESS = """
import sys, torch, oneflow as flow
class Masked(flow.nn.Graph):
    def build(self, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        return packed.data * 2
g = Masked()
g.config.set_backend("inductor")
print(g(torch.arange(12.0).view(3, 2, 2), torch.tensor([3, 2])).tolist())
print("torch._inductor.compile_fx" in sys.modules)
"""


def test_a_second_process_imports_no_compiler(folder):
    outputs = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SECOND_PROCESS], capture_output=True, text=True, check=True
        )
        outputs.append(run.stdout.splitlines())
    assert outputs[0][0] == outputs[1][0] and [o[1] for o in outputs] == ["True", "False"]


def test_the_command_lists_and_clears(folder, capsys):
    assert cache.main(["--list"]) == 0 and "does not exist yet" in capsys.readouterr().out
    scaled()(torch.zeros(3))
    assert cache.main(["--list"]) == 0
    line, total = capsys.readouterr().out.splitlines()
    assert "Scaled_" in line and "operators" in line and f"{folder}: " in total and "of 100 MiB" in total
    (folder / "notes.txt").write_text("of the user")
    assert cache.main(["--clear"]) == 0 and "removed 1 compiled regions" in capsys.readouterr().out
    assert [p.name for p in folder.iterdir()] == ["notes.txt"]
    os.chmod(folder, 0o777)
    assert cache.main(["--clear"]) == 1 and "chmod go-w" in capsys.readouterr().err


def test_assigned_options_of_inductor_are_read_from_every_torch():
    """torch 2.13 keeps an assigned value in a context variable, 2.11 keeps the value itself."""
    variable = ContextVar("option", default="unset")
    variable.set("assigned")
    assert _override_of(SimpleNamespace(user_override=variable)) == "assigned"
    assert _override_of(SimpleNamespace(user_override="assigned")) == "assigned"
