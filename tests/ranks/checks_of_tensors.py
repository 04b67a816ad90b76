"""Checks of global tensors, which every rank runs; see program.py."""

import json
import math
import os
import tempfile

import numpy as np
import torch
from checks import ALL, RANK, S0, S1, WORLD, B, P, both, is_, mine

import oneflow as flow
from oneflow import nn
from oneflow.utils.global_view import to_global


def local_parts_make_a_global_tensor():
    x = mine()
    is_(x.to_global(ALL, S0), both(), S0, x)
    is_(
        x.to_global(ALL, S1),
        np.concatenate([np.arange(4.0).reshape(2, 2) + 10 * r for r in range(WORLD)], 1),
        S1,
        x,
    )
    is_(x.to_global(ALL, B), np.arange(4.0).reshape(2, 2), B, np.arange(4.0).reshape(2, 2))
    is_(x.to_global(ALL, P), sum(np.arange(4.0).reshape(2, 2) + 10 * r for r in range(WORLD)), P, x)
    assert x[0, 0] == 10 * RANK  # the local tensor was not written
    is_(x.to_global(ALL, S0, check_meta=False), both(), S0, x)
    uneven = flow.ones(3 if RANK == 0 else 2, 2) * RANK
    assert uneven.to_global(ALL, S0).shape == (5, 2)
    for wrong in (
        flow.ones(2 if RANK == 0 else 3, 2),
        flow.ones(2, 2, dtype=flow.float64 if RANK else flow.float32),
    ):
        try:
            wrong.to_global(ALL, S0)
        except RuntimeError as error:
            assert "to_global: rank" in str(error)
        else:
            raise AssertionError("parts that do not fit were taken")


def moves_between_rules():
    values = both()
    for source in (S0, S1, B, P):
        x = flow.tensor(values, placement=ALL, sbp=source)
        for target in (S0, S1, B, P):
            is_(x.to_global(sbp=target), values, target)
    assert flow.tensor(values, placement=ALL, sbp=P).to_local().abs().sum() == (
        abs(values).sum() if RANK == 0 else 0
    )
    three = flow.tensor([1.0, 2.0, 3.0], placement=ALL, sbp=S0)
    is_(three, [1, 2, 3], S0, [1, 2] if RANK == 0 else [3])


def ranks_named_in_any_order():
    backwards = flow.placement("cpu", list(range(WORLD))[::-1])
    whole = np.arange(2.0 * WORLD)
    tensor = flow.tensor(whole, placement=backwards, sbp=S0)
    for x in (tensor, flow.tensor(whole, placement=ALL, sbp=B).to_global(placement=backwards, sbp=S0)):
        is_(x, whole, S0, whole[2 * RANK : 2 * RANK + 2])
        assert x.placement == ALL


def placements_of_single_ranks():
    first, second = flow.placement("cpu", [0]), flow.placement("cpu", [1])
    x = flow.tensor([1.0, 2.0], placement=first, sbp=B, requires_grad=True)
    assert x.to_local().shape == ((2,) if RANK == 0 else (0,)) and x.numpy().tolist() == [1, 2]
    y = (x * 3).to_global(placement=second, sbp=B) * 2
    assert y.placement == second and y.to_local().numel() == (2 if RANK == 1 else 0)
    is_(y, [6, 12], B)
    is_(y.to_global(placement=ALL, sbp=S0), [6, 12], S0, [6 * (RANK + 1)])
    y.sum().backward()
    is_(x.grad, [6, 6], B)
    for shape in ((4, 3), (2, 3, 4), ()):  # a rank without a part has as many dimensions, of size 0
        part = flow.zeros(shape).to_global(ALL, B).to_global(second, B).to_local()
        assert part.shape == (shape if RANK == 1 else (0,) * len(shape))
    z = flow.ones(2, 3, placement=ALL, sbp=B, requires_grad=True)
    (z.to_global(second, B).to_local() * 2).sum().backward()
    is_(z.grad, [[2, 2, 2], [2, 2, 2]], B)
    try:
        flow.ones(2, placement=first, sbp=B) + flow.ones(2, placement=second, sbp=B)
    except RuntimeError as error:
        assert "same placement" in str(error) and "to_global" in str(error)
    else:
        raise AssertionError("placements were mixed")


