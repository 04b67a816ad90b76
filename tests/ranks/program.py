"""Checks that run on every rank of a multi-process launch: python -m oneflow.distributed.launch
--nproc_per_node N program.py NAME ...
"""

import json
import math
import os
import sys
import tempfile
import traceback
import warnings

import numpy as np
import torch

import oneflow as flow
from oneflow import nn
from oneflow.utils.global_view import to_global

RANK, WORLD = flow.env.get_rank(), flow.env.get_world_size()
S0, S1, B, P = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast, flow.sbp.partial_sum
ALL = flow.placement.all("cpu")
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def rules(rule):
    return rule if isinstance(rule, (list, tuple)) else (rule,)


def is_(tensor, values, rule, local=None):
    """A global tensor's values on every rank, its rules, and this rank's part."""
    assert tensor.is_global and tensor.sbp == tuple(rules(rule)), tensor.sbp
    assert np.allclose(tensor.numpy(), values), (tensor.numpy(), values)
    if local is not None:
        assert np.allclose(tensor.to_local().numpy(), local), (tensor.to_local(), local)


def mine():
    """[[0, 1], [2, 3]] on rank 0, ten more on the next, ..."""
    return flow.arange(4, dtype=flow.float32).reshape(2, 2) + 10 * RANK


def both():
    return np.concatenate([np.arange(4.0).reshape(2, 2) + 10 * r for r in range(WORLD)])


@check
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


@check
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


@check
def ranks_named_in_any_order():
    backwards = flow.placement("cpu", list(range(WORLD))[::-1])
    whole = np.arange(2.0 * WORLD)
    made = flow.tensor(whole, placement=backwards, sbp=S0)
    for x in (made, flow.tensor(whole, placement=ALL, sbp=B).to_global(placement=backwards, sbp=S0)):
        is_(x, whole, S0, whole[2 * RANK : 2 * RANK + 2])
        assert x.placement == ALL


@check
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


@check
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


@check
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


@check
def split_to_partial_sum():
    """Each rank keeps its slice in zeros; the parts are real OneFlow's (tests/golden/split_to_partial_sum.json)."""
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


@check
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


@check
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


@check
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


@check
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


@check
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
        assert len(set(chosen.tolist())) == max(asked, 4) == len(chosen), (
            chosen,
            asked,
        )  # the same number on every rank
        assert chosen[mapped.numpy()].tolist() == label.tolist() and np.array_equal(
            rows.numpy(), all_rows[chosen]
        )
        (rows * rows).sum().backward()
        assert weight.grad.sbp == (rule,)
        grad = np.zeros_like(all_rows)
        grad[chosen] = 2 * all_rows[chosen]
        assert np.allclose(weight.grad.numpy(), grad)


@check
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


@check
def gradients():
    x = flow.ones(2, 2, requires_grad=True)
    (
        x.to_global(ALL, S0) * flow.arange(8, dtype=flow.float32, placement=ALL, sbp=B).reshape(4, 2)
    ).sum().backward()
    assert x.grad.tolist() == [[4 * RANK, 4 * RANK + 1], [4 * RANK + 2, 4 * RANK + 3]]
    x.grad = None
    (x.to_global(ALL, B) * 2).sum().backward()
    assert (
        x.grad.tolist() == [[2, 2], [2, 2]] if RANK == 0 else not x.grad.any()
    )  # the others' values were not used
    for rule, expected in ((B, 3.0), (S0, 1.0 + RANK)):
        g = flow.ones(2, 2, placement=ALL, sbp=rule, requires_grad=True)
        (g.to_local() * (RANK + 1)).sum().backward()
        assert g.grad.sbp == (rule,) and (g.grad.to_local() == expected).all()
    g = flow.ones(2, 2, placement=ALL, sbp=B, requires_grad=True)
    (g.to_global(sbp=S1, grad_sbp=P) * 2).sum().backward()
    is_(g.grad, np.full((2, 2), 2.0), B)


