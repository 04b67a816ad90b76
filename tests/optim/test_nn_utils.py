"""oneflow.nn.utils: clipping, packed parameters, and names that fall back to torch."""

import pytest
import torch

import oneflow as flow
from oneflow.nn.utils import ContiguousParamsGroup
from oneflow.optim.parameters_grouping import numel_in_bucket


def with_grads(fill=3.0):
    ps = [
        flow.nn.Parameter(flow.ones(2, 3)),
        flow.nn.Parameter(flow.ones(5)),
        flow.nn.Parameter(flow.ones(1)),
    ]
    for p in ps[:2]:
        p.grad = torch.full_like(p, fill)
    return ps


def test_clip_grad_norm_positions_and_value():
    ps = with_grads()
    total = flow.nn.utils.clip_grad_norm_(ps, 1.0, 2.0, True)
    assert total.item() == pytest.approx((11 * 9) ** 0.5)
    assert torch.cat([p.grad.flatten() for p in ps[:2]]).norm().item() == pytest.approx(1.0, rel=1e-5)
    bad = with_grads(float("nan"))
    flow.nn.utils.clip_grad_norm_(bad, 1.0, 2.0, True)  # the fourth is fused, not error_if_nonfinite
    with pytest.raises(RuntimeError, match="non-finite"):
        flow.nn.utils.clip_grad_norm_(bad, 1.0, 2.0, False, True)
    assert flow.nn.utils.clip_grad_norm_([], 1.0).item() == 0.0
    assert flow.nn.utils.clip_grad.clip_grad_norm_ is flow.nn.utils.clip_grad_norm_


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_clip_grad_norm_equals_torch(norm_type):
    ps, qs = with_grads(), with_grads()
    assert torch.equal(
        flow.nn.utils.clip_grad_norm_(ps, 0.7, norm_type), torch.nn.utils.clip_grad_norm_(qs, 0.7, norm_type)
    )
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(ps[:2], qs))


def test_modules_and_functions_of_one_name():
    import oneflow.nn.utils.weight_norm  # noqa: F401
    from oneflow.nn.utils.weight_norm import WeightNorm

    assert flow.nn.utils.weight_norm is torch.nn.utils.weight_norm
    assert WeightNorm.__module__ == "torch.nn.utils.weight_norm"
    from oneflow.nn.utils.rnn import pad_sequence

    assert pad_sequence is torch.nn.utils.rnn.pad_sequence
    assert flow.nn.utils.parameters_to_vector is torch.nn.utils.parameters_to_vector
    assert flow.nn.utils.skip_init is torch.nn.utils.skip_init and flow.nn.utils.prune is torch.nn.utils.prune


def test_contiguous_params_group():
    ps = with_grads()
    frozen = flow.nn.Parameter(flow.ones(4), requires_grad=False)
    half = flow.nn.Parameter(flow.ones(3, dtype=flow.float16))
    group = ContiguousParamsGroup([ps + [frozen], [half, half]])
    flat, flat_half = group.grouped_parameters
    assert (
        flat.numel() == sum(numel_in_bucket(p) for p in ps) == 8 + 8 + 4
        and flat_half.numel() == numel_in_bucket(half) == 8
    )
    grad = group.grouped_parameters_grad[0]
    assert torch.equal(ps[0].grad, torch.full((2, 3), 3.0)) and torch.equal(ps[2].grad, torch.zeros(1))
    flat.fill_(7.0)
    grad.fill_(5.0)
    assert all(bool((p == 7).all() and (p.grad == 5).all()) for p in ps) and bool((frozen == 1).all())
    (ps[0] * 2).sum().backward()
    assert torch.equal(grad[:6], torch.full((6,), 7.0))
    again = ContiguousParamsGroup([ps])
    assert again.grouped_parameters[0].data_ptr() == flat.data_ptr()
    moved = ContiguousParamsGroup([ps], group_on_current_buffer=False)
    assert moved.grouped_parameters[0].data_ptr() != flat.data_ptr() and torch.equal(
        moved.grouped_parameters[0][:6], flat[:6]
    )
    with pytest.raises(TypeError, match="list of lists of tensors"):
        ContiguousParamsGroup([[1]])


def test_containers_of_a_family():
    from oneflow.nn.utils import container

    class Mixin:
        pass

    assert container.get_seq(flow.nn.Module) is torch.nn.Sequential
    derived = container.get_list(Mixin)
    assert (
        issubclass(derived, torch.nn.ModuleList)
        and issubclass(derived, Mixin)
        and container.get_list(Mixin) is derived
    )
    assert container.get_dict(flow.nn.Module) is torch.nn.ModuleDict
    assert (
        container.get_para_list(flow.nn.Module) is torch.nn.ParameterList
        and container.get_para_dict(flow.nn.Module) is torch.nn.ParameterDict
    )