def operators():
    x, w = mine().to_global(ALL, S0), flow.arange(6, dtype=flow.float32, placement=ALL, sbp=B).reshape(2, 3)
    whole, weight = both(), np.arange(6.0).reshape(2, 3)
    is_(flow.matmul(x, w), whole @ weight, S0)
    is_(flow.matmul(x.to_global(sbp=S1), w.to_global(sbp=S0)), whole @ weight, P)
    is_(x.sum(), whole.sum(), P)
    is_(x.mean(), whole.mean(), P, (whole[:2] if RANK == 0 else whole[2:4]).mean() / 2)
    assert np.allclose(flow.relu(x.to_global(sbp=P) - 5).numpy(), np.maximum(whole - 5, 0))
    assert np.allclose(flow.sort(x, dim=0, descending=True)[0].numpy(), whole[::-1])
    assert flow.nonzero(x).numpy().tolist() == np.argwhere(whole).tolist()
    assert np.allclose(flow.cat([x, x], dim=0).numpy(), np.concatenate([whole, whole]))
    assert np.allclose(x[1:3].numpy(), whole[1:3]) and np.allclose(x.max().numpy(), whole.max())
    assert (
        x.sum().item() == whole.sum() == float(x.sum()) and bool(x.sum() > 3) and x.tolist() == whole.tolist()
    )
    assert "sbp=(oneflow.sbp.split(dim=0),)" in repr(x) and "12." in repr(x)
    y = x.clone()
    y[0] = 5.0
    y[-1, 1] = 7.0
    whole[0], whole[-1, 1] = 5, 7
    is_(y, whole, S0)
    is_(y.add_(1), whole + 1, S0)
    is_(flow.ones_like(x, placement=ALL, sbp=B), np.ones((4, 2)), B)
    for mixed in (lambda: x + flow.ones(4, 2), lambda: flow.cat([flow.ones(4, 2), x])):
        try:
            mixed()
        except RuntimeError as error:
            assert "some tensors are global and some are local" in str(error)
        else:
            raise AssertionError("local and global were mixed")
    try:
        flow.matmul(x, x)
    except RuntimeError as error:
        assert "shapes cannot be multiplied" in str(error), error
    else:
        raise AssertionError("a wrong product was computed")


def a_module_with_a_counter_is_split():
    """The 0-d counter of BatchNorm cannot be split, and is under broadcast."""
    model = nn.BatchNorm2d(4).to_global(ALL, S0)
    assert (
        model.weight.shape == (4 * WORLD,)
        and model.weight.sbp == (S0,)
        and model.num_batches_tracked.sbp == (B,)
    )
    model(flow.ones(2, 4 * WORLD, 3, 3, placement=ALL, sbp=B))
    assert model.num_batches_tracked.item() == 1
    unfit = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2 + RANK))
    try:
        unfit.to_global(ALL, B)
    except RuntimeError as error:
        assert "1.weight" in str(error) and "rank 1" in str(error), error
    else:
        raise AssertionError("modules of different sizes became one")
    assert not any(t.is_global for t in unfit.state_dict().values())  # nothing has changed


def split_to_partial_sum():
    """Each rank keeps its slice in zeros; the parts are real OneFlow's
    (tests/golden/split_to_partial_sum.json).
    """
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "split_to_partial_sum.json")
    ) as file:
        recorded = json.load(file)
    for case in recorded["cases"]:
        size = math.prod(case["shape"])
        x = flow.arange(1, size + 1, dtype=flow.float32).reshape(case["shape"]).to_global(ALL, B)
        split = x if case["split"] is None else x.to_global(sbp=flow.sbp.split(case["split"]))
        part = split.to_global(sbp=P)
        assert part.to_local().tolist() == case["parts"][RANK], (case, part.to_local())
        assert part.numpy().tolist() == x.numpy().tolist()


