"""A graph follows changes of modules between calls: parameters, hooks, structure. Bitwise equal to eager."""

import warnings

import pytest
import torch
from graph_cases import graph_of
from stale_state_cases import Net, assert_follows
from torch import nn
from torch.nn.utils import parametrizations, prune


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
@pytest.mark.parametrize(
    "change",
    [
        replace_forward,
        add_forward_hook,
        add_forward_pre_hook,
        add_backward_hook,
        add_parameter_hook,
        add_accumulation_hook,
        freeze_weight,
        freeze_bias,
        freeze_all_but_one,
        drop_bias,
        delete_bias,
        swap_layers,
        replace_layer,
        change_class,
        prune_layer,
        weight_norm,
        old_weight_norm,
        spectral_norm,
        convert_layer,
        reset_buffer,
        drop_buffer,
        rebind_data,
    ],
    ids=lambda f: f.__name__,
)
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


# -- announced: what a graph does as OneFlow's, and not as eager ---------------------------------------------


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
    with pytest.warns(UserWarning, match=r"keeps the modes of its first call, here train\(\)") as shown:
        graph(x)
    assert "module 'module.1' (Dropout) was in train() at the first call and is in eval() now" in str(
        shown[0].message
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)
