"""A step that runs on the inductor backend and on the aten backend."""

import torch

import oneflow as flow


def results_of_backend(backend, build, modules, optimizer, batches, options):
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            for name, module in modules.items():
                setattr(self, name, module)
                if optimizer is not None:
                    self.add_optimizer(optimizer(module.parameters()))
            self.config.set_backend(backend)
            for key, value in options.items():
                setattr(self.config._engine, key, value)

    G.build = build
    graph, seen = G(), []
    for batch in batches:
        batch = [t.clone() for t in batch]
        out = graph(*batch)
        seen += [t.clone() for t in (out if isinstance(out, tuple) else (out,))] + batch
    return seen + [v.clone() for m in modules.values() for v in m.state_dict().values()]


def assert_backends_agree(build, make, batches, optimizer=None, tolerance=2e-4, **options):
    results = []
    for backend in ("aten", "inductor"):
        torch.manual_seed(0)
        results.append(results_of_backend(backend, build, make(), optimizer, batches, options))
    for a, b in zip(*results, strict=True):
        # other order of sums; Adam's first steps magnify it
        assert (
            a.dtype == b.dtype
            and a.stride() == b.stride()
            and torch.allclose(a.float(), b.float(), rtol=10 * tolerance, atol=tolerance)
        ), (a, b)


def rows(*shape):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(*shape, generator=generator),) for _ in range(3)]


def sgd(p):
    return torch.optim.SGD(p, lr=0.05, momentum=0.9)
