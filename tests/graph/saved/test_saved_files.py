"""The files of saved graphs: modes, interrupted and concurrent saves, full disks, structures, and kernels in
a fresh process.
"""

import enum
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections import OrderedDict, defaultdict, deque

import pytest
import torch
import torch.utils._pytree as pytree

import oneflow as flow
import oneflow.nn as nn
from oneflow._graph.saved.package import PackageError
from oneflow._kernels import _ext


class Scaled(nn.Graph):
    def __init__(self, factor=1.0, size=3):
        super().__init__()
        self.weight = nn.Linear(size, size, bias=False)
        with torch.no_grad():
            self.weight.to(nn.Module).weight.copy_(torch.eye(size) * factor)
        self.config.set_backend("aten")

    def build(self, x):
        return self.weight(x)


def graph_of(factor, size=3):
    graph = Scaled(factor, size)
    graph(torch.ones(1, size))
    return graph


def factor_of(folder, size=3):
    return flow.load_graph(folder)(torch.ones(1, size))[0, 0].item()


def python(code, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# --------------------------------------------------------------------------- modes and content of the folder
@pytest.mark.parametrize(
    "mask, folder_mode, file_mode", [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600), (0o002, 0o775, 0o664)]
)
def test_modes_follow_the_umask(tmp_path, mask, folder_mode, file_mode):
    graph, before = graph_of(2.0), os.umask(mask)
    try:
        graph.save(tmp_path / "g")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "g").st_mode) == folder_mode
    assert {stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "g").iterdir()} == {file_mode}


def test_saving_again_keeps_the_mode_and_other_files(tmp_path):
    graph_of(2.0).save(tmp_path / "g")
    os.chmod(tmp_path / "g", 0o750)
    (tmp_path / "g" / "README").write_text("mine")
    graph_of(3.0).save(tmp_path / "g")
    assert (
        stat.S_IMODE(os.stat(tmp_path / "g").st_mode) == 0o750
        and (tmp_path / "g" / "README").read_text() == "mine"
    )
    assert factor_of(tmp_path / "g") == 3.0 and len(list((tmp_path / "g").iterdir())) == 3
    graph_of(4.0).save(tmp_path / "g")
    assert factor_of(tmp_path / "g") == 4.0 and len(list((tmp_path / "g").iterdir())) == 3


