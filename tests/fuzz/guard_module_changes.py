"""Changes of modules between calls, for the guard fuzzer.

Each change takes the world (model, optimizer) and a random.Random, and changes one fact. It runs with the
same random numbers in the eager world and in the graph's world. A change that does not apply to the model
raises `Inapplicable`.
"""

import copy
import random

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune


class Inapplicable(Exception):
    pass


def pick(rng: random.Random, things):
    things = list(things)
    if not things:
        raise Inapplicable
    return rng.choice(things)


def layers(world, *classes):
    return [m for m in world.model.modules() if isinstance(m, classes or nn.Module) and m is not world.model]


def linear(world, rng):
    return pick(rng, [m for m in layers(world, nn.Linear) if "weight" in m._parameters])


def parameter(world, rng):
    return pick(rng, world.model.parameters())


def freeze_parameter(world, rng):
    p = parameter(world, rng)
    p.requires_grad_(not p.requires_grad)


def freeze_module(world, rng):
    module = pick(rng, [m for m in layers(world) if list(m.parameters())])
    module.requires_grad_(rng.random() < 0.5)


def add_forward_hook(world, rng):
    pick(rng, layers(world, nn.Linear, nn.LayerNorm, nn.Identity)).register_forward_hook(
        lambda m, args, result: result * 1.5
    )


def add_forward_pre_hook(world, rng):
    pick(rng, layers(world, nn.Linear, nn.LayerNorm)).register_forward_pre_hook(
        lambda m, args: (args[0] * 1.5, *args[1:])
    )


def add_backward_hook(world, rng):
    linear(world, rng).register_full_backward_hook(
        lambda m, gradients, _: tuple(g if g is None else g * 1.5 for g in gradients)
    )


def add_parameter_hook(world, rng):
    p = parameter(world, rng)
    if not p.requires_grad:
        raise Inapplicable
    p.register_hook(lambda gradient: gradient * 1.5)


def remove_hooks(world, rng):
    module = pick(rng, [m for m in layers(world) if m._forward_hooks or m._forward_pre_hooks])
    (module._forward_hooks or module._forward_pre_hooks).popitem()


def replace_forward(world, rng):
    module, factor = linear(world, rng), rng.choice([0.5, 2.0])
    forward = type(module).forward
    module.forward = lambda x: forward(module, x) * factor


def restore_forward(world, rng):
    module = pick(rng, [m for m in layers(world) if "forward" in vars(m)])
    del module.forward


def replace_layer(world, rng):
    parent, name = pick(
        rng,
        [
            (m, n)
            for m in world.model.modules()
            for n, c in m.named_children()
            if isinstance(c, (nn.Identity, nn.ReLU, nn.Tanh, nn.GELU))
        ],
    )
    setattr(parent, name, rng.choice([nn.Identity, nn.ReLU, nn.Tanh, nn.GELU])())


def append_layer(world, rng):
    pick(rng, layers(world, nn.Sequential)).append(rng.choice([nn.Tanh, nn.ReLU])())


def change_class(world, rng):
    pick(rng, layers(world, nn.ReLU, nn.Tanh)).__class__ = rng.choice([nn.Tanh, nn.ReLU])


def drop_bias(world, rng):
    linear(world, rng).bias = None


def change_float(world, rng):
    module, name = pick(
        rng,
        [
            (m, n)
            for m in layers(world)
            for n in ("p", "eps", "momentum")
            if isinstance(vars(m).get(n), float)
        ],
    )
    setattr(module, name, {"p": 0.25, "eps": 1e-3, "momentum": 0.3}[name])


def register_buffer(world, rng):
    pick(rng, layers(world)).register_buffer(f"unread{rng.randrange(10**6)}", torch.ones(2))


def set_attribute(world, rng):
    setattr(pick(rng, layers(world)), f"unread{rng.randrange(10**6)}", 1.0)


def prune_weight(world, rng):
    torch.manual_seed(5)
    prune.random_unstructured(linear(world, rng), "weight", 0.5)


def weight_norm(world, rng):
    parametrizations.weight_norm(linear(world, rng))


def tie(world, rng):
    first = linear(world, rng)
    pick(
        rng,
        [
            m
            for m in layers(world, nn.Linear)
            if m is not first and "weight" in m._parameters and m.weight.shape == first.weight.shape
        ],
    ).weight = first.weight


def untie(world, rng):
    module = linear(world, rng)
    module.weight = nn.Parameter(module.weight.detach().clone() * 0.5)
    world.optimizer.add_param_group({"params": [module.weight]})


def replace_untrained(world, rng):
    module = linear(world, rng)
    module.weight = nn.Parameter(torch.full_like(module.weight, 0.25), requires_grad=False)


def replace_memory(world, rng):
    p = parameter(world, rng)
    p.data = torch.full_like(p.data, 0.2)


def write_parameter(world, rng):
    with torch.no_grad():
        parameter(world, rng).mul_(0.5)


def replace_buffer(world, rng):
    module, name = pick(
        rng,
        [
            (m, n)
            for m in world.model.modules()
            for n, b in m._buffers.items()
            if b is not None and b.is_floating_point()
        ],
    )
    setattr(module, name, torch.ones_like(module._buffers[name]))


