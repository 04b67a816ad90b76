"""Checks of larger graphs, files and failures, which every rank runs; see program.py."""

import os
import tempfile

import numpy as np
from checks import ALL, RANK, S0, S1, WORLD, B, both, is_, mine
from checks_of_training import OPTIMIZERS, Stages, Step, batches, network

import oneflow as flow
from oneflow import nn


def graphs_of_larger_parts():
    """Batch norm, dropout, accumulation, checkpointing, a schedule, mixed precision, closures, save and
    resume.
    """

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

    box = [tempfile.mkdtemp() if RANK == 0 else None]
    flow.comm.barrier()
    flow.distributed.broadcast_object_list(box, 0)
    return os.path.join(box[0], "saved")


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


def state_of_a_scalar_parameter():
    """The moments of a parameter without dimensions are global like it; its step count is a number."""
    path = new_file()
    scale = nn.Parameter(flow.tensor(2.0).to_global(ALL, B))
    optimizer = flow.optim.AdamW([scale], lr=0.1)
    (scale * 3).backward()
    optimizer.step()
    flow.save(optimizer.state_dict(), path, global_dst_rank=0)
    flow.comm.barrier()
    resumed = flow.optim.AdamW([scale], lr=0.1)
    resumed.load_state_dict(flow.load(path, global_src_rank=0))
    state, expected = resumed.state[scale], optimizer.state[scale]
    assert state["exp_avg"].sbp == (B,) and state["exp_avg"].item() == expected["exp_avg"].item()
    assert not state["step"].is_global and state["step"] == expected["step"] == 1
    resumed.step()


def averaged_gradients():
    """DistributedDataParallel of a module with a reentrant checkpoint, of results in an object of the
    program's own, after a backward() that raised.
    """
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


def files():

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
    # from rank 0's placement to the parameters' own
    other.load_state_dict(flow.load(path + "2", global_src_rank=0))
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
    # every rank raises the error of the reading rank
    for wrong, name in (
        (FileNotFoundError, "3"),
        (RuntimeError, "4"),
    ):
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


def a_kernel_fails_on_one_rank():
    """The others end too: they must not wait in another call than that rank."""
    index = flow.tensor([[0], [1]] if RANK == 0 else [[2], [9]]).to_global(ALL, S0)
    flow.gather(flow.ones(4, 4, placement=ALL, sbp=S0), 1, index).sum().item()
