"""Saved graphs whose files are old, altered or damaged: run or refused, never executed."""

import json

import pytest
import torch
from deploy_cases import Infer, Net, data

import oneflow as flow
import oneflow.nn as nn
from oneflow._graph.saved.package import PackageError


def test_an_older_file_runs_its_operators(saved):
    def older(document):
        document["format"] = 2
        for key in ("recurrent", "unknown_sizes", "backend", "others", "guard"):
            del document[key]
        for record in document["nodes"] + document["slots"]:
            for key in ("phase", "tensor", "stride"):
                record.pop(key, None)

    want = flow.load_graph(saved)(data()[0])
    edit(saved, older)
    loaded = flow.load_graph(saved)
    assert loaded.backend == "aten" and torch.equal(loaded(data()[0])["logits"], want["logits"])
    with pytest.raises(PackageError, match="no shapes for the backend 'inductor'"):
        flow.load_graph(saved, backend="inductor")


def run_once():
    graph = Infer(Net().eval())
    graph(data()[0])
    return graph


@pytest.fixture
def saved(tmp_path):
    graph = run_once()
    graph.save(tmp_path / "g")
    return tmp_path / "g"


def edit(folder, change):
    document = json.loads((folder / "program.json").read_text())
    change(document)
    (folder / "program.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    "what, change, message",
    [
        (
            "foreign operator",
            lambda d: next(n for n in d["nodes"] if n["op"] == "call").update(target="os::system.default"),
            "not allowed",
        ),
        (
            "file operator",
            lambda d: next(n for n in d["nodes"] if n["op"] == "call").update(
                target="aten::from_file.default"
            ),
            "not allowed",
        ),
        (
            "unknown operator",
            lambda d: next(n for n in d["nodes"] if n["op"] == "call").update(target="aten::nothing.default"),
            "no operator",
        ),
        (
            "python function",
            lambda d: next(n for n in d["nodes"] if n["op"] == "call").update(target="operator.attrgetter"),
            "not allowed",
        ),
        ("format", lambda d: d.update(format=99), "format"),
        (
            "shape",
            lambda d: next(s for s in d["slots"] if s["role"] == "param").update(shape=[1, 1]),
            "needs",
        ),
        (
            "strides",
            lambda d: next(s for s in d["slots"] if s["role"] == "param").update(stride=[1, 1]),
            "strides",
        ),
        (
            "missing tensor",
            lambda d: next(s for s in d["slots"] if s["role"] == "param").update(tensor="other"),
            "damaged",
        ),
        ("lost node", lambda d: d["nodes"].pop(len(d["nodes"]) // 2), "damaged"),
    ],
)
def test_altered_files_are_refused(saved, what, change, message):
    edit(saved, change)
    with pytest.raises(PackageError, match=message) as error:
        flow.load_graph(saved)
    assert "program.json" in str(error.value)


def test_damaged_files_are_refused(saved):
    with pytest.raises(PackageError, match="missing"):
        flow.load_graph(saved / "nowhere")
    tensors = saved / "tensors.pt"
    if not torch.cuda.is_available():
        with pytest.raises(PackageError, match="there is no CUDA device"):
            flow.load_graph(saved, map_location="cuda")
    with pytest.raises(PackageError, match="a graph is saved into a folder"):
        nn.Graph.save(run_once(), tensors)
    tensors.write_bytes(tensors.read_bytes()[: tensors.stat().st_size // 2])
    with pytest.raises(PackageError, match="tensors.pt"):
        flow.load_graph(saved)
    tensors.write_bytes(b"")
    with pytest.raises(PackageError, match="tensors.pt"):
        flow.load_graph(saved)
    with pytest.raises(PackageError, match="tensors.pt is no folder of a graph"):
        flow.load_graph(tensors)
    for text in ("{ not json", "[" * 100000):
        (saved / "program.json").write_text(text)
        with pytest.raises(PackageError, match="damaged"):
            flow.load_graph(saved)


def test_a_changed_byte_of_a_weight_is_found(tmp_path):
    graph = run_once()
    torch.serialization.set_crc32_options(False)
    try:
        graph.save(tmp_path / "g")
    finally:
        torch.serialization.set_crc32_options(True)
    flow.load_graph(tmp_path / "g")
    tensors = tmp_path / "g" / "tensors.pt"
    weight = graph.model.to(nn.Module).state_dict()["body.0.weight"].numpy().tobytes()
    written = tensors.read_bytes()
    assert written.count(weight) == 1
    tensors.write_bytes(written.replace(weight, weight[:-1] + bytes([weight[-1] ^ 1])))
    with pytest.raises(PackageError, match="tensors.pt.*damaged"):
        flow.load_graph(tmp_path / "g")


def test_a_pickle_that_would_run_code_is_refused(saved, tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (saved / "tensors.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(PackageError, match="tensors.pt"):
        flow.load_graph(saved)
    assert not (tmp_path / "ran").exists()
