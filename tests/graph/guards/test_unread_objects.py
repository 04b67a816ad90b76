"""Values that build() does not read, such as attributes of objects in a list, cause no program and no
warning.
"""

import gc
import subprocess
import sys
import time
import warnings

import pytest
import torch
from graph_cases import graph_of
from time_limits import seconds
from torch import nn

import oneflow as flow


class Layer:
    def __init__(self, factor):
        self.factor, self.calls = factor, 0


def by_loop(layers, x):
    for layer in layers:
        x = x * layer.factor
    return x


def by_enumerate(layers, x):
    for index, layer in enumerate(layers):
        x = x * layer.factor + index
    return x


def by_zip(layers, x):
    for layer, shift in zip(layers, (1, 2)):
        x = x * layer.factor + shift
    return x


def by_unpacking(layers, x):
    first, second = layers
    return x * first.factor * second.factor


def by_starred_unpacking(layers, x):
    first, *rest = layers
    return x * first.factor * rest[0].factor


def by_length(layers, x):
    return x * layers[0].factor * len(layers) * layers[1].factor


def by_map(layers, x):
    return x * max(map(lambda layer: layer.factor, layers)) * layers[0].factor


@pytest.mark.parametrize(
    "body", [by_loop, by_enumerate, by_zip, by_unpacking, by_starred_unpacking, by_length, by_map]
)
def test_counter_of_an_object_in_a_list(body):
    layers = [Layer(2.0), Layer(3.0)]

    class Walks(flow.nn.Graph):
        def build(self, x):
            return body(layers, x)

    graph, x = Walks(), torch.ones(3)
    for _ in range(3):
        assert torch.equal(graph(x), body(layers, x))
        layers[0].calls += 1
    assert len(graph._engine.programs) == 1
    layers[1].factor = 5.0
    assert torch.equal(graph(x), body(layers, x))
    layers[0] = Layer(7.0)
    assert torch.equal(graph(x), body(layers, x))


def test_the_inside_of_a_custom_operator_is_torchs():
    @torch.library.custom_op("unread_objects::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    halve.register_fake(torch.empty_like)

    class Halve(flow.nn.Graph):
        def build(self, x):
            return halve(x)

    graph = Halve()
    graph.config.strict(True)  # reads without a guard are errors
    for value in (1.0, 3.0):
        assert graph(torch.full((2,), value)).tolist() == [value / 2] * 2
    assert len(graph._engine.programs) == 1


def test_a_module_is_run_once_where_build_imports_it(tmp_path, monkeypatch):
    """Reads during the import of a module cause no guard and no warning."""
    (tmp_path / "imported_by_build.py").write_text(
        "import dataclasses\n"
        "class Base: pass\n"
        "@dataclasses.dataclass(slots=True)\n"
        "class Settings(Base):\n"
        "    factor: int = 3\n"
        "Settings.__bases__ = (Base,)\n"
        "factor = Settings().factor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    class Scaled(flow.nn.Graph):
        def build(self, x):
            import imported_by_build

            return x * imported_by_build.factor

    graph = Scaled()
    graph.config.strict(True)
    assert [graph(torch.ones(1)).item() for _ in range(2)] == [3, 3]
    assert len(graph._engine.programs) == 1
    monkeypatch.setattr("imported_by_build.factor", 5)
    assert graph(torch.ones(1)).item() == 5


def test_the_bases_that_build_reads_are_no_change_of_type():
    class Scaled(flow.nn.Graph):
        def build(self, x):
            return x * len(Layer.__mro__)

    graph = Scaled()
    graph.config.strict(True)
    assert [graph(torch.ones(1)).item() for _ in range(2)] == [2, 2]
    assert len(graph._engine.programs) == 1


FIRST_KERNEL = """
import oneflow as flow

class Masked(flow.nn.Graph):
    def build(self, x, mask):
        return flow._C.fused_scale_mask_softmax_dropout(x, mask, fill_value=-1e4, scale=1.0, p=0.0)[0]

Masked()(flow.ones(1, 1, 2, 2), flow.ones(1, 1, 2, 2).bool())
"""


def test_the_load_of_the_kernels_is_no_read_of_a_file():
    command = [sys.executable, "-W", "error::UserWarning", "-c", FIRST_KERNEL]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds(120))
    assert run.returncode == 0, run.stderr


def without_warnings(graph, *inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return graph(*inputs)


def test_two_optimizers_cause_no_warning():
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))

    class Trains(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layers = layers
            for layer in layers:
                self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.1))

        def build(self, x):
            loss = self.layers(x).sum()
            loss.backward()
            return loss

    without_warnings(Trains(), torch.ones(4, 3))


def test_a_base_class_of_the_type_of_an_argument_causes_no_warning():
    class Scaled(flow.nn.Graph):
        def build(self, x):
            return x * (3.0 if issubclass(type(x), torch.Tensor) else 2.0)

    assert without_warnings(Scaled(), torch.ones(1)).item() == 3.0


@pytest.mark.parametrize("optimizers", [1, 2])
@pytest.mark.parametrize("collects", [False, True])
def test_no_warning_with_several_optimizers_or_if_build_collects_garbage(optimizers, collects):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            for layer in list(model)[:optimizers]:
                self.add_optimizer(torch.optim.SGD(layer.parameters(), lr=0.1))

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            if collects:
                gc.collect()
            return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Training()(torch.ones(2, 4))


def test_a_callback_of_the_garbage_collector_is_not_code_of_build():
    times = []
    callback = lambda phase, info: times.append(time.perf_counter())
    gc.callbacks.append(callback)

    def build(x):
        gc.collect()
        return x * 2

    try:
        assert without_warnings(graph_of(build), torch.ones(2)).tolist() == [2, 2]
    finally:
        gc.callbacks.remove(callback)
    assert times


def test_numbers_of_the_capture_have_no_guards():
    """An optimizer computes with numbers that stand for its rate and its counters.

    No later call meets them.
    """
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())

    def build(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    step = graph_of(build, optimizer, model=model)
    step(torch.ones(2, 4))
    guards = step._engine.last_entry.python_guards.guards
    assert not [guard.label for guard in guards if "Scalar" in guard.label]
