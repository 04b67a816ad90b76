"""Compilers of other packages. OpenVINO runs on the CPU; without the package the error names it."""

import importlib.util
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import oneflow as flow


def graph_of(model, configure):
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            configure(self.config)

        def build(self, x):
            return self.m(x), {"x": x}

    return G()


@pytest.mark.parametrize(
    "option, package",
    [("enable_openvino", "openvino"), ("enable_tensorrt", "torch_tensorrt"), ("enable_xla_jit", "torch_xla")],
)
def test_missing_package_is_named(option, package, monkeypatch):
    """The flag of a script that ran elsewhere warns; set_backend() is an error."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else find_spec(name, *a)
    )
    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    with pytest.warns(UserWarning, match=f"{package}.*'auto'") as caught:
        y, _ = graph_of(model, lambda config: getattr(config, option)(True))(x)
    assert torch.equal(y, model(x)) and len(caught) == 1 and caught[0].filename == __file__
    backend = option.split("_")[1]
    note = r" \(whose last release is for torch 2\.9\)" if package == "torch_xla" else ""
    assert re.search(f"{package}{note}, which", str(caught[0].message))
    with pytest.raises(RuntimeError, match=f"{package}{note}, which"):
        graph_of(model, lambda config: config.set_backend(backend))(x)


def test_openvino():
    pytest.importorskip("openvino", reason="openvino is not installed")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 5),
    ).eval()
    graph = graph_of(model, lambda config: config.enable_openvino(True))
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        y, same = graph(x)
        assert torch.allclose(y, model(x), atol=1e-5) and same["x"] is x
        model[5].weight.zero_()
        assert torch.allclose(graph(x)[0], model(x), atol=1e-5), "a written weight is seen"


def test_openvino_let_go_by_another_thread():
    """OpenVINO's CPU plugin gives the thread that loads it a signal stack; unloaded by another thread it left
    the first one with freed memory.
    """
    pytest.importorskip("openvino", reason="openvino is not installed")
    done = subprocess.run([sys.executable, "-c", LET_GO], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "ended\n", (done.returncode, done.stderr[-2000:])


LET_GO = """
import gc, os, signal, threading, time
import torch, oneflow as flow

class G(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.m = torch.nn.Linear(2, 2)
        self.config.enable_openvino(True)

    def build(self, x):
        return self.m(x)

held = [G()]
with torch.no_grad():
    held[0](torch.ones(1, 2))
thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
thread.start()
thread.join()
signal.signal(signal.SIGUSR1, lambda *a: print("ended", flush=True))  # Python's handlers run on the signal stack
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.01)
"""


def test_openvino_does_not_train():
    pytest.importorskip("openvino", reason="openvino is not installed")
    model = nn.Linear(2, 1)

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            self.config.enable_openvino(True)

        def build(self, x):
            loss = self.m(x).sum()
            loss.backward()
            return loss

    with pytest.raises(RuntimeError, match="inference graphs only"):
        G()(torch.ones(1, 2))


def test_cudagraph_needs_cuda():
    graph = graph_of(
        nn.Linear(2, 2), lambda config: (config.set_backend("aten"), config.enable_cudagraph(True))
    )
    with pytest.raises(RuntimeError, match="CUDA tensors"):
        graph(torch.ones(1, 2))


@pytest.mark.gpu
def test_cudagraph_follows_eager():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
    import copy

    other = copy.deepcopy(model)
    eager, optimizer = (
        torch.optim.Adam(other.parameters(), lr=0.01),
        torch.optim.Adam(model.parameters(), lr=0.01),
    )

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(optimizer)
            self.config.set_backend("aten")
            self.config.enable_cudagraph(True)

        def build(self, x):
            loss = self.m(x).pow(2).mean()
            loss.backward()
            return loss

    graph = G()
    for _ in range(5):
        x = torch.randn(6, 4, device="cuda")
        eager.zero_grad()
        loss = other(x).pow(2).mean()
        loss.backward()
        eager.step()
        # the same kernels; the update may be fused
        assert torch.allclose(graph(x), loss, rtol=1e-5, atol=1e-6)
