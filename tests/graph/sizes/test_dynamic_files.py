"""Programs for many argument sizes, saved and exported."""

import importlib

import pytest
import torch
from dynamic_cases import squared
from dynamic_graphs import Inference, Training, adamw
from torch import nn

import oneflow as flow


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, scale):
        n = x.shape[1]
        return self.second(self.first(x).view(-1, 8).relu()).view(x.shape[0], n, 3) * scale / n, n


def called(graph, lengths=(5, 7, 6)):
    for n in lengths:
        graph(torch.randn(2, n, 8), torch.ones(n, 1))
    return graph


def test_a_saved_program_serves_all_sizes(tmp_path):
    torch.manual_seed(0)
    model = Encoder()
    graph = Inference(model)
    graph.model = model
    called(graph).save(tmp_path / "g")
    loaded = flow.load_graph(tmp_path / "g")
    for n in (4, 9, 5):
        for x in (torch.randn(2, n, 8), torch.randn(n, 2, 8).transpose(0, 1)):
            out, length = loaded(x, torch.full((n, 1), 2.0))
            assert torch.equal(out, model(x, torch.full((n, 1), 2.0))[0]) and length == n
    with pytest.raises(TypeError, match=r"saved for the calls .*s\d+ >= 2.*found .*\[2, 1, 8\]"):
        loaded(torch.randn(2, 1, 8), torch.ones(1, 1))
    with pytest.raises(TypeError, match="saved for the calls"):
        loaded(torch.randn(2, 6, 8), torch.ones(5, 1))
    loaded.save(tmp_path / "again")
    assert torch.equal(
        flow.load_graph(tmp_path / "again")(x, torch.ones(5, 1))[0], model(x, torch.ones(5, 1))[0]
    )


def test_a_saved_training_program_serves_all_sizes(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(8, 3)
    graph = Training(model, lambda m, x: squared(m(x)), adamw(model.parameters()))
    for n in (4, 6, 5):
        graph(torch.randn(n, 8))
    graph.save(tmp_path / "g")
    loaded = flow.load_graph(tmp_path / "g")
    for n in (9, 3, 4):
        x = torch.randn(n, 8)
        assert torch.equal(loaded(x), graph(x))


@pytest.mark.parametrize("change, told", [
    (lambda d: d["conditions"].append("__import__('os').system('true')"), "arithmetic on the symbols"),
    (lambda d: d["conditions"].append("9 ** 9 ** 9 > s1"), "arithmetic on the symbols"),
    (lambda d: d["conditions"].append("unknown > 2"), "arithmetic on the symbols"),
    (lambda d: d["symbols"].pop(), "the symbol"),
    (lambda d: d["symbols"].__setitem__(0, ["a", 0, 1, 7]), "a symbol such as s0"),
    (lambda d: d["symbols"][0].__setitem__(2, 5), "dimension"),
    (lambda d: d["symbols"][0].__setitem__(1, 9), "dimension"),
    (lambda d: d["strides"][0][1].pop(), "a stride for each dimension"),
    (lambda d: d["strides"].clear(), "dimensions of arguments"),
    (lambda d: d.pop("strides"), "missing"),
])  # fmt: skip
def test_damaged_guards_in_a_file_are_refused(tmp_path, change, told):
    import json

    from oneflow._errors import OneFlowError
    from oneflow._graph.saved.writer import sealed

    called(Inference(Encoder())).save(tmp_path / "g")
    path = tmp_path / "g" / "program.json"
    document = json.loads(path.read_text())
    program = next(p for p in (document, *document.get("others", ())) if p.get("dimensions"))
    change(program["dimensions"])
    path.write_text(json.dumps(sealed(document)))
    with pytest.raises(OneFlowError, match=told):
        flow.load_graph(tmp_path / "g")


def test_an_exported_program_takes_all_sizes(tmp_path):
    model = Encoder()
    graph = Inference(lambda x, scale: model(x, scale)[0])
    graph.model = model
    called(graph).export(tmp_path / "g.pt2")
    exported = torch.export.load(tmp_path / "g.pt2").module()
    for n in (3, 8):
        x, scale = torch.randn(2, n, 8), torch.ones(n, 1)
        torch.testing.assert_close(exported(x, scale), model(x, scale)[0])


@pytest.mark.slow
def test_an_exported_onnx_model_takes_all_sizes(tmp_path):
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxscript")
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    graph = Inference(lambda x: model(x).softmax(-1))
    graph.model = model
    for n in (4, 5, 6):
        graph(torch.randn(n, 8))
    graph.export(tmp_path / "g.onnx", "onnx")
    exported = onnx.load(tmp_path / "g.onnx")
    x = torch.randn(9, 8)
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(exported)
    (actual,) = evaluator.run(None, {exported.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(actual), model(x).softmax(-1))