def train_mode(world, rng):
    world.model.train(not world.model.training)


def swap_layers(world, rng):
    """Exchange two layers of a Sequential that keep the shape."""
    body = pick(rng, layers(world, nn.Sequential))
    indices = [i for i, m in enumerate(body) if isinstance(m, (nn.ReLU, nn.Tanh, nn.GELU, nn.Identity))]
    if len(indices) < 2:
        raise Inapplicable
    a, b = rng.sample(indices, 2)
    body[a], body[b] = body[b], body[a]


def delete_layer(world, rng):
    body = pick(rng, layers(world, nn.Sequential))
    indices = [
        i for i, m in enumerate(body) if isinstance(m, (nn.ReLU, nn.Tanh, nn.GELU, nn.Identity, nn.Dropout))
    ]
    del body[pick(rng, indices)]


def copy_layer(world, rng):
    """A copy of a layer, which the optimizer does not know."""
    parent, name = pick(
        rng,
        [(m, n) for m in world.model.modules() for n, c in m.named_children() if isinstance(c, nn.Linear)],
    )
    setattr(parent, name, copy.deepcopy(getattr(parent, name)))


def replace_method(world, rng):
    """Another forward in the class of a layer; the class is a copy, for the other world uses the layer's."""
    module, factor = linear(world, rng), rng.choice([0.5, 2.0])
    forward = type(module).forward
    module.__class__ = type("Linear", (type(module),), {"forward": lambda self, x: forward(self, x) * factor})


def replace_method_again(world, rng):
    module = pick(rng, [m for m in layers(world) if type(m).__module__ == __name__])
    factor = rng.choice([0.25, 4.0])
    type(module).forward = lambda self, x: nn.functional.linear(x, self.weight, self.bias) * factor


def share_memory(world, rng):
    """Two parameters in one memory, without being one parameter."""
    target = parameter(world, rng)
    source = pick(rng, [p for p in world.model.parameters() if p is not target and p.shape == target.shape])
    target.data = source.data


def buffer_as_view(world, rng):
    world.model.seen = torch.ones(6)[1:5]


def change_value(world, rng):
    """Any number, flag or dropout rate in an attribute of a module, or in an object, list or dict there."""
    holder, key, value = pick(rng, values_below(world))
    new = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 0.5 + 0.1
    if isinstance(holder, (list, dict)):
        holder[key] = new
    else:
        setattr(holder, key, new)


def delete_attribute(world, rng):
    module, name = pick(
        rng,
        [
            (m, n)
            for m in layers(world)
            for n, v in vars(m).items()
            if isinstance(v, (int, float)) and n[0] != "_" and n != "training"
        ],
    )
    delattr(module, name)


def values_below(world, depth=4):
    """(holder, key, value) of each number below the attributes of modules, in a fixed order."""
    numbers, pending, visited = [], [(m, 0) for m in world.model.modules()], set()
    while pending:
        holder, level = pending.pop(0)
        if id(holder) in visited or level > depth:
            continue
        visited.add(id(holder))
        for key, value in elements_of(holder):
            if type(value) in (int, float, bool):
                numbers.append((holder, key, value))
            elif holds_values(value):
                pending.append((value, level + 1))
    return numbers


def elements_of(holder):
    """(key, value) of the elements or public attributes of an object."""
    if isinstance(holder, list):
        return list(enumerate(holder))
    elements = holder if isinstance(holder, dict) else vars(holder)
    return [(k, v) for k, v in elements.items() if not str(k).startswith("_") and k != "training"]


def holds_values(value):
    return isinstance(value, (list, dict)) or (
        hasattr(value, "__dict__")
        and not isinstance(value, (type, torch.Tensor, nn.Module))
        and not callable(value)
    )


def load_state(world, rng):
    state = {k: v * 0.5 if v.is_floating_point() else v for k, v in world.model.state_dict().items()}
    world.model.load_state_dict(state, assign=rng.random() < 0.3)


def register_parameter(world, rng):
    module = pick(rng, layers(world))
    module.register_parameter(f"unread{rng.randrange(10**6)}", nn.Parameter(torch.ones(2)))


def clear_gradients(world, rng):
    world.model.zero_grad(set_to_none=rng.random() < 0.5)


def cast(world, rng):
    """All modules in double precision, or back; arguments of any other type are cast by the layers' inputs."""
    world.model.to(torch.float64)
    world.next_rows = lambda x: x.double()


MODULE_CHANGES = (
    freeze_parameter, freeze_module, add_forward_hook, add_forward_pre_hook, add_backward_hook, add_parameter_hook,
    remove_hooks, replace_forward, restore_forward, replace_layer, append_layer, change_class, drop_bias, change_float,
    register_buffer, set_attribute, prune_weight, weight_norm, tie, untie, replace_untrained, replace_memory,
    write_parameter, replace_buffer, train_mode, swap_layers, delete_layer, copy_layer, replace_method,
    replace_method_again, share_memory, buffer_as_view, change_value, delete_attribute, load_state, register_parameter,
    clear_gradients, cast,
)  # fmt: skip
