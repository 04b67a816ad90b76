"""Custom operators inside nn.Graph: one training program, bitwise equal to eager steps, including dropout."""

import pytest
import torch

import oneflow as flow
from oneflow import nn
from oneflow._kernels import _ext

C = flow._C
pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")


class Model(nn.Module):
    """Uses an operator of each kind."""

    def __init__(self):
        super().__init__()
        self.lin, self.bias, self.out = (
            nn.Linear(16, 32, bias=False),
            nn.Parameter(torch.randn(32) * 0.1),
            nn.Linear(32, 16),
        )

    def forward(self, x, mask):
        h = C.fused_bias_add_gelu(self.lin(x), self.bias, axis=2)
        h = self.out(C.fused_bias_add_dropout(h, self.bias, p=0.1, axis=2))
        scores = h @ h.transpose(1, 2)
        dropped, _ = C.fused_scale_mask_softmax_dropout(scores, mask, fill_value=-1e4, scale=0.3, p=0.2)
        causal = C.fused_scale_tril_softmax_mask_scale(
            scores, p=0.0, diagonal=0, tril_scale_value=0.5, tril_fill_value=-1e4
        )[0]
        iou = C.fused_get_iou(*[h[..., k].abs() + 0.1 for k in range(5)], 1e-7)
        fake = C.fake_quantization(
            h, *C.min_max_observer(h, "google", 8, "symmetric", True), "google", 8, "symmetric"
        )
        return (
            (dropped @ h).sum()
            + (causal @ h).sum()
            + C.fused_apply_rotary_emb(h[:, None]).square().sum()
            + iou.mean()
            + C.quick_gelu(h).sum()
            + C.fused_dot_feature_interaction([h]).mean()
            + fake.sum()
        )


def test_graph_step_equals_eager_step(monkeypatch):
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "aten")
    torch.manual_seed(0)
    captured, eager = Model(), Model()
    eager.load_state_dict(captured.state_dict())
    optimizers = [flow.optim.SGD(m.parameters(), lr=1e-3) for m in (captured, eager)]

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = captured
            self.add_optimizer(optimizers[0])

        def build(self, x, mask):
            loss = self.model(x, mask)
            loss.backward()
            return loss

    step, x, mask = Step(), torch.randn(4, 6, 16), torch.rand(4, 6, 6) > 0.2
    for i in range(3):
        torch.manual_seed(i)
        actual = step(x, mask)
        torch.manual_seed(i)
        expected = eager(x, mask)
        optimizers[1].zero_grad()
        expected.backward()
        optimizers[1].step()
        assert torch.equal(actual, expected)
        assert all(torch.equal(a, b) for a, b in zip(captured.parameters(), eager.parameters()))