def flips_of_all_ranks():
    """batch_size counts the flips of all ranks, eager and in a graph."""

    class Flips(nn.Graph):
        def __init__(self):
            super().__init__()
            self.coin = nn.CoinFlip(8, random_seed=3, placement=ALL, sbp=S0)

        def build(self):
            return self.coin()

    coin, graph = nn.CoinFlip(8, random_seed=3, placement=ALL, sbp=S0), Flips()
    for _ in range(2):
        eager, captured = coin(), graph()
        assert eager.shape == captured.shape == (
            8,
        ) and eager.to_local().shape == captured.to_local().shape == (8 // WORLD,)
        assert eager.tolist() == captured.tolist()
    assert nn.CoinFlip(8, placement=ALL, sbp=B)().to_local().shape == (8,)


def structures_on_ranks_without_data():
    first = flow.placement("cpu", [0])
    moved = to_global({"a": mine(), "b": [flow.ones(2)]} if RANK == 0 else None, first, sbp=B)
    is_(moved["a"], np.arange(4.0).reshape(2, 2), B)
    assert moved["b"][0].placement == first and moved["b"][0].shape == (2,)
    try:
        to_global(mine() if RANK else None, first, sbp=B)
    except ValueError as error:
        assert "gave None" in str(error)
    else:
        raise AssertionError("a rank of the placement gave None")


def saved_by_all_ranks_at_once():
    """Every rank writes the same folder; no rank holds its lock while tensors travel."""
    box = [tempfile.mkdtemp()]
    flow.distributed.broadcast_object_list(box, 0)
    tensors = {"w": flow.tensor(both(), placement=ALL, sbp=S0), "n": 3}
    for options in (
        {"save_as_external_data": True},
        {},
        {"layout": "pickle"},
        {"save_as_external_data": True, "global_dst_rank": WORLD - 1},
    ):
        path = os.path.join(box[0], str(len(str(options))))
        flow.save(tensors, path, **options)
        flow.comm.barrier()
        assert np.allclose(flow.load(path)["w"].numpy(), both())
        flow.comm.barrier()


def integers_and_scalars():
    whole = flow.arange(4, placement=ALL, sbp=B)
    for a, b in ((B, P), (P, B), (S0, P), (P, P)):
        x, y = whole.to_global(sbp=a), whole.to_global(sbp=b)
        for got, expected in (
            (flow.cat([x, y]), [0, 1, 2, 3] * 2),
            (flow.stack([x, y]).sum(0), [0, 2, 4, 6]),
            (flow.where(whole > 1, x, y), [0, 1, 2, 3]),
        ):
            assert got.dtype == flow.int64 and got.tolist() == expected, (a, b, got)
    one, first = (
        flow.ones((), placement=ALL, sbp=B, requires_grad=True),
        flow.zeros((), dtype=flow.int64, placement=ALL, sbp=B),
    )
    for wrong in (
        lambda: one.to_global(sbp=S0),
        lambda: flow.tensor(1.0).to_global(ALL, S0),
        lambda: flow.ones((), placement=ALL, sbp=S0),
    ):
        try:
            wrong()
        except RuntimeError as error:
            assert "dimension does not exist" in str(error)
        else:
            raise AssertionError("a number was split")
    (flow.gather(one, 0, first) * 2).backward()
    assert one.grad.item() == 2
    mantissa, exponent = torch.frexp(flow.tensor([3.0], placement=flow.placement("cpu", [1]), sbp=B))
    assert mantissa.tolist() == [0.75] and exponent.tolist() == [2]


def classes_sampled_where_they_are():
    label = flow.tensor([4, 17, 4, 0, 19], placement=ALL, sbp=B)
    for rule, classes, asked, expected in (
        (S0, 20, 8, S0),
        (S0, 20, 2, S0),
        (S0, 20, 7, B),
        (B, 20, 8, B),
        (S1, 20, 8, B),
    ):
        weight = flow.randn(classes, 4, placement=ALL, sbp=B).to_global(sbp=rule).requires_grad_()
        mapped, ids, rows = flow.distributed_partial_fc_sample(
            weight, label.to_global(sbp=S0) if asked == 8 else label, asked
        )
        assert mapped.sbp == (B,) and ids.sbp == rows.sbp == (expected,) and mapped.dtype == label.dtype
        chosen, all_rows = ids.numpy(), weight.numpy()
        # the same number on every rank
        assert len(set(chosen.tolist())) == max(asked, 4) == len(chosen), (
            chosen,
            asked,
        )
        assert chosen[mapped.numpy()].tolist() == label.tolist() and np.array_equal(
            rows.numpy(), all_rows[chosen]
        )
        (rows * rows).sum().backward()
        assert weight.grad.sbp == (rule,)
        grad = np.zeros_like(all_rows)
        grad[chosen] = 2 * all_rows[chosen]
        assert np.allclose(weight.grad.numpy(), grad)


def batch_norm():
    flow.manual_seed(0)
    x = flow.randn(4, 6, 3, 3)
    norm = nn.BatchNorm2d(6)
    expected = norm(x)
    for rule in (S0, S1, B):
        spread = nn.BatchNorm2d(6).to_global(ALL, B)
        y = spread(x.to_global(ALL, B).to_global(sbp=rule))
        assert np.allclose(y.numpy(), expected.detach().numpy(), atol=1e-5)
        is_(spread.running_mean, norm.running_mean.numpy(), B)
        is_(spread.running_var, norm.running_var.numpy(), B)


def gradients():
    x = flow.ones(2, 2, requires_grad=True)
    (
        x.to_global(ALL, S0) * flow.arange(8, dtype=flow.float32, placement=ALL, sbp=B).reshape(4, 2)
    ).sum().backward()
    assert x.grad.tolist() == [[4 * RANK, 4 * RANK + 1], [4 * RANK + 2, 4 * RANK + 3]]
    x.grad = None
    (x.to_global(ALL, B) * 2).sum().backward()
    # the others' values were not used
    assert x.grad.tolist() == [[2, 2], [2, 2]] if RANK == 0 else not x.grad.any()
    for rule, expected in ((B, 3.0), (S0, 1.0 + RANK)):
        g = flow.ones(2, 2, placement=ALL, sbp=rule, requires_grad=True)
        (g.to_local() * (RANK + 1)).sum().backward()
        assert g.grad.sbp == (rule,) and (g.grad.to_local() == expected).all()
    g = flow.ones(2, 2, placement=ALL, sbp=B, requires_grad=True)
    (g.to_global(sbp=S1, grad_sbp=P) * 2).sum().backward()
    is_(g.grad, np.full((2, 2), 2.0), B)


def losses_are_means_of_the_whole():
    """Also if the shards have different sizes, or ignore and weigh different targets."""
    flow.manual_seed(0)
    F = nn.functional
    weights = flow.rand(6)
    for rows in (4, 5):
        x, y, other = flow.randn(rows, 6), flow.randint(0, 6, (rows,)), flow.randn(rows, 6)
        y[0] = -100
        for loss in (
            lambda a, t, o, w: F.cross_entropy(a, t),
            lambda a, t, o, w: F.cross_entropy(a, t, weight=w),
            lambda a, t, o, w: F.cross_entropy(a, t, reduction="sum"),
            lambda a, t, o, w: F.mse_loss(a, o),
            lambda a, t, o, w: F.smooth_l1_loss(a, o),
            lambda a, t, o, w: (a * o).mean(),
        ):
            a = x.clone().requires_grad_()
            expected = loss(a, y, other, weights)
            expected.backward()
            for rule in (S0, S1, B):
                place = lambda t, r=rule: (
                    t.to_global(ALL, B).to_global(sbp=r if t.dim() > 1 or r != S1 else B).detach()
                )
                b = place(x).requires_grad_()
                got = loss(b, place(y), place(other), weights.to_global(ALL, B))
                got.backward()
                assert np.allclose(got.item(), expected.item(), rtol=1e-5), (rows, rule, got, expected)
                is_(b.grad, a.grad.numpy(), rule)
    part = flow.ones(2, 2, placement=ALL, sbp=P)
    is_(part.fill_(3.0), np.full((2, 2), 3.0), P)
    conv = nn.Conv2d(2, 2, 3)
    image = flow.randn(1, 2, 4, 4).to_global(ALL, B).to_global(sbp=P)
    assert np.allclose(
        conv.to_global(ALL, B)(image).numpy(),
        nn.functional.conv2d(
            flow.tensor(image.numpy()), flow.tensor(conv.weight.numpy()), flow.tensor(conv.bias.numpy())
        ).numpy(),
        atol=1e-5,
    )
    halves = flow.randn(6, 2).to_global(ALL, B).to_global(sbp=S0).detach().requires_grad_()
    flow.split(halves, 2)[1].sum().backward()
    is_(halves.grad, [[0, 0]] * 2 + [[1, 1]] * 2 + [[0, 0]] * 2, S0)


def random_numbers():
    for rule in (B, S0, S1):
        flow.manual_seed(5)
        flow.rand(RANK + 1)  # the ranks' own streams differ from here on
        x = flow.randn(4, 4, placement=ALL, sbp=rule)
        first = flow.tensor(x.numpy()).to_global(ALL, B).numpy()
        assert np.allclose(first, x.numpy())
    ones = flow.ones(8, 8, placement=ALL, sbp=B)
    dropped = flow.nn.functional.dropout(ones, 0.5)
    told = flow.tensor(dropped.to_local().numpy()).to_global(ALL, S0).numpy()
    assert (told[:8] == told[8:]).all() and 0 < (told == 0).mean() < 1
    halves = flow.nn.functional.dropout(ones.to_global(sbp=S0), 0.5).numpy()
    assert (halves[:4] != halves[4:]).any()
    assert (
        flow.zeros(4, placement=ALL, sbp=B).uniform_().numpy()
        != flow.zeros(4, placement=ALL, sbp=B).uniform_().numpy()
    ).any()
