"""CrossEntropyLoss accepts labels with added or missing dimensions of size 1, as OneFlow 0.9.0 does."""

import pytest
import torch

import oneflow as flow

LOGITS = torch.arange(12.0).reshape(4, 3).sin()
LABELS = torch.tensor([0, 2, 1, 1])
IMAGE = torch.arange(30.0).reshape(2, 3, 5).cos()


@pytest.mark.parametrize(
    "loss", [flow.nn.functional.cross_entropy, lambda x, y, **o: flow.nn.CrossEntropyLoss(**o)(x, y)]
)
@pytest.mark.parametrize(
    "logits, shape",
    [
        (LOGITS, (4, 1)),
        (LOGITS, (1, 4)),
        (LOGITS, (1, 4, 1)),
        (LOGITS, (4, 1, 1)),
        (LOGITS[:1], (1, 1)),
        (IMAGE, (1, 2, 5)),
        (IMAGE, (2, 5, 1)),
        (LOGITS[:, :1], (4, 1)),
    ],
)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", [flow.int64, flow.int32])
def test_labels_with_extra_dimensions_of_size_one(loss, logits, shape, reduction, dtype):
    rows = (logits.shape[0], *logits.shape[2:])
    labels = (torch.arange(torch.Size(rows).numel()) % logits.shape[1]).reshape(rows)
    out = loss(logits, labels.reshape(shape).to(dtype), reduction=reduction)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction=reduction)
    assert torch.equal(out, expected.reshape(shape) if reduction == "none" else expected)


@pytest.mark.parametrize(
    "logits, shape", [(LOGITS, (2, 2)), (LOGITS, (5,)), (LOGITS, (1, 3)), (IMAGE, (5, 2)), (LOGITS, (4, 3))]
)
def test_labels_of_another_shape_are_refused(logits, shape):
    with pytest.raises((ValueError, RuntimeError)):
        flow.nn.functional.cross_entropy(logits, flow.ones(*shape, dtype=flow.int64))


def test_probabilities_are_no_labels():
    target = torch.softmax(LOGITS.cos(), 1)
    assert torch.equal(
        flow.nn.functional.cross_entropy(LOGITS, target), torch.nn.functional.cross_entropy(LOGITS, target)
    )


@pytest.mark.parametrize("shape", [(4, 1), (1, 4)])
def test_labels_with_extra_dimensions_in_a_graph(shape):
    class Loss(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.loss = flow.nn.CrossEntropyLoss(reduction="none")
            self.config.set_backend("aten")

        def build(self, logits, labels):
            return self.loss(logits, labels)

    out = Loss()(LOGITS, LABELS.reshape(shape))
    assert torch.equal(
        out, torch.nn.functional.cross_entropy(LOGITS, LABELS, reduction="none").reshape(shape)
    )
