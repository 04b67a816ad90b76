"""Modules that change in unusual ways between two calls: the graph follows the change."""

import contextlib
import copy
import functools
import pickle
import types

import pytest
import torch
from hostile_cases import X, verdict
from torch import nn
from torch.nn.utils import parametrize as P

import oneflow as flow


class Scaled(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x, scale=1.0):
        return self.linear(x) * scale


def test_second_parametrization_is_followed():

    class Doubled(nn.Module):
        def forward(self, weight):
            return weight * 2

    module = nn.Linear(4, 4)
    P.register_parametrization(module, "weight", Doubled())

    def build(x):
        return module(x)

    def change():
        P.register_parametrization(module, "weight", Doubled())

    assert verdict(build, change, module) == "followed"


def test_removed_parametrization_is_followed():

    class Doubled(nn.Module):
        def forward(self, weight):
            return weight * 2

    module = nn.Linear(4, 4)
    module.weight.detach().clone()
    P.register_parametrization(module, "weight", Doubled())

    def change():
        P.remove_parametrizations(module, "weight", leave_parametrized=False)

    def build(x):
        return module(x)

    assert verdict(build, change, module) == "followed"


def test_overridden_setattr_is_followed():

    class Doubling(Scaled):
        def __setattr__(self, name, value):
            super().__setattr__(name, value * 2 if name == "factor" else value)

        def forward(self, x):
            return self.linear(x) * self.factor

    module = Doubling(factor=1.0)

    def build(x):
        return module(x)

    def change():
        module.factor = 3.0

    assert verdict(build, change, module) == "followed"


def test_hook_that_changes_keyword_arguments():
    module = Scaled()
    hook_state = types.SimpleNamespace(factor=2.0)
    module.register_forward_pre_hook(
        lambda owner, arguments, keywords: (arguments, {**keywords, "scale": hook_state.factor}),
        with_kwargs=True,
    )

    def build(x):
        return module(x)

    def change():
        hook_state.factor = 3.0

    assert verdict(build, change, module) == "followed"


def test_hook_of_the_state_dict_is_followed():
    module = Scaled()
    module._register_state_dict_hook(
        lambda owner, state, prefix, metadata: (
            state.__setitem__("extra", torch.ones(1)) if getattr(module, "on", 0) else None
        )
    )
    module.on = 0

    def build(x):
        return module(x) * len(module.state_dict())

    def change():
        module.on = 1

    assert verdict(build, change, module) == "followed"


@pytest.mark.parametrize("name", ["a", "b"])
def test_parameter_replaced_in_or_added_to_a_parameter_dict_is_followed(name):

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})

        def forward(self, x):
            return x * sum(self.weights.values())

    module = Weighted()

    def build(x):
        return module(x)

    def change():
        module.weights[name] = nn.Parameter(torch.full((4,), 2.0))

    assert verdict(build, change, module) == "followed"


def test_buffer_that_becomes_persistent_is_followed():
    module = Scaled()
    module.register_buffer("b", torch.ones(4), persistent=False)

    def build(x):
        return module(x) * module.b * len(module.state_dict())

    def change():
        module.register_buffer("b", torch.ones(4), persistent=True)

    assert verdict(build, change, module) == "followed"


def test_weights_written_by_apply_are_followed():
    module = Scaled()

    def write(owner):
        for parameter in owner.parameters(recurse=False):
            parameter.data.fill_(0.5)

    def build(x):
        return module(x)

    def change():
        module.apply(write)

    assert verdict(build, change, module) == "followed"


def test_dtype_of_a_module_is_followed():
    module = Scaled()

    def build(x):
        return module(x.to(module.linear.weight.dtype)).float()

    def change():
        module.to(torch.float64)

    assert verdict(build, change, module) == "followed"


def test_shallow_copy_that_shares_its_modules_is_followed():
    module = Scaled(factor=2.0)
    shallow = copy.copy(module)

    def build(x):
        return shallow(x)

    def change():
        module.linear = nn.Linear(4, 4)

    assert verdict(build, change, shallow) == "followed"


def test_state_set_by_pickle_is_followed():
    module = pickle.loads(pickle.dumps(nn.Linear(4, 4)))

    def build(x):
        return module(x)

    def change():
        module.__setstate__(
            {**module.__dict__, "_parameters": {"weight": nn.Parameter(torch.ones(4, 4)), "bias": None}}
        )

    assert verdict(build, change, module) == "followed"


def test_bias_of_a_lazy_module_is_followed():
    module = nn.LazyLinear(4)
    module(X)

    def build(x):
        return module(x)

    def change():
        module.bias = None

    assert verdict(build, change, module) == "followed"


def test_getattr_of_a_module_is_followed():

    class Hidden(Scaled):
        def __getattr__(self, name):
            if name == "hidden":
                return self.table["value"]
            return super().__getattr__(name)

        def forward(self, x):
            return self.linear(x) * self.hidden

    module = Hidden(table={"value": 2.0})

    def build(x):
        return module(x)

    def change():
        module.table.update(value=3.0)

    assert verdict(build, change, module) == "followed"


def test_parameter_registered_later_is_followed():
    module = Scaled()

    def build(x):
        return module(x) * len(list(module.named_parameters()))

    def change():
        module.register_parameter("z", nn.Parameter(torch.ones(1)))

    assert verdict(build, change, module) == "followed"


def test_module_added_later_is_followed():
    module = Scaled()

    def build(x):
        return module(x) * len(list(module.modules()))

    def change():
        module.add_module("z", nn.ReLU())

    assert verdict(build, change, module) == "followed"


def test_partial_method_is_followed():

    class Owner:
        def scaled(self, value, factor):
            return value * factor

        doubled = functools.partialmethod(scaled, factor=2.0)

    owner = Owner()

    def build(x):
        return owner.doubled(x)

    def change():
        Owner.doubled = functools.partialmethod(Owner.scaled, factor=3.0)

    assert verdict(build, change) == "followed"


def test_context_manager_is_followed():
    factors = [2.0]

    @contextlib.contextmanager
    def last_factor():
        yield factors[-1]

    def build(x):
        with last_factor() as factor:
            return x * factor

    def change():
        factors.append(3.0)

    assert verdict(build, change) == "followed"


def test_batch_norm_that_averages_and_stops():
    graph, eager = nn.BatchNorm1d(4, momentum=None), nn.BatchNorm1d(4, momentum=None)

    class Normalized(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.norm = graph

        def build(self, x):
            return self.norm(x)

    normalized = Normalized()
    for step in range(4):
        if step == 2:
            graph.track_running_stats = eager.track_running_stats = False
        assert torch.equal(normalized(X), eager(X))
        assert torch.equal(graph.running_var, eager.running_var)
