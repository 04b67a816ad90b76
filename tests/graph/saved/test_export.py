"""Graphs as files for other runtimes: torch.export, ONNX, AOTInductor."""

import subprocess
import sys
import textwrap

import pytest
import torch
from deploy_cases import Infer, Net, Train, data


@pytest.mark.slow
def test_pt2_opens_with_plain_torch(tmp_path):
    x, _ = data()
    graph = Infer(Net().eval())
    want = graph(x)["logits"]
    graph.export(tmp_path / "net.pt2")
    code = f"""
        import torch
        torch.manual_seed(1)
        out = torch.export.load({str(tmp_path / "net.pt2")!r}).module()(torch.randn(6, 4))
        print(out[0].flatten().tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert torch.allclose(torch.tensor(eval(done.stdout)), want.flatten())


@pytest.mark.slow
def test_onnx_runs_in_another_runtime(tmp_path):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    x, _ = data()
    graph = Infer(Net().eval())
    want = graph(x)["logits"]
    graph.export(tmp_path / "net.onnx", format="onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["x"] and [o.name for o in session.get_outputs()] == [
        "logits"
    ]
    torch.testing.assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), want)


@pytest.mark.slow
def test_aoti_package_runs_without_the_graph(tmp_path):
    x, _ = data()
    graph = Infer(Net().eval())
    want = graph(x)["logits"]
    graph.export(tmp_path / "net.pt2", format="aoti")
    torch.testing.assert_close(torch._inductor.aoti_load_package(str(tmp_path / "net.pt2"))(x)[0], want)


def test_export_refuses_what_it_cannot_write(tmp_path):
    x, y = data()
    train = Train(Net())
    train(x, y)
    with pytest.raises(ValueError, match="trains"):
        train.export(tmp_path / "t.pt2")
    graph = Infer(Net().eval())
    graph(x)
    with pytest.raises(ValueError, match="'mlir'"):
        graph.export(tmp_path / "g", format="mlir")