@check
def losses_are_means_of_the_whole():
    """Also if the shards have different sizes, or ignore and weigh different targets."""
    flow.manual_seed(0)
    F = nn.functional
    weights = flow.rand(6)
    for rows in (4, 5):
        x, y, other = flow.randn(rows, 6), flow.randint(0, 6, (rows,)), flow.randn(rows, 6)
        y[0] = -100
        for loss in (
            lambda a, t, o, w: F.cross_entropy(a, t), lambda a, t, o, w: F.cross_entropy(a, t, weight=w), lambda a, t, o, w: F.cross_entropy(a, t, reduction="sum"),
            lambda a, t, o, w: F.mse_loss(a, o), lambda a, t, o, w: F.smooth_l1_loss(a, o), lambda a, t, o, w: (a * o).mean(),
        ):  # fmt: skip
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


@check
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


def network():
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 4))


def batches():
    flow.manual_seed(1)
    return [(flow.randn(4, 6), flow.randint(0, 4, (4,))) for _ in range(4)]


def trained(model, optimizer, place, clip=0.5):
    losses = []
    for x, y in batches():
        loss = nn.functional.cross_entropy(model(place(x)), place(y))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS = {
    "sgd": lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9), "adam": lambda p: flow.optim.Adam(p, lr=0.01), "adamw": lambda p: flow.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "lamb": lambda p: flow.optim.LAMB(p, lr=0.01), "adagrad": lambda p: flow.optim.Adagrad(p, lr=0.01), "rmsprop": lambda p: flow.optim.RMSprop(p, lr=0.01),
}  # fmt: skip


@check
def training_equals_one_rank(names=("sgd", "adamw")):
    """Data parallel, every rank the same, and parameters cut as ZeRO does, with clipping."""
    for name in names:
        make = OPTIMIZERS[name]
        model = network()
        expected = trained(model, make(model.parameters()), lambda t: t)
        for rule, data in ((B, S0), (B, B), (S0, B), (S0, S0)):
            spread = network()
            spread = spread.to_global(ALL, B).to_global(sbp=rule)
            got = trained(
                spread, make(spread.parameters()), lambda t: t.to_global(ALL, B).to_global(sbp=data)
            )
            assert np.allclose(got, expected, rtol=1e-4), (name, rule, data, got, expected)
            for p, q in zip(spread.parameters(), model.parameters()):
                assert p.sbp == (rule,) and p.is_leaf and p.grad.sbp == (rule,)
                assert np.allclose(p.numpy(), q.detach().numpy(), atol=1e-4), name


@check
def every_optimizer_equals_one_rank():
    training_equals_one_rank(OPTIMIZERS)


class Step(nn.Graph):
    def __init__(self, model, optimizer=None, scheduler=None, backend="aten"):
        super().__init__()
        self.model = model
        self.config.set_backend(backend)
        self.training_step = optimizer is not None
        if optimizer is not None:
            self.add_optimizer(optimizer, **({} if scheduler is None else {"lr_sch": scheduler}))

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        if self.training_step:
            loss.backward()
        return loss


@check
def graphs_equal_one_rank(names=("sgd", "adamw"), backend="aten"):
    for name in names:
        make = OPTIMIZERS[name]
        model = network()
        alone = Step(model, make(model.parameters()))
        expected = [alone(x, y).item() for x, y in batches()]
        for rule, data in ((B, S0), (S0, B)):
            spread = network().to_global(ALL, B).to_global(sbp=rule)
            graph = Step(spread, make(spread.parameters()), backend=backend)
            place = lambda t: t.to_global(ALL, B).to_global(sbp=data)
            losses = [graph(place(x), place(y)) for x, y in batches()]
            assert all(loss.is_global for loss in losses)
            assert np.allclose([loss.item() for loss in losses], expected, rtol=1e-4), (name, rule, data)
            assert len(graph._engine.programs) <= 2
            for p, q in zip(spread.parameters(), model.parameters()):
                assert (
                    p.sbp == (rule,)
                    and p.grad is None
                    and np.allclose(p.numpy(), q.detach().numpy(), atol=1e-4)
                ), name


