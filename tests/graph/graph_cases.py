"""Helpers of the graph tests: the same training loop in eager torch and as an nn.Graph, compared bitwise."""

import copy

import torch

import oneflow as flow


def train_eager(model, make_optimizer, make_scheduler, loss_of, batches, seed=7):
    optimizer = make_optimizer(model.parameters())
    scheduler = make_scheduler(optimizer) if make_scheduler else None
    torch.manual_seed(seed)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.detach().clone())
    return losses, optimizer


def train_graph(model, make_optimizer, make_scheduler, loss_of, batches, seed=7, backend="aten", setup=None):
    optimizer = make_optimizer(model.parameters())
    scheduler = make_scheduler(optimizer) if make_scheduler else None

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer, lr_sch=scheduler)
            self.config.set_backend(backend)
            self.config.passes(check=True)
            if setup is not None:
                setup(self)

        def build(self, *batch):
            loss = loss_of(self.model, *batch)
            loss.backward()
            return loss

    graph = Train()
    torch.manual_seed(seed)
    losses = [graph(*batch).clone() for batch in batches]
    return losses, optimizer, graph


def assert_same_training(
    model, make_optimizer, loss_of, batches, make_scheduler=None, same=torch.equal, setup=None
):
    """10 steps in eager and in a graph from the same start: losses, weights, buffers, optimizer state and generator agree."""
    other = copy.deepcopy(model)
    expected, optimizer_e = train_eager(model, make_optimizer, make_scheduler, loss_of, batches)
    state_e = torch.get_rng_state()
    got, optimizer_g, graph = train_graph(
        other, make_optimizer, make_scheduler, loss_of, batches, setup=setup
    )
    assert torch.equal(state_e, torch.get_rng_state()), "the graph drew other random numbers than eager"
    for step, (a, b) in enumerate(zip(expected, got)):
        assert same(a, b), f"loss differs at step {step}: eager {a}, graph {b}"
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values()):
        assert same(a, b), f"{name} differs after training"
    flat_e, flat_g = optimizer_e.state_dict()["state"], optimizer_g.state_dict()["state"]
    assert flat_e.keys() == flat_g.keys()
    for index in flat_e:
        for key, a in flat_e[index].items():
            b = flat_g[index][key]
            assert same(a, b) if isinstance(a, torch.Tensor) else a == b, (
                f"optimizer state {index}.{key} differs"
            )
    return graph


def graph_of(build, optimizer=None, scaler=None, **modules):
    """An aten graph of these modules whose build() is `build(*args, **kwargs)`."""

    class Program(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            for name, module in modules.items():
                setattr(self, name, module)
            if optimizer is not None:
                self.add_optimizer(optimizer)
            if scaler is not None:
                self.set_grad_scaler(scaler)
            self.config.set_backend("aten")

        def build(self, *args, **kwargs):
            return build(*args, **kwargs)

    return Program()


def graph_with(build, modules=(), optimizers=(), **config):
    """An aten graph whose method build(self, ...) is `build`; `config` are options of the engine."""

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            for name, module in dict(modules).items():
                setattr(self, name, module)
            for optimizer in optimizers:
                self.add_optimizer(optimizer)
            self.config.set_backend("aten")
            self.config.passes(check=True)
            for key, value in config.items():
                setattr(self.config._engine, key, value)

    G.build = build
    return G()
