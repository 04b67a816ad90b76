"""TorchScript in programs with `import oneflow as torch`."""

from typing import Dict, List, Optional, Tuple

import pytest

import oneflow as torch
import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow import Tensor


@torch.jit.script
def steps(x: torch.Tensor, y: Optional[torch.Tensor] = None, n: int = 3) -> torch.Tensor:
    if y is None:
        y = torch.zeros_like(x)
    for i in range(n):
        x = x + y * i
    return x.relu()


def many(x: Tensor, dev: torch.device, dt: torch.dtype) -> Tensor:
    y = torch.zeros(2, 3, dtype=dt, device=dev) + torch.ones(3) + torch.arange(3) + torch.full((3,), 2.0)
    z = torch.where(torch.cat([y, y], dim=0) > 2, x, torch.empty_like(x).fill_(0.0))
    a, b = torch.max(z, dim=1)
    e = torch.softmax(z, dim=-1) + F.softmax(z, dim=-1) + F.dropout(z, 0.0, True) + F.normalize(z) + F.gelu(z)
    return (
        torch.matmul(e, e.transpose(0, 1)).sum()
        + torch.std(z)
        + torch.norm(z)
        + a.sum()
        + torch.argmax(z)
        + torch.tensor(1.0, device=torch.device("cpu"))
    )


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.drop, self.pool, self.k = nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), 2

    def forward(self, x: Tensor, flags: Dict[str, int]) -> Tuple[Tensor, int]:
        for layer in self.layers:
            x = self.drop(layer(x))
        if x.sum() > 0:
            return self.pool(x[None, None])[0, 0], flags["a"]
        return -x, self.k

    @torch.jit.export
    def extra(self, x: torch.Tensor) -> List[torch.Tensor]:
        out = torch.jit.annotate(List[torch.Tensor], [])
        out.append(x)
        return out


def test_functions_compile():
    assert isinstance(steps, torch.jit.ScriptFunction) and steps(torch.ones(2), torch.ones(2)).tolist() == [
        4.0,
        4.0,
    ]
    compiled = torch.jit.script(many)
    x = torch.linspace(0, 1, 12).reshape(4, 3)
    assert isinstance(compiled, torch.jit.ScriptFunction)
    assert torch.equal(
        compiled(x, torch.device("cpu"), torch.float32), many(x, torch.device("cpu"), torch.float32)
    )


def test_modules_compile_save_and_load(tmp_path):
    gate = Gate().eval()
    script = torch.jit.script(gate)
    torch.jit.save(script, str(tmp_path / "gate.pt"))
    loaded = torch.jit.load(str(tmp_path / "gate.pt"))
    x = torch.randn(3, 4)
    assert (
        isinstance(script, torch.jit.ScriptModule)
        and torch.equal(loaded(x, {"a": 7})[0], gate(x, {"a": 7})[0])
        and len(loaded.extra(x)) == 1
    )


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.NLLLoss(), nn.CrossEntropyLoss(reduction="sum")],
    ids=["ce", "nll", "sum"],
)
def test_losses_compile(loss):
    x, y = torch.randn(3, 4), torch.tensor([0, 1, 3])
    assert torch.equal(torch.jit.script(loss)(x, y), loss(x, y))


def test_what_cannot_compile_comes_back_or_raises_in_torchs_dialect():
    def variable(*args, **kwargs):
        return args

    assert torch.jit.script(variable) is variable
    torch.set_dialect("torch")
    try:
        with pytest.raises(torch.jit.frontend.NotSupportedError):
            torch.jit.script(variable)
    finally:
        torch.set_dialect("oneflow")


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_trace_of_a_convolutional_network_passes_torchs_check(mode):
    block = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    getattr(block, mode)()
    images = torch.randn(2, 1, 6, 6)
    traced = torch.jit.trace(block, images)
    torch.testing.assert_close(traced(images), block(images))