@check
def a_graph_gives_no_needless_warning():
    model = network().to_global(ALL, B)
    graph = Step(model, OPTIMIZERS["sgd"](model.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for x, y in batches():
            graph(x.to_global(ALL, B).to_global(sbp=S0), y.to_global(ALL, B).to_global(sbp=S0))


@check
def every_optimizer_in_a_graph():
    graphs_equal_one_rank(OPTIMIZERS)


@check
def graphs_of_inductor():
    graphs_equal_one_rank(("adamw",), "inductor")
    graphs_equal_one_rank(("sgd",), "auto")


@check
def moved_twice_with_inductor():
    """Ranks with and without a shard make both calls."""

    class Twice(nn.Graph):
        def __init__(self, backend):
            super().__init__()
            self.config.set_backend(backend)

        def build(self, x):
            x, last = x * 2, flow.placement("cpu", [1])
            return x.to_global(placement=last, sbp=B).exp() + x.to_global(placement=last, sbp=B).sin()

    x = flow.arange(6.0).to_global(flow.placement("cpu", [0]), B)
    found = [Twice(backend)(x).numpy() for backend in ("aten", "inductor")]
    assert np.allclose(*found), found


@check
def zero_splits_the_state():
    for name in ("sgd", "adamw", "lamb"):
        make = OPTIMIZERS[name]
        model = network()
        alone = Step(model, make(model.parameters()))
        expected = [alone(x, y).item() for x, y in batches()]
        spread = network().to_global(ALL, B)
        optimizer = make(spread.parameters())
        graph = Step(spread, optimizer)
        graph.config.enable_zero(True, stage=2, shard_min_size=8)
        place = lambda t: t.to_global(ALL, B).to_global(sbp=S0)
        assert np.allclose([graph(place(x), place(y)).item() for x, y in batches()], expected, rtol=1e-4), (
            name
        )
        split = 0
        for p, q in zip(spread.parameters(), model.parameters()):
            assert p.sbp == (B,) and np.allclose(p.numpy(), q.detach().numpy(), atol=1e-4), name
            for value in optimizer.state[p].values():
                if getattr(value, "is_global", False) and value.dim():
                    large = p.numel() >= 16
                    assert value.sbp == (S0 if large else B,) and value.to_local().numel() == p.numel() // (
                        2 if large else 1
                    ), (name, p.shape, value.sbp)
                    split += large
        assert split >= 2
        assert any("reduce_scatter" in str(n.target) for n in graph._engine.program.graph.nodes)


class Stages(nn.Module):
    """Two layers on one rank each, as OneFlow's pipelines are written."""

    def __init__(self):
        super().__init__()
        flow.manual_seed(0)
        self.places = [flow.placement("cpu", [r]) for r in range(2)]
        self.first, self.second = (
            nn.Linear(6, 8).to_global(self.places[0], B),
            nn.Linear(8, 4).to_global(self.places[1], B),
        )

    def forward(self, x):
        hidden = flow.relu(self.first(x.to_global(placement=self.places[0], sbp=B)))
        return self.second(hidden.to_global(placement=self.places[1], sbp=B))


@check
def a_pipeline_equals_one_rank(names=("adamw", "sgd")):
    for name in names:
        flow.manual_seed(0)
        layers = nn.Linear(6, 8), nn.Linear(8, 4)
        alone = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        expected = trained(alone, OPTIMIZERS[name](alone.parameters()), lambda t: t, clip=1e9)
        model = Stages()
        optimizer = OPTIMIZERS[name](model.parameters())
        target = lambda y: y.to_global(ALL, B).to_global(placement=model.places[1], sbp=B)
        losses = []
        for x, y in batches():
            loss = nn.functional.cross_entropy(model(x.to_global(ALL, B)), target(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert np.allclose(losses, expected, rtol=1e-4)
        graph_model = Stages()
        graph = Step(graph_model, OPTIMIZERS[name](graph_model.parameters()))
        got = [graph(x.to_global(ALL, B), target(y)).item() for x, y in batches()]
        assert np.allclose(got, losses, rtol=1e-4), (got, losses)
        for p, q in zip(graph_model.parameters(), model.parameters()):
            assert p.placement == q.placement and np.allclose(p.numpy(), q.numpy(), atol=1e-4)


@check
def a_gradient_overflows_on_one_stage():
    """No stage steps, and the scale shrinks on all ranks, eager and in a graph; then all step as without a scale."""

    class Scaled(Step):
        def __init__(self, model, optimizer, scaler):
            super().__init__(model, optimizer)
            self.set_grad_scaler(scaler)

    (x, y), *_ = batches()
    for in_graph in (False, True):
        model = Stages()
        with flow.no_grad():
            model.second.weight.mul_(1e-20)  # the gradients of the first stage are small
        before = [p.numpy().copy() for p in model.parameters()]
        optimizer, scaler = (
            OPTIMIZERS["sgd"](model.parameters()),
            flow.amp.GradScaler(init_scale=3e38, backoff_factor=1e-30),
        )
        x, y = (t if t.is_global else t.to_global(ALL, B) for t in (x * 10, y))
        y = y.to_global(placement=model.places[1], sbp=B)
        graph = Scaled(model, optimizer, scaler) if in_graph else None
        for moves in (False, True):
            if in_graph:
                graph(x, y)
            else:
                optimizer.zero_grad()
                scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
                scaler.step(optimizer)
                scaler.update()
            assert np.isclose(scaler.get_scale(), 3e8), scaler.get_scale()
            changed = [not np.array_equal(p.numpy(), old) for p, old in zip(model.parameters(), before)]
            assert all(changed[2:]) if moves else not any(changed), (in_graph, changed)


@check
def a_convolution_on_one_stage():
    """The ranks outside of a placement wait in no call that the ranks in it do not make."""
    first, last = flow.placement("cpu", [0]), flow.placement("cpu", [1])

    class Net(nn.Module):
        def __init__(self, places):
            super().__init__()
            flow.manual_seed(0)
            self.places, self.conv, self.last = (
                places,
                nn.Conv2d(3, 4, 3).to_global(places[0], B),
                nn.Linear(4, 2).to_global(places[1], B),
            )

        def forward(self, x):
            return (
                self.last(self.conv(x).mean((2, 3)).to_global(placement=self.places[1], sbp=B)).pow(2).sum()
            )

    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    image = flow.arange(2 * 3 * 25).reshape(2, 3, 5, 5) / 100
    weights = []
    for places in ((ALL, ALL), (first, last)):
        model = Net(places)
        step, x = Step(model), image.to_global(ALL, B).to_global(placement=places[0], sbp=B)
        step(x), step(x)
        loss = model(x)
        loss.backward()
        weights.append([loss.numpy(), model.conv.weight.numpy(), model.conv.weight.grad.numpy()])
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(*weights))


@check
def rules_on_one_stage():
    """A rank that holds no part finds the rules that the others find, and takes the results that an operator leaves out."""
    flow.manual_seed(0)
    first, x = flow.placement("cpu", [0]), flow.randn(4, 6)
    for rule, bias_rule in ((S0, S0), (S0, B), (S1, B), (B, S0)):
        layer, norm = nn.Linear(6, 6), nn.LayerNorm(6)
        norm.weight.requires_grad_(False), norm.bias.requires_grad_(False)
        results = []
        for placed in (False, True):
            data = x.to_global(ALL, B).to_global(placement=first, sbp=B) if placed else x
            weight, bias = (
                p.detach().to_global(ALL, B).to_global(placement=first, sbp=r) if placed else p
                for p, r in ((layer.weight, rule), (layer.bias, bias_rule))
            )
            weight.requires_grad_(), bias.requires_grad_()
            weight.grad = bias.grad = None
            groups = nn.functional.group_norm(data.to_global(sbp=S0) if placed else data, 2)
            h = nn.functional.linear(data, weight, bias) + groups
            if placed:
                told = [None] * WORLD
                flow.distributed.all_gather_object(told, str(h.sbp))
                assert len(set(told)) == 1, (rule, bias_rule, told)
            a, b, c = flow.nn.functional.layer_norm(h, (6,)).view(4, 3, 2).permute(1, 0, 2).unbind(0)
            h = norm.to_global(first, B)(h) if placed else norm(h)
            (flow.cat([a * b, c], 1).sum(1, keepdim=True) * h.square()).sum().backward()
            results.append([t.numpy() for t in (h.detach(), weight.grad, bias.grad)])
        assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(*results)), (rule, bias_rule)


@check
def positions_on_one_stage():
    values = np.random.RandomState(0).randn(2, 3, 4).astype(np.float32)
    for stage in (flow.placement("cpu", [0]), flow.placement("cpu", [1])):
        x = flow.tensor(values).to_global(ALL, B).to_global(placement=stage, sbp=B)
        for find in (
            lambda t: t.argmax(-1),
            lambda t: t.argmin(1, keepdim=True),
            lambda t: t.argmax(),
            lambda t: t.max(-1)[1],
            lambda t: flow.argmin(t, 0),
        ):
            is_(find(x), find(flow.tensor(values)).numpy(), B)


@check
def norms_of_narrow_data_on_one_stage():
    """As autocast makes them: bfloat16 data and float32 weights."""
    first, F = flow.placement("cpu", [0]), nn.functional
    flow.manual_seed(0)
    values = flow.randn(4, 4, 6)

    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.groups, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm(6)

        def forward(self, x):
            x = (x * 1).bfloat16()
            return (F.relu(self.groups(x)).float() + F.relu(self.layer(x)).float()).square().mean()

    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

        def build(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    results = []
    for placed in (False, True):
        eager, captured, x = Norms(), Norms(), values.clone()
        if placed:
            eager.to_global(first, B), captured.to_global(first, B)
            x = x.to_global(ALL, B).to_global(placement=first, sbp=S0)
        x.requires_grad_()
        loss, step = eager(x), Step(captured)
        loss.backward()
        results.append(
            [
                t.detach().numpy()
                for t in (
                    loss,
                    x.grad,
                    eager.groups.weight.grad,
                    eager.layer.bias.grad,
                    step(x.detach()),
                    step(x.detach()),
                    *captured.parameters(),
                )
            ]
        )
    assert all(np.allclose(a, b, atol=0.02) for a, b in zip(*results)), results


@check
def dtypes_on_one_stage():
    """If a kernel refuses a call, every rank refuses it, so that all ranks continue with the same calls."""
    first = flow.placement("cpu", [0])

    def results(mask, x, i):
        return (
            1 - mask,
            1.0 - mask,
            mask - mask,
            mask - x,
            x - mask,
            mask - 1,
            mask.sub(1),
            flow.sub(1, mask),
            mask + mask,
            mask * x,
            i // 2,
        )

    def written(mask, x, i):
        return i.clone().sub_(x), i.clone().mul_(x), i.clone().sub_(mask), x.clone().sub_(mask)

    class Step(nn.Graph):
        def build(self, *args):
            return results(*args)

    query = (
        flow.ones(2, 2, 4, 3, dtype=flow.bfloat16)
        .to_global(ALL, B)
        .to_global(placement=first, sbp=B)
        .requires_grad_()
    )
    scores = flow._scaled_dot_product_flash_attention_for_cpu(query, query, query)
    assert [t.dtype for t in scores] == [flow.bfloat16, flow.float32]
    nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert query.grad.dtype == flow.bfloat16 and np.isclose(query.grad.float().numpy().sum(), 48)
    local = flow.tensor([True, False, True]), flow.tensor([1.5, 2.0, 3.0]), flow.tensor([5, 6, 7])
    staged = [t.to_global(ALL, B).to_global(placement=first, sbp=B) for t in local]
    expected = results(*local), results(*local), written(*local)
    for got, wanted in zip((results(*staged), Step()(*staged), written(*staged)), expected):
        for i, (g, w) in enumerate(zip(got, wanted)):
            assert g.dtype == w.dtype and g.numpy().tolist() == w.tolist(), (i, g, w)


@check
def graphs_of_larger_parts():
    """Batch norm, dropout, accumulation, checkpointing, a schedule, mixed precision, closures, save and resume."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            flow.manual_seed(0)
            self.conv, self.norm, self.drop, self.last = (
                nn.Conv2d(1, 4, 3),
                nn.BatchNorm2d(4),
                nn.Dropout(0.5),
                nn.Linear(64, 4),
            )

        def forward(self, x):
            return self.last(self.drop(self.norm(self.conv(x)).relu().flatten(1)))

    flow.manual_seed(2)
    x, y = flow.randn(8, 1, 6, 6), flow.randint(0, 4, (8,))
    gx, gy = (t.to_global(ALL, B).to_global(sbp=S0) for t in (x, y))
    for drop in (0.0, 0.5):
        nets = Net(), Net().to_global(ALL, B)
        for net in nets:
            net.drop.p = drop
        make = lambda net: flow.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        optimizers = [make(n) for n in nets]
        graphs = [Step(n, o, flow.optim.lr_scheduler.StepLR(o, 2, 0.5)) for n, o in zip(nets, optimizers)]
        for g in graphs:
            g.config.set_gradient_accumulation_steps(2)
            g.model.conv.to(nn.graph.GraphModule).activation_checkpointing = True
        for _ in range(4):
            a, b = graphs[0](x, y), graphs[1](gx, gy)
            assert b.shape == a.shape
            if drop == 0:
                assert np.allclose(a.numpy(), b.numpy(), rtol=1e-3), (a, b)
        assert optimizers[1].param_groups[0]["lr"] == optimizers[0].param_groups[0]["lr"] == 0.025
        told = flow.tensor(nets[1].last.weight.to_local().detach().numpy()).to_global(ALL, S0).numpy()
        assert (told[:4] == told[4:]).all()  # the ranks' copies stayed the same
    state = graphs[1].state_dict()
    again = Net().to_global(ALL, B)
    resumed = Step(again, make(again))
    resumed.load_state_dict(state)
    assert np.allclose(again.last.weight.numpy(), nets[1].last.weight.numpy())
    scale = flow.ones(4, placement=ALL, sbp=B)

    class Closure(nn.Graph):
        def build(self, t):
            return t * scale

    graph = Closure()
    t = flow.ones(2, 4, placement=ALL, sbp=S0)
    is_(graph(t), np.ones((2, 4)), S0)
    scale.mul_(3)
    is_(graph(t), np.full((2, 4), 3.0), S0)


def new_file():
    """A path in a folder that all ranks see."""
    import os
    import tempfile

    box = [tempfile.mkdtemp() if RANK == 0 else None]
    flow.comm.barrier()
    flow.distributed.broadcast_object_list(box, 0)
    return os.path.join(box[0], "saved")


@check
def graphs_resume_from_files():
    """The states of a file are on the rank that read it, those of a graph where its parameters are."""

    def split(model):
        return model.to_global(ALL, B).to_global(sbp=S0)

    for make, zero in (
        (lambda: network().to_global(ALL, B), True),
        (lambda: split(network()), False),
        (Stages, False),
    ):
        path, losses = new_file(), []
        for resumed in (False, True):
            model = make()
            graph = Step(model, OPTIMIZERS["adamw"](model.parameters()))
            graph.config.enable_zero(zero, stage=2, shard_min_size=8)
            if resumed:
                graph.load_state_dict(flow.load(path, global_src_rank=0))
                assert all(
                    p.placement == v.placement
                    for p, state in graph._opts[0][0].state.items()
                    for v in state.values()
                    if v.is_global
                )
            for i, (x, y) in enumerate(batches()):
                if i == 1 and not resumed:
                    flow.save(graph.state_dict(), path, global_dst_rank=0)
                    flow.comm.barrier()
                if i or not resumed:
                    y = y.to_global(ALL, B)
                    losses.append(
                        graph(
                            x.to_global(ALL, B),
                            y.to_global(placement=model.places[1], sbp=B) if make is Stages else y,
                        ).item()
                    )
        after = len(losses) // 2 + 1
        assert np.allclose(losses[1:after], losses[after:], rtol=1e-5), losses


@check
def averaged_gradients():
    """DistributedDataParallel of a module with a reentrant checkpoint, of results in an object of the program's own, after a backward() that raised."""
    from types import SimpleNamespace

    from oneflow.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self, recomputed):
            super().__init__()
            flow.manual_seed(0)
            self.recomputed, self.first, self.second = recomputed, nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x):
            hidden = lambda t: self.first(t).tanh()
            return SimpleNamespace(
                y=self.second(
                    checkpoint(hidden, x.clone().requires_grad_(), use_reentrant=True)
                    if self.recomputed
                    else hidden(x)
                )
            )

    def raised(grad):
        raise ValueError("in backward")

    (x, y), *_ = batches()
    for recomputed in (True, False):
        alone, net = Net(recomputed), nn.parallel.DistributedDataParallel(Net(recomputed))
        loss = net(x).y.sum()
        hook = net.first.weight.register_hook(raised)
        try:
            loss.backward()
        except ValueError:
            hook.remove()
            net.zero_grad()
        for _ in range(2):
            nn.functional.cross_entropy(net(x.chunk(WORLD)[RANK]).y, y.chunk(WORLD)[RANK]).backward()
            nn.functional.cross_entropy(alone(x).y, y).backward()
        for p, q in zip(net.parameters(), alone.parameters()):
            assert np.allclose(p.grad.numpy(), q.grad.numpy(), atol=1e-6)


