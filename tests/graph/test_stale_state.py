"""A graph follows state that a user changes between calls, bitwise equal to eager: optimizer fields,
parameters, hooks, structure.
"""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch.nn.utils import parametrizations, prune

import oneflow as flow

STEPS = 6


class Net(nn.Module):
    """Two layers and a norm; `body` is what forward computes."""

    def __init__(self, body=None):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.body = body

    def forward(self, x):
        y = self.second(torch.relu(self.norm(self.first(x))))
        return y if self.body is None else self.body(self, y)


def train(model, make_optimizer, change, as_graph, schedule=None):
    """Losses, state and generator of six steps; `change(model, optimizer)` runs before the third."""
    optimizer = make_optimizer(model)
    scheduler = schedule(optimizer) if schedule else None
    model.optimizer_of_build = [optimizer]

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, optimizer, model=model) if as_graph else build
    torch.manual_seed(0)
    batches = [torch.randn(6, 4) for _ in range(STEPS)]
    losses = []
    for k, x in enumerate(batches):
        if k == 2:
            change(model, optimizer)
        optimizer.zero_grad()
        losses.append(step(x).item())
        if not as_graph:
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
    names = {p: name for name, p in model.named_parameters()}
    optimizer_state = {names[p]: state for p, state in optimizer.state.items() if p in names and state}
    return losses, model.state_dict(), optimizer_state, torch.get_rng_state()


def assert_follows(change, make=Net, make_optimizer=None, schedule=None):
    make_optimizer = make_optimizer or (lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9))
    expected = train(seeded(make), make_optimizer, change, False, schedule)
    got = train(seeded(make), make_optimizer, change, True, schedule)
    assert expected[0] == got[0]
    assert_equal_state(expected[1], got[1])
    assert_equal_state(expected[2], got[2])
    assert torch.equal(expected[3], got[3])


def seeded(make):
    torch.manual_seed(1)
    return make()


def assert_equal_state(expected, got):
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, torch.Tensor) and torch.equal(expected, got)
    elif isinstance(expected, dict):
        assert expected.keys() == got.keys()
        for key in expected:
            assert_equal_state(expected[key], got[key])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(got)
        for pair in zip(expected, got):
            assert_equal_state(*pair)
    else:
        assert expected == got


# -- optimizers ----------------------------------------------------------------------------------------------


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def two_groups(model):
    return torch.optim.SGD(
        [{"params": list(model.first.parameters())}, {"params": list(model.second.parameters()), "lr": 0.02}],
        lr=0.1,
        momentum=0.9,
    )


def replace_last_state(model, optimizer):
    parameter = model.second.bias
    optimizer.state[parameter] = {k: v.clone().fill_(0.5) for k, v in optimizer.state[parameter].items()}


def delete_last_state(model, optimizer):
    del optimizer.state[model.second.bias]


def delete_state_key(model, optimizer):
    del optimizer.state[model.second.bias]["momentum_buffer"]


def replace_state_tensor(model, optimizer):
    optimizer.state[model.second.bias]["momentum_buffer"] = torch.full((4,), 0.25)


def swap_states(model, optimizer):
    first, second = model.first.bias, model.second.bias
    optimizer.state[first], optimizer.state[second] = optimizer.state[second], optimizer.state[first]


def clear_state(model, optimizer):
    optimizer.state.clear()


def new_state_container(model, optimizer):
    optimizer.state = type(optimizer.state)(dict, {p: dict(s) for p, s in optimizer.state.items()})
    optimizer.state[model.second.weight]["momentum_buffer"] = torch.ones(4, 4)


def load_state(model, optimizer):
    state = copy.deepcopy(optimizer.state_dict())
    for inner in state["state"].values():
        inner["momentum_buffer"].mul_(0.5)
    optimizer.load_state_dict(state)


def remove_last_parameter(model, optimizer):
    optimizer.param_groups[0]["params"].pop()


def remove_first_parameter(model, optimizer):
    del optimizer.param_groups[0]["params"][0]


