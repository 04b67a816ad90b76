"""A step that is followed in eager mode and in a graph."""

import copy

import torch
from graph_cases import graph_of


def inputs(count=5):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(6, 4, generator=generator) for _ in range(count)]


def follow(make_module, make_optimizer=lambda p: torch.optim.SGD(p, lr=0.1), forward=None, xs=None):
    """Train in eager and in a graph from one start; outputs, state and generator must agree bit for bit."""
    torch.manual_seed(0)
    eager = make_module()
    other = copy.deepcopy(eager)
    results = []
    for module, in_graph in ((eager, False), (other, True)):
        optimizer = make_optimizer(list(module.parameters()))

        def build(x, module=module):
            out = module(x) if forward is None else forward(module, x)
            loss = out.square().mean()
            loss.backward()
            return loss, out

        step = graph_of(build, optimizer, module=module) if in_graph else build
        torch.manual_seed(1)
        outs = []
        for x in xs or inputs():
            if not in_graph:
                optimizer.zero_grad()
            loss, out = step(x)
            if not in_graph:
                optimizer.step()
            outs.append((loss.detach().clone(), out.detach().clone()))
        results.append((outs, module.state_dict(), torch.get_rng_state()))
    (outs_e, state_e, rng_e), (outs_g, state_g, rng_g) = results
    for i, (a, b) in enumerate(zip(outs_e, outs_g)):
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]), f"step {i} differs"
    for name in state_e:
        assert torch.equal(state_e[name], state_g[name]), name
    assert torch.equal(rng_e, rng_g), "other random numbers than eager"
    return other