@check
def other_data():
    """Assigning `.data` changes the tensor, as when a module on a placement changes its dtype."""
    first = flow.placement("cpu", [0])
    for place in (ALL, first):
        model = nn.Linear(2, 3).double().to_global(place, B)
        weight, values = model.weight, model.weight.numpy()
        model(flow.ones(2, 2, placement=place, sbp=B).double()).sum().backward()
        model.float()
        assert (
            model.weight is weight
            and weight.dtype == weight.to_local().dtype == weight.grad.dtype == flow.float32
        )
        is_(weight, values, B)
        is_(
            model(flow.ones(2, 2, placement=place, sbp=B)), np.ones((2, 2)) @ values.T + model.bias.numpy(), B
        )
        weight.data = flow.full((4, 1), 2.0, placement=place, sbp=B).to_global(sbp=S0)
        is_(weight, np.full((4, 1), 2.0), S0)
        weight.data.add_(1)
        is_(weight, np.full((4, 1), 3.0), S0)

    class Assigned(nn.Graph):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(flow.ones(2, placement=ALL, sbp=B))

        def build(self, x):
            self.weight.data = self.weight.data + x
            return self.weight * 1

    graph = Assigned()
    for i in range(3):
        is_(graph(flow.ones(2, placement=ALL, sbp=B)), [i + 2.0] * 2, B)
    is_(graph.weight, [4.0, 4.0], B)