def new_parameter_list(model, optimizer):
    optimizer.param_groups[0]["params"] = list(model.second.parameters())


def reversed_parameters(model, optimizer):
    optimizer.param_groups[0]["params"].reverse()


def append_parameter(model, optimizer):
    optimizer.param_groups[0]["params"].extend(model.norm.parameters())


def add_group(model, optimizer):
    optimizer.add_param_group({"params": list(model.norm.parameters()), "lr": 0.5})


def remove_group(model, optimizer):
    del optimizer.param_groups[1]


def swap_groups(model, optimizer):
    optimizer.param_groups.reverse()


def replace_group(model, optimizer):
    optimizer.param_groups[0] = dict(optimizer.param_groups[0], lr=0.7)


def replace_groups(model, optimizer):
    optimizer.param_groups = [dict(g, lr=0.3) for g in optimizer.param_groups]


def option(name, value):
    def change(model, optimizer):
        optimizer.param_groups[-1][name] = value

    change.__name__ = f"{name}={value}"
    return change


@pytest.mark.parametrize("change", [
    replace_last_state, delete_last_state, delete_state_key, replace_state_tensor, swap_states, clear_state,
    new_state_container, load_state, remove_last_parameter, remove_first_parameter, new_parameter_list, reversed_parameters,
    replace_group, replace_groups, option("momentum", 0.5), option("momentum", 0), option("nesterov", True),
    option("weight_decay", 0.1), option("lr", 0.3), option("maximize", True), option("dampening", 0.1),
], ids=lambda f: f.__name__)  # fmt: skip
def test_changed_sgd_is_followed(change):
    assert_follows(change)


@pytest.mark.parametrize("change", [
    append_parameter, add_group, remove_group, swap_groups, remove_last_parameter, replace_group, replace_groups,
    option("momentum", 0.5), option("lr", 0.3),
], ids=lambda f: f.__name__)  # fmt: skip
def test_changed_groups_are_followed(change):
    assert_follows(change, make_optimizer=two_groups)


@pytest.mark.parametrize("change", [
    replace_last_state, delete_last_state, swap_states, clear_state, remove_first_parameter,
    option("betas", (0.5, 0.9)), option("eps", 1e-3), option("weight_decay", 0.1), option("lr", 0.3),
], ids=lambda f: f.__name__)  # fmt: skip
def test_changed_adam_is_followed(change):
    assert_follows(change, make_optimizer=adam)


# -- modules -------------------------------------------------------------------------------------------------


class Tied(Net):
    def __init__(self, tied=True):
        super().__init__()
        if tied:
            self.second.weight = self.first.weight


def untie(model, optimizer):
    model.second.weight = nn.Parameter(model.first.weight.detach().clone())
    optimizer.add_param_group({"params": [model.second.weight]})


def untie_untrained(model, optimizer):
    model.second.weight = nn.Parameter(torch.ones(4, 4), requires_grad=False)


def untie_first(model, optimizer):
    model.first.weight = nn.Parameter(torch.eye(4))


def tie(model, optimizer):
    model.second.weight = model.first.weight


def tie_memory(model, optimizer):
    model.second.weight.data = model.first.weight.data


def untie_memory(model, optimizer):
    model.second.weight.data = model.second.weight.data.clone()


class TiedMemory(Net):
    def __init__(self):
        super().__init__()
        self.second.weight.data = self.first.weight.data


@pytest.mark.parametrize(
    "change", [untie, untie_untrained, untie_first, untie_memory], ids=lambda f: f.__name__
)
def test_untied_weights_are_followed(change):
    assert_follows(change, make=Tied)


def freeze_first(model, optimizer):
    model.first.weight.requires_grad_(False)


def freeze_second(model, optimizer):
    model.second.weight.requires_grad_(False)


@pytest.mark.parametrize("change", [freeze_first, freeze_second], ids=lambda f: f.__name__)
def test_a_frozen_parameter_in_the_memory_of_another_is_followed(change):
    assert_follows(change, make=TiedMemory)


