"""view() after transpose, slice or chunk. Client programs (libai) rely on it, because in OneFlow global
tensors and tensors in graphs are contiguous.
"""

import pytest

import oneflow as flow
import oneflow.nn as nn

SOURCES = {
    "transpose": lambda x: x.transpose(1, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "chunk": lambda x: flow.chunk(x, 2, dim=-1)[0],
    "slice": lambda x: x[:, :, 1:3],
    "expand": lambda x: x[:, :, :1].expand(2, 3, 4),
}
VIEWS = {
    "numbers": lambda y: y.view(4, -1),
    "size": lambda y: y.view(flow.Size([y.numel()])),
    "keyword": lambda y: y.view(size=(-1,)),
    "view_as": lambda y: y.view_as(flow.zeros(y.numel())),
    "function": lambda y: flow.view(y, [2, -1]),
}


class Run(nn.Graph):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def build(self, x):
        return self.f(x)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("source", SOURCES)
def test_any_layout(source, view):
    x = flow.arange(24).reshape(2, 3, 4).float()
    on_rank_0 = x.to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)
    want = VIEWS[view](SOURCES[source](x).contiguous()).tolist()

    def program(x):
        return VIEWS[view](SOURCES[source](x))

    actual = program(on_rank_0)
    assert actual.is_global and actual.tolist() == want
    assert Run(program)(x).tolist() == want
    actual = Run(program)(on_rank_0)
    assert actual.is_global and actual.tolist() == want


def test_eager_local_tensors_keep_torchs_rule_and_gradients_flow():
    x = flow.ones(2, 3, 4, requires_grad=True)
    Run(lambda x: x.transpose(1, 2))(x)
    with pytest.raises(RuntimeError, match="view size"):
        x.transpose(1, 2).view(-1)
    weight = flow.arange(24.0)
    (
        x.to_global(flow.placement("cpu", [0]), flow.sbp.broadcast).transpose(1, 2).view(-1) * weight
    ).sum().backward()
    assert x.grad.tolist() == weight.view(2, 4, 3).transpose(1, 2).tolist()
    with pytest.raises(RuntimeError):
        x.to_global(flow.placement("cpu", [0]), flow.sbp.broadcast).transpose(1, 2).view(5, 5)