def test_equal_graphs_have_equal_files(tmp_path):
    graph = graph_of(2.0)
    for name in ("a", "b"):
        graph.save(tmp_path / name)
    for name in ("program.json", "tensors.pt"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_link_to_the_folder_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    graph_of(2.0).save(tmp_path / "link")
    assert factor_of(tmp_path / "link") == factor_of(tmp_path / "real") == 2.0


def test_the_cache_of_hugging_face_links_into_its_blobs(tmp_path):
    graph_of(2.0).save(tmp_path / "plain")
    blobs, snapshot = tmp_path / "model" / "blobs", tmp_path / "model" / "snapshots" / "main" / "net"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate((tmp_path / "plain").iterdir()):
        os.rename(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../../blobs/{number}")
    assert factor_of(snapshot) == 2.0


def test_a_named_pipe_is_refused(tmp_path):
    graph_of(2.0).save(tmp_path / "g")
    os.unlink(tmp_path / "g" / "tensors.pt")
    os.mkfifo(tmp_path / "g" / "tensors.pt")
    with pytest.raises(PackageError, match="no ordinary file"):
        flow.load_graph(tmp_path / "g")


# --------------------------------------------------------------------------- saves that do not come to an end
def test_a_failed_save_keeps_the_old_graph(tmp_path, monkeypatch):
    from oneflow._graph.saved import writer

    graph_of(2.0).save(tmp_path / "g")
    monkeypatch.setattr(writer, "write_tensors", lambda tensors, file: (file.write(b"half"), 1 / 0))
    for folder in ("g", "new"):
        with pytest.raises(ZeroDivisionError):
            graph_of(3.0).save(tmp_path / folder)
    assert (
        sorted(f.name for f in (tmp_path / "g").iterdir()) == ["program.json", "tensors.pt"]
        and factor_of(tmp_path / "g") == 2.0
    )
    assert not (tmp_path / "new").exists()


SAVE_FOR_EVER = """
    import sys
    sys.path.insert(0, {here!r})
    from test_saved_files import graph_of
    graphs = [graph_of(float(f), 300) for f in {factors}]
    print("ready", flush=True)
    for i in range({rounds}):
        graphs[i % len(graphs)].save({folder!r})
        print("saved", flush=True)
"""


def saver(folder, factors, rounds=10**9):
    process = python(
        SAVE_FOR_EVER.format(
            here=os.path.dirname(__file__), folder=str(folder), factors=factors, rounds=rounds
        )
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    return process


def test_a_killed_save_leaves_a_whole_graph(tmp_path):
    graph_of(1.0, 300).save(tmp_path / "g")
    process = saver(tmp_path / "g", (2, 3))
    assert [process.stdout.readline() for _ in range(5)] == ["saved\n"] * 5
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert factor_of(tmp_path / "g", 300) in (1.0, 2.0, 3.0)
    (tmp_path / "g" / ".tensors.pt-00000000.tmp").write_bytes(b"half")
    (tmp_path / "g" / "tensors-0123abcd.pt").write_bytes(b"never named")
    graph_of(4.0, 300).save(tmp_path / "g")
    assert factor_of(tmp_path / "g", 300) == 4.0 and len(list((tmp_path / "g").iterdir())) == 2
    assert [f.name for f in tmp_path.iterdir()] == ["g"]


def test_a_first_save_that_was_killed_can_be_repeated(tmp_path):
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / ".tensors.pt-00000000.tmp").write_bytes(b"half")
    with pytest.raises(PackageError, match=r"no graph in .*program\.json is missing"):
        flow.load_graph(tmp_path / "g")
    graph_of(4.0).save(tmp_path / "g")
    assert factor_of(tmp_path / "g") == 4.0 and len(list((tmp_path / "g").iterdir())) == 2


def test_two_processes_save_into_one_folder_while_a_third_reads(tmp_path):
    graph_of(1.0, 300).save(tmp_path / "g")
    savers = [saver(tmp_path / "g", factors, rounds=30) for factors in ((2, 3), (4, 5))]
    while any(s.poll() is None for s in savers):
        assert factor_of(tmp_path / "g", 300) in (1.0, 2.0, 3.0, 4.0, 5.0)
    assert [s.returncode for s in savers] == [0, 0], [s.stderr.read() for s in savers]
    assert len(list((tmp_path / "g").iterdir())) == 2


def test_a_full_disk_keeps_the_old_graph(tmp_path):
    graph_of(1.0, 300).save(tmp_path / "g")
    code = f"""
        import resource, signal, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_saved_files import graph_of
        graph = graph_of(2.0, 300)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for folder in {[str(tmp_path / "g"), str(tmp_path / "new")]!r}:
            try:
                graph.save(folder)
            except OSError as error:
                print(error)
    """
    out, err = python(code).communicate()
    for line, folder in zip(out.splitlines(), ("g", "new"), strict=True):
        assert line.startswith(f"[Errno 27] File too large: '{tmp_path / folder}/"), out + err
    assert (
        factor_of(tmp_path / "g", 300) == 1.0
        and [f.name for f in tmp_path.iterdir()] == ["g"]
        and len(list((tmp_path / "g").iterdir())) == 2
    )


# --------------------------------------------------------------------------- structures
class Color(enum.Enum):
    RED = 1


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


pytree.register_pytree_node(
    Pair,
    lambda p: ([p.left, p.right], None),
    lambda values, _: Pair(*values),
    serialized_type_name="tests.Pair",
)


STRUCTURES = {
    "dict": lambda x: {"a": x, 3: [x, (x,)], None: x, True: {}},
    "ordered": lambda x: OrderedDict(b=x, a=x + 1),
    "deque": lambda x: deque([x, x + 1], maxlen=5),
    "defaultdict": lambda x: defaultdict(list, a=x),
    "defaultdict_of_nothing": lambda x: defaultdict(None, a=x),
    "tuple_keys": lambda x: {("a", 1): x, ("b", (2, Color.RED)): x},
    "enum_keys": lambda x: {Color.RED: x},
    "registered": lambda x: Pair(x, x + 1),
    "size": lambda x: [x.shape, x],
    "max": lambda x: tuple(torch.max(x, 0)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_are_kept(tmp_path, name):
    make = STRUCTURES[name]

    @nn.Graph.trace
    def both(x, tree):
        return pytree.tree_map(lambda leaf: leaf * 2 if isinstance(leaf, torch.Tensor) else leaf, tree), make(
            x
        )

    both.config.set_backend("aten")
    x = torch.arange(4.0)
    want = both(x, make(x))
    both.save(tmp_path / "g")
    actual = flow.load_graph(tmp_path / "g")(x, make(x))
    (a, spec), (b, other) = pytree.tree_flatten(want), pytree.tree_flatten(actual)
    assert spec == other and all(
        torch.equal(torch.as_tensor(u), torch.as_tensor(v)) for u, v in zip(a, b, strict=True)
    )


def test_a_factory_of_the_users_is_refused_when_it_is_saved(tmp_path):
    @nn.Graph.trace
    def counted(x):
        return defaultdict(Color, a=x)

    counted(torch.ones(2))
    with pytest.raises(PackageError, match="a defaultdict of .*cannot be stored"):
        counted.save(tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_an_enum_is_not_imported(tmp_path):
    @nn.Graph.trace
    def named(x):
        return {Color.RED: x}

    named(torch.ones(2))
    named.save(tmp_path / "g")
    out, err = python(f"import oneflow as flow\nflow.load_graph({str(tmp_path / 'g')!r})").communicate()
    assert "PackageError" in err and "is not imported; import the module" in err


# --------------------------------------------------------------------------- kernels
@pytest.mark.skipif(_ext.status() != "loaded", reason="needs the kernel library oneflow/_ext.so")
def test_kernels_are_registered_in_a_fresh_process(tmp_path):
    @nn.Graph.trace
    def biased(x, bias):
        return torch.ops.oneflow.bias_gelu(x, bias, 1)

    x, bias = torch.linspace(-1, 1, 8).reshape(2, 4), torch.ones(4)
    want = biased(x, bias)
    biased.save(tmp_path / "g")
    assert "oneflow::bias_gelu" in (tmp_path / "g" / "program.json").read_text()
    code = f"""
        import oneflow as flow, torch
        print(flow.load_graph({str(tmp_path / "g")!r})(torch.linspace(-1, 1, 8).reshape(2, 4), torch.ones(4)).flatten().tolist())
    """
    out, err = python(code).communicate()
    assert out and json.loads(out) == want.flatten().tolist(), err