@pytest.mark.parametrize("change", [tie, tie_memory], ids=lambda f: f.__name__)
def test_tied_weights_are_followed(change):
    assert_follows(change)


def test_untied_memory_is_followed():
    assert_follows(untie_memory, make=TiedMemory)


def tripled(forward):
    return lambda *args: forward(*args) * 3


def replace_forward(model, optimizer):
    model.first.forward = tripled(model.first.forward)


def add_forward_hook(model, optimizer):
    model.first.register_forward_hook(lambda module, args, result: result * 3)


def add_forward_pre_hook(model, optimizer):
    model.first.register_forward_pre_hook(lambda module, args: (args[0] * 3,))


def add_backward_hook(model, optimizer):
    model.second.register_full_backward_hook(lambda module, grads, _: (grads[0] * 3,))


def add_parameter_hook(model, optimizer):
    model.first.weight.register_hook(lambda grad: grad * 3)


def add_accumulation_hook(model, optimizer):
    def triple(parameter):
        parameter.grad.mul_(3)

    model.first.weight.register_post_accumulate_grad_hook(triple)


def freeze_weight(model, optimizer):
    model.first.weight.requires_grad_(False)


def freeze_bias(model, optimizer):
    model.second.bias.requires_grad_(False)


def freeze_all_but_one(model, optimizer):
    model.requires_grad_(False)
    model.second.bias.requires_grad_(True)


def drop_bias(model, optimizer):
    model.second.bias = None


def delete_bias(model, optimizer):
    model.second.register_parameter("bias", None)


def swap_layers(model, optimizer):
    model.first, model.second = model.second, model.first


def replace_layer(model, optimizer):
    model.norm = nn.Identity()


def change_class(model, optimizer):
    model.norm.__class__ = nn.Identity


def prune_layer(model, optimizer):
    torch.manual_seed(3)
    prune.random_unstructured(model.first, "weight", 0.5)


def weight_norm(model, optimizer):
    parametrizations.weight_norm(model.first)


def old_weight_norm(model, optimizer):
    nn.utils.weight_norm(model.first)


def spectral_norm(model, optimizer):
    torch.manual_seed(3)
    nn.utils.spectral_norm(model.second)


def convert_layer(model, optimizer):
    model.second.double().float()


def reset_buffer(model, optimizer):
    model.norm.running_mean = torch.ones(4)


def drop_buffer(model, optimizer):
    model.norm.running_mean = model.norm.running_var = None
    model.norm.track_running_stats = False


def rebind_data(model, optimizer):
    model.first.weight.data = torch.eye(4)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("change", [
    replace_forward, add_forward_hook, add_forward_pre_hook, add_backward_hook, add_parameter_hook, add_accumulation_hook,
    freeze_weight, freeze_bias, freeze_all_but_one, drop_bias, delete_bias, swap_layers, replace_layer, change_class,
    prune_layer, weight_norm, old_weight_norm, spectral_norm, convert_layer, reset_buffer, drop_buffer, rebind_data,
], ids=lambda f: f.__name__)  # fmt: skip
def test_changed_modules_are_followed(change):
    assert_follows(change)


def hooked():
    model = Net()
    model.handle = model.first.register_forward_hook(triple_result)
    return model


def triple_result(module, args, result):
    return result * 3


def double_result(module, args, result):
    return result * 2


def remove_hook(model, optimizer):
    model.first._forward_hooks.clear()


def exchange_hook(model, optimizer):
    model.first._forward_hooks.clear()
    model.first.register_forward_hook(double_result)


@pytest.mark.parametrize("change", [remove_hook, exchange_hook], ids=lambda f: f.__name__)
def test_changed_hooks_are_followed(change):
    assert_follows(change, make=hooked)


def normed():
    model = Net()
    nn.utils.weight_norm(model.first)
    return model


