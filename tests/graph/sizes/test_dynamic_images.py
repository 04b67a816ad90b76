"""Resized images with varying batch, channels and sizes: one program, bitwise equal to eager."""

import pytest
import torch
import torch.nn.functional as F

import oneflow as flow

SIZES = ((2, 3, 8, 10), (3, 4, 9, 12), (4, 5, 11, 13), (2, 3, 16, 10))
RESIZES = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest-exact": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "linear": lambda x: F.interpolate(x.flatten(2), scale_factor=2, mode="linear"),
    "trilinear": lambda x: F.interpolate(x[:, None], scale_factor=2, mode="trilinear"),
    "channels last": lambda x: F.interpolate(
        x.to(memory_format=torch.channels_last), scale_factor=2, mode="bilinear"
    ),
}


class Step(flow.nn.Graph):
    def __init__(self, weight, resize, backend):
        super().__init__()
        self.weight, self.resize = weight, resize
        self.config.set_backend(backend)
        self.config.dynamic(True)
        self.add_optimizer(torch.optim.SGD([weight], lr=0.1))

    def build(self, x):
        loss = self.resize(x * self.weight).square().mean()
        loss.backward()
        return loss


@pytest.mark.parametrize("name", RESIZES)
def test_one_program_resizes_all_images(name):
    weight, expected = (torch.nn.Parameter(torch.ones(())) for _ in range(2))
    step, optimizer = Step(weight, RESIZES[name], "aten"), torch.optim.SGD([expected], lr=0.1)
    for shape in SIZES:
        x = torch.randn(*shape)
        optimizer.zero_grad()
        loss = RESIZES[name](x * expected).square().mean()
        loss.backward()
        optimizer.step()
        assert torch.equal(step(x), loss.detach())
        assert torch.equal(weight, expected)
    assert len(step._engine.programs) == 1
