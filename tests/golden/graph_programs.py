"""Programs whose OneFlow results define the behavior of nn.Graph. record_graph.py runs them with the original
OneFlow, tests/graph/test_recorded_programs.py with this package.

Each function takes the module `flow` and returns lists, numbers and strings.
"""


def _graph(flow, build, module=None, optimizer=None):
    class Recorded(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            if module is not None:
                self.module = module
            if optimizer is not None:
                self.add_optimizer(optimizer)

    Recorded.build = build
    return Recorded()


def _vector(flow, *values):
    return flow.tensor(list(values), dtype=flow.float32)


def _results(graph, arguments, tensor, calls=3):
    """The results of some calls, then the values of `tensor`."""
    return [graph(*arguments).numpy().tolist() for _ in range(calls)] + [tensor.numpy().tolist()]


def _write_to_argument(write):
    def program(flow):
        def build(self, x, y):
            written = write(flow, x, y)
            return x + 0 if written is None else written + 0

        x = _vector(flow, -1, 2)
        return _results(_graph(flow, build), (x, _vector(flow, 10, 20)), x)

    return program


def _write_to_captured(write):
    def program(flow):
        captured = _vector(flow, 1, 2)

        def build(self, x):
            write(flow, captured, x)
            return captured + 0

        return _results(_graph(flow, build), (_vector(flow, 1, 1),), captured)

    return program


def _add(flow, x, y):
    x += y


def _set_item(flow, x, y):
    x[0:1] = y[0:1]


def _relu(flow, x, y):
    flow.nn.functional.relu(x, inplace=True)


WRITES = {
    "+=": _add,
    "mul_": lambda flow, x, y: x.mul_(2),
    "fill_": lambda flow, x, y: x.fill_(3.0),
    "clamp_": lambda flow, x, y: x.clamp_(0, 1),
    "set item": _set_item,
    "relu": _relu,
}


def argument_given_twice(flow):
    def build(self, x, y):
        x += 1
        return x * 100 + y

    x = _vector(flow, 1, 2)
    return _results(_graph(flow, build), (x, x), x)


def argument_in_list(flow):
    def build(self, tensors):
        tensors[0] += 1
        return tensors[0] * 2

    x = _vector(flow, 1, 2)
    return _results(_graph(flow, build), ([x],), x)


def captured_in_list(flow):
    captured = [_vector(flow, 1, 2)]

    def build(self, x):
        captured[0].add_(x)
        return captured[0] * 2

    return _results(_graph(flow, build), (_vector(flow, 1, 1),), captured[0])


def argument_of_training(flow):
    layer = flow.nn.Linear(2, 1, bias=False)
    flow.nn.init.ones_(layer.weight)

    def build(self, x):
        x *= 2
        loss = self.module(x).sum()
        loss.backward()
        return loss

    x = flow.tensor([[1.0, 2.0]])
    return (
        _results(_graph(flow, build, layer, flow.optim.SGD(layer.parameters(), lr=0.1)), (x,), x)
        + layer.weight.numpy().tolist()
    )


def running_statistics(flow):
    layer = flow.nn.BatchNorm1d(2)
    graph = _graph(flow, lambda self, x: self.module(x), layer)
    return _results(graph, (flow.tensor([[1.0, 2.0], [3.0, 5.0]]),), layer.running_mean)


def _class_targets(shape, **options):
    def program(flow):
        scores, targets = flow.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), flow.tensor([2, 0]).reshape(shape)
        scores.requires_grad = True
        if "weight" in options:
            options["weight"] = _vector(flow, 1, 2, 3)
        loss = flow.nn.CrossEntropyLoss(**options)
        out = loss(scores, targets)
        out.sum().backward()
        return [
            list(out.shape),
            out.numpy().tolist(),
            scores.grad.numpy().tolist(),
            _graph(flow, lambda self, x, t: self.module(x, t), loss)(scores.detach(), targets)
            .numpy()
            .tolist(),
        ]

    return program


def lazy_parameters(flow):
    """is_lazy of what build() and forward() read through the graph."""
    seen = []

    class Scale(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = flow.nn.Parameter(_vector(flow, 1, 2))
            self.register_buffer("shift", _vector(flow, 3, 4))
            self.plain = _vector(flow, 1, 1)

        def forward(self, x):
            seen.extend([self.weight.is_lazy, self.shift.is_lazy, self.plain.is_lazy, x.is_lazy])
            return self.weight * x + self.shift

    module = Scale()

    def build(self, x):
        seen.extend([self.module.weight.is_lazy, self.module.shift.is_lazy])
        return self.module(x)

    out = _graph(flow, build, module)(_vector(flow, 1, 1))
    return [*seen, module.weight.is_lazy, module.shift.is_lazy, out.is_lazy]


def state_of_training(flow):
    """The keys of graph.state_dict() that OneFlow has, and whether each value is a tensor or a dict of
    tensors.
    """
    layer = flow.nn.Linear(2, 1)
    optimizer = flow.optim.Adam(layer.parameters(), lr=0.1)

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = layer
            self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 2))

        def build(self, x):
            loss = self.module(x).sum()
            loss.backward()
            return loss

    graph = Training()
    graph(flow.ones(1, 2))
    state = graph.state_dict()
    tensors = [
        t for value in state.values() for t in (value.values() if isinstance(value, dict) else [value])
    ]
    return [
        sorted(
            key
            for key in state
            if not key.endswith("-step") and not key.startswith(("optimizer_", "lr_scheduler_"))
        ),
        all(isinstance(t, flow.Tensor) for t in tensors),
    ]


PROGRAMS = {
    **{f"argument: {name}": _write_to_argument(write) for name, write in WRITES.items()},
    **{f"captured: {name}": _write_to_captured(write) for name, write in WRITES.items()},
    **{
        f.__name__: f
        for f in (
            argument_given_twice,
            argument_in_list,
            captured_in_list,
            argument_of_training,
            running_statistics,
            lazy_parameters,
            state_of_training,
        )
    },
    **{
        f"CrossEntropyLoss {shape} {options}": _class_targets(shape, **options)
        for shape in ([2, 1], [2])
        for options in (
            {},
            {"reduction": "sum"},
            {"reduction": "none"},
            {"reduction": "none", "ignore_index": 0},
            {"weight": True},
            {"label_smoothing": 0.1},
        )
    },
}