@check
def files():
    import os

    path = new_file()
    x = mine().to_global(ALL, S0)
    flow.save({"x": x, "n": 3}, path, global_dst_rank=0)
    flow.comm.barrier()
    back = flow.load(path, global_src_rank=0)
    assert back["n"] == 3 and back["x"].placement == flow.placement("cpu", [0])
    is_(back["x"], both(), B)
    is_(back["x"].to_global(ALL, S0), both(), S0, mine())
    is_(flow.load(path, map_location=ALL)["x"], both(), B)
    model = network().to_global(ALL, B)
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
    flow.save(model.state_dict(), path + "2", global_dst_rank=0)
    flow.comm.barrier()
    other = network().to_global(ALL, B).to_global(sbp=S0)
    other.load_state_dict(
        flow.load(path + "2", global_src_rank=0)
    )  # from rank 0's placement to the parameters' own
    for p, q in zip(other.parameters(), model.parameters()):
        is_(p, q.detach().numpy(), S0)
    is_(
        flow.zeros(4, 2, placement=ALL, sbp=S1).copy_(np.arange(8.0).reshape(4, 2)),
        np.arange(8.0).reshape(4, 2),
        S1,
    )
    import copy
    import pickle

    from oneflow.utils.global_view.global_utils import src_sbp_broadcast

    assert src_sbp_broadcast({"rank": RANK}, 1) == {"rank": 1}
    for wrong, name in (
        (FileNotFoundError, "3"),
        (RuntimeError, "4"),
    ):  # every rank raises the error of the reading rank
        if RANK == 0 and name == "4":
            flow.save(flow.ones(100), path + name)
            os.truncate(path + name, 200)
        try:
            flow.load(path + name, global_src_rank=0)
        except wrong as error:
            assert path + name in str(error), error
        else:
            raise AssertionError("a file was read that is not there")
    is_(copy.deepcopy(x), both(), S0)
    is_(pickle.loads(pickle.dumps(x)), both(), S0)
    assert isinstance(next(copy.deepcopy(model).parameters()), nn.Parameter)


@check
def a_rank_that_never_comes_is_named():
    """The first collective call, where the ranks connect to each other."""
    if RANK == 1:
        return
    try:
        flow.ones(2).to_global(ALL, B)
    except RuntimeError as error:
        assert "rank 1 is missing" in str(error) and "ONEFLOW_TIMEOUT_SECONDS" in str(error), error
    else:
        raise AssertionError("a collective call of two ranks succeeded on one")


@check
def a_kernel_fails_on_one_rank():
    """The others end too: they must not wait in another call than that rank."""
    index = flow.tensor([[0], [1]] if RANK == 0 else [[2], [9]]).to_global(ALL, S0)
    flow.gather(flow.ones(4, 4, placement=ALL, sbp=S0), 1, index).sum().item()


if __name__ == "__main__":
    failed = []
    for name in sys.argv[1:]:
        try:
            CHECKS[name]()
        except BaseException:
            failed.append(name)
            print(f"rank {RANK}: {name}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            break  # the other ranks may wait in another call: the launcher ends them
    sys.exit(1 if failed else 0)
