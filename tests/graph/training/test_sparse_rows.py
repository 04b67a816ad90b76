"""add_optimizer(is_sparse=True): rows without a gradient do not change. The gathered weights agree with
OneFlow 0.9.0 to five digits.
"""

import numpy as np
import pytest

import oneflow as flow
import oneflow.nn as nn

O = flow.optim
BATCHES = ([0, 1], [1, 1], [2, 1], [3, 3], [0, 4])
READ = {
    "embedding": lambda e, x: e(x),
    "gather": lambda e, x: flow._C.gather(e.weight, x, 0),
    "index_select": lambda e, x: flow.index_select(e.weight, 0, x),
    "index": lambda e, x: e.weight[x],
    "all rows as well": lambda e, x: e(x) + e.weight.sum() * 0.1,
}


def trained(optimizer, is_sparse=True, read="embedding", scaler=None, placement=None):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(6, 2)
            nn.init.constant_(self.e.weight, 1.0)

        def forward(self, x):
            return (READ[read](self.e, x) ** 2).sum()

    net = Net() if placement is None else Net().to_global(placement=placement, sbp=flow.sbp.broadcast)
    opt = optimizer(net.parameters())

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(opt, is_sparse=is_sparse)
            if scaler is not None:
                self.set_grad_scaler(scaler)

        def build(self, x):
            loss = self.net(x)
            loss.backward()
            return loss

    graph = Train()
    for x in BATCHES:
        graph(
            flow.tensor(x)
            if placement is None
            else flow.tensor(x, placement=placement, sbp=flow.sbp.broadcast)
        )
    return net.e.weight.numpy()[:, 0]


MOMENTUM = [0.46, -0.21, 0.8, 0.6, 0.8, 1.0]


@pytest.mark.parametrize("read", ["embedding", "gather", "index_select"])
def test_momentum_of_rows_not_gathered_does_not_change(read):
    np.testing.assert_allclose(
        trained(lambda p: O.SGD(p, 0.1, momentum=0.9), read=read), MOMENTUM, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    "optimizer,rows",
    [
        (
            lambda p: O.SGD(p, 0.1, momentum=0.9, dampening=0.5, nesterov=True),
            [0.4231, -0.03371, 0.71, 0.42, 0.71, 1.0],
        ),
        (
            lambda p: O.Adam(p, 0.1, do_bias_correction=False),
            [0.2702, -0.1644, 0.68377, 0.68377, 0.68377, 1.0],
        ),
    ],
)
def test_optimizers_update_the_rows_of_sparse_gradients(optimizer, rows):
    np.testing.assert_allclose(trained(optimizer), rows, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer,read",
    [
        (lambda p: O.SGD(p, 0.1, momentum=0.9, weight_decay=0.1), "embedding"),
        (lambda p: O.Adam(p, 0.1, weight_decay=0.1), "embedding"),
        (lambda p: O.SGD(p, 0.1, momentum=0.9), "index"),
        (lambda p: O.SGD(p, 0.1, momentum=0.9), "all rows as well"),
    ],
)
def test_l2_decay_and_other_gradients_change_all_rows(optimizer, read):
    rows = trained(optimizer, read=read)
    np.testing.assert_array_equal(rows, trained(optimizer, is_sparse=False, read=read))
    assert rows[2] != rows[4]  # row 2 moved on after the call that gathered it


@pytest.mark.parametrize(
    "optimizer", [lambda p: O.AdamW(p, 0.1, weight_decay=0.1), lambda p: O.Adam(p, 0.1, amsgrad=True)]
)
def test_decoupled_decay_and_moments_touch_the_gathered_rows_only(optimizer):
    rows = trained(optimizer)
    assert rows[5] == 1 and len({*rows.tolist()}) > 2
    assert (
        rows[:4] > trained(optimizer, is_sparse=False)[:4]
    ).all()  # all shrink in calls that did not gather them, too


def test_with_a_loss_scale_and_as_global_tensors():
    def momentum(p):
        return O.SGD(p, 0.1, momentum=0.9)

    for scaler in (flow.amp.GradScaler(init_scale=4.0), flow.amp.StaticGradScaler(4.0)):
        np.testing.assert_allclose(trained(momentum, scaler=scaler), MOMENTUM, rtol=0, atol=1e-5)
        assert trained(lambda p: O.Adam(p, 0.1), scaler=scaler)[5] == 1
    np.testing.assert_allclose(
        trained(momentum, placement=flow.placement("cpu", [0])), MOMENTUM, rtol=0, atol=1e-5
    )