def remove_norm(model, optimizer):
    nn.utils.remove_weight_norm(model.first)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_removed_weight_norm_is_followed():
    def change(model, optimizer):
        remove_norm(model, optimizer)
        optimizer.add_param_group({"params": [model.first.weight]})

    assert_follows(change, make=normed)


class Optional(Net):
    """Uses a tensor named `scale` once there is one."""

    def __init__(self, ask):
        super().__init__(lambda model, y: y * model.scale if ask(model) else y)


def register_buffer(model, optimizer):
    model.register_buffer("scale", torch.full((4,), 3.0))


def register_parameter(model, optimizer):
    model.scale = nn.Parameter(torch.full((4,), 3.0))


@pytest.mark.parametrize("change", [register_buffer, register_parameter], ids=lambda f: f.__name__)
@pytest.mark.parametrize("ask", [
    lambda m: hasattr(m, "scale"),
    lambda m: getattr(m, "scale", None) is not None,
    lambda m: "scale" in m._buffers or "scale" in m._parameters,
    lambda m: "scale" in dict(m.named_parameters()) or "scale" in dict(m.named_buffers()),
], ids=["hasattr", "getattr", "registry", "named"])  # fmt: skip
def test_tensor_registered_later_is_followed(ask, change):
    assert_follows(change, make=lambda: Optional(ask))


# -- shared memory -------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Adds to a buffer before and after it reads the argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.arange(8.0))

    def forward(self, x):
        self.total.add_(1)
        y = x * 2
        self.total.mul_(0.5)
        return y + x


def run_counting(call_graph, backend, pick):
    module = Counting()
    run = graph_of(lambda x: module(x), module=module) if call_graph else module
    if call_graph:
        run.config.set_backend(backend)
    results = [run(pick(module, k)).clone() for k in range(5)]
    return [*results, module.total]


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize("view", [
    lambda total: total, lambda total: total[:8], lambda total: total.view(2, 4).view(8),
], ids=["buffer", "slice", "view"])  # fmt: skip
def test_argument_that_is_a_written_buffer(view, backend):
    def pick(module, step):
        return view(module.total) if step in (1, 3) else torch.full((8,), float(step))

    expected = run_counting(False, backend, pick)
    got = run_counting(True, backend, pick)
    assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_arguments_that_overlap_are_written_in_order(backend):
    def build(x, y):
        x.add_(1)
        return x * y

    memory = torch.arange(12.0)

    def pairs(memory):
        return [
            (memory[:4], memory[4:8]),
            (memory[:4], memory[:4]),
            (memory[:4], memory[2:6]),
            (memory[:4], memory[8:]),
        ]

    expected = [build(*pair).clone() for pair in pairs(memory.clone())]

    flow.set_dialect("torch")
    try:
        graph = graph_of(build)
        graph.config.set_backend(backend)
        shared = memory.clone()
        got = [graph(*pair).clone() for pair in pairs(shared)]
    finally:
        flow.set_dialect("oneflow")
    assert all(map(torch.equal, expected, got))
    assert torch.equal(shared, torch.tensor([4.0, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11]))


def test_separate_arguments_of_one_memory_share_a_program():
    module = Counting()
    graph = graph_of(lambda x, y: module(x) + y, module=module)
    for _ in range(3):
        batch = torch.randn(2, 8)
        graph(*batch)
    graph(torch.randn(8), torch.randn(8))
    assert len(graph._engine.programs) == 1


# -- announced: what a graph does as OneFlow's, and not as eager ----------------------------------------------


@pytest.mark.parametrize("mutate", [
    lambda parts, options: parts.append(parts[0] * 2),
    lambda parts, options: options.update(scale=2.0),
    lambda parts, options: parts.__setitem__(0, parts[0] + 1),
    lambda parts, options: options.pop("shift"),
], ids=["append", "update", "set", "pop"])  # fmt: skip
def test_changed_container_of_the_caller_is_announced(mutate):
    def build(parts, options):
        mutate(parts, options)
        return sum(parts)

    graph, parts, options = graph_of(build), [torch.ones(2)], {"shift": torch.ones(2)}
    with pytest.warns(UserWarning, match="changes a list or dict among its arguments"):
        result = graph(parts, options)
    copies = list(parts), dict(options)
    assert torch.equal(result, build(*copies))
    assert len(parts) == 1 and list(options) == ["shift"]


def test_changed_mode_is_announced_once():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    graph, x = graph_of(module, module=module), torch.ones(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)
        graph(x)
    module[1].eval()
    with pytest.warns(UserWarning, match=r"keeps the modes of its first call, here train\(\)"):
        graph(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def tie_data(model, optimizer):
    model.second.weight.data = model.first.weight.data


def replace_data(model, optimizer):
    for p in model.parameters():
        p.data = p.data.clone() * 2


def transpose_data(model, optimizer):
    model.first.weight.data = model.first.weight.data.clone().t()


def freeze_and_load(model, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    model.first.weight.requires_grad_(False)
    model.first.weight.grad = None


@pytest.mark.parametrize("change", [tie_data, replace_data, transpose_data, freeze_and_load])
def test_changed_memory_is_followed(change):
    assert_follows(change, make=Pair)


def programs_after(change):
    torch.manual_seed(0)
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, optimizer, model=model)
    for k in range(4):
        if k == 2:
            change(model, optimizer)
        step(torch.ones(2, 4))
    return len(step._engine.programs)


def test_tied_memory_is_another_program_and_new_memory_is_not():
    assert programs_after(tie_data) == 2
    assert programs_after(replace_data) == programs_after(lambda model, optimizer: None) == 1


def test_loading_a_checkpoint_makes_no_program():
    def load(model, optimizer):
        model.load_state_dict(copy.deepcopy(model.state_dict()))
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    assert programs_after(load) == 1


# -- options of optimizers as inputs of the program ------------------------------------------------------------


def rate(model):
    return model.optimizer_of_build[0].param_groups[0]["lr"]


def programs_of_schedule(scale, make_optimizer=None):
    """The programs that a schedule makes while build() scales by the learning rate."""
    torch.manual_seed(1)
    model = Net(scale)
    optimizer = (make_optimizer or (lambda m: torch.optim.SGD(m.parameters(), lr=0.1)))(model)
    model.optimizer_of_build = [optimizer]

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, model=model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for _ in range(5):
        graph(torch.randn(6, 4))
        schedule.step()
    return len(graph._engine.programs)


LIVE = [
    lambda m, y: y * rate(m),
    lambda m, y: y / (1 - rate(m) ** 2) + 2 ** rate(m) - rate(m),
    lambda m, y: y * sum(g["lr"] * i for i, g in enumerate(m.optimizer_of_build[0].param_groups, 1)),
    lambda m, y: y * dict(m.optimizer_of_build[0].param_groups[0].items())["lr"],
    lambda m, y: torch.add(y, y, alpha=rate(m)).clamp(min=-rate(m)) + torch.full((4,), rate(m)),
    lambda m, y: y.clone().mul_(rate(m)) if rate(m) > 1e-9 else y,
    lambda m, y: y * (1 - rate(m) ** 2) / (1 + m.optimizer_of_build[0].param_groups[0]["momentum"]),
]


@pytest.mark.parametrize(
    "scale", LIVE, ids=["product", "power", "sum", "items", "operators", "branch", "two options"]
)
def test_one_program_serves_a_schedule_that_build_reads(scale):
    assert_follows(
        lambda model, optimizer: None,
        make=lambda: Net(scale),
        schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
    )
    assert programs_of_schedule(scale) == 1
    assert_follows(option("lr", 0.01), make=lambda: Net(scale))


def as_float_in_try(rate):
    try:
        return float(rate)
    except Exception:
        return 5.0


@pytest.mark.parametrize("scale", [
    lambda m, y: y * float(rate(m)),
    lambda m, y: y * float(f"{rate(m):.4f}"),
    lambda m, y: y * math.sqrt(rate(m)),
    lambda m, y: y * (3 if isinstance(rate(m), float) else 1),
    lambda m, y: y * float(np.float32(rate(m))),
    lambda m, y: y * as_float_in_try(rate(m)),
    lambda m, y: y * {0.1: 2.0}.get(rate(m), 3.0),
    lambda m, y: torch.nn.functional.dropout(y, p=0.0 * rate(m)),
    lambda m, y: y * (2 if rate(m) < 0.06 else 1),
    lambda m, y: y + torch.tensor(m.optimizer_of_build[0].param_groups[0].get("lr")),
], ids=["float", "text", "math", "isinstance", "numpy", "suppressed", "key", "option of an operator", "branch", "tensor"])  # fmt: skip
def test_a_learning_rate_that_build_needs_as_a_number_is_followed(scale):
    assert_follows(
        lambda model, optimizer: None,
        make=lambda: Net(scale),
        schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
    )
    assert programs_of_schedule(scale) > 1
    assert_follows(option("lr", 0.01), make=lambda: Net(scale))


@pytest.mark.parametrize("value", [1, 2])
def test_a_learning_rate_of_another_type_is_followed(value):
    assert_follows(option("lr", value), make=lambda: Net(LIVE[0]))


def test_a_graph_explains_that_build_needs_a_learning_rate_as_a_number():
    model = Net(lambda m, y: y * float(rate(m)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.optimizer_of_build = [optimizer]

    def build(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, model=model)
    graph(torch.randn(6, 4))
    assert (
        "because build() needs it as a number" in graph.explain() and "test_stale_state.py" in graph.explain()
    )


def test_an_error_of_build_leaves_the_options_of_its_optimizer_as_they_were():
    def fails(m, y):
        raise ValueError(f"refused {rate(m) > 0}")

    model = Net(fails)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.optimizer_of_build = [optimizer]
    graph = graph_of(lambda x: model(x).sum().backward(), optimizer, model=model)
    with pytest.raises(ValueError, match="refused True"):
        graph(torch.randn(6, 4))
    assert type(optimizer.param_groups[0]["lr"]) is float and optimizer.param_groups[0]["lr"] == 0.1


def tie_states(model, optimizer):
    optimizer.state[model.second.weight] = optimizer.state[model.first.weight]


def tie_state_tensor(model, optimizer):
    first, second = (optimizer.state[layer.weight] for layer in (model.first, model.second))
    second["exp_avg"] = first["exp_avg"]


def tie_counter(model, optimizer):
    first, second = (optimizer.state[layer.weight] for layer in (model.first, model.second))
    second["step"] = first["step"]


@pytest.mark.parametrize("change", [tie_states, tie_state_tensor, tie_counter], ids=lambda f: f.__name__)
def test_parameters_made_to_share_optimizer_state_are_followed(change):
    assert_follows(change, make_optimizer=adam)


def transposed(model):
    model[0].weight.data = model[0].weight.data.t()


def transposed_in_place(model):
    with torch.no_grad():
        model[0].weight.t_()


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("change", [transposed, transposed_in_place])
def test_a_parameter_that_is_transposed_in_its_memory_makes_another_program(change, trained, backend):
    """Its address stays; the state of its optimizer keeps the old strides."""
    results = []
    for mode in (backend, None):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), torch.randn(3, 4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1) if trained else None

        def build(x, model=model, trained=trained):
            loss = model(x).square().mean()
            if trained:
                loss.backward()
            return loss

        step = build
        if mode is not None:
            step = graph_of(build, optimizer, model=model)
            step.config.set_backend(mode)
        losses = []
        for call in range(4):
            if call == 2:
                change(model)
            model.zero_grad()
            losses.append(step(x).detach())
            if mode is None and trained:
                optimizer.step()
        results.append([*losses, *(p.detach().clone() for p in model.parameters())])
    # inductor sums in another order
    exact = {} if backend == "inductor" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(*results, **exact)
