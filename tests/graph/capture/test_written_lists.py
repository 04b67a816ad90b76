"""Operators that write lists of tensors in build()."""

import pytest
import torch

import oneflow as flow


def of_expanded_row(x):
    v = x.sum(0, keepdim=True).expand(17)
    torch._foreach_mul_([v[9]], 0.5)
    return v


def of_equal_elements(x):
    v = x.sum(0, keepdim=True).expand(17)
    torch._foreach_mul_([v[9].view(-1)[0], v[9].view(-1)[-1]], 0.5)
    return v


def of_overlapping_parts(x):
    v = x * 1.5
    torch._foreach_addcmul_([v[8:10], v[9:11]], [v[:2].clone(), v[1:3].clone()], [x[:2], x[:2]], [2.0, 3.0])
    return v


def of_view_read_later(x):
    v = x * 1.5
    part = v[3:5]
    torch._foreach_mul_([part], [0.5])
    return part


def of_rows_at_a_tensor(x):
    v = x.repeat(3, 1) * 1.5
    torch._foreach_mul_([v[(x > 5).sum() % 3], v[(x > 5).sum() % 3]], 0.5)
    return v


@pytest.mark.parametrize(
    "function",
    [of_expanded_row, of_equal_elements, of_overlapping_parts, of_view_read_later, of_rows_at_a_tensor],
)
@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_gradients_through_written_lists(function, backend):
    """Torch counts the writes of a list in its kernels, and finds the gradient of a written view by the
    count.
    """
    p = torch.nn.Parameter(torch.arange(17.0) + 1)

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.p = p
            self.config.set_backend(backend)
            self.config.eager_calls(False)

        def build(self):
            out = function(self.p)
            out.square().mean().backward()
            return out, self.p.grad

    values = Step()()
    out = function(p)
    (gradient,) = torch.autograd.grad(out.square().mean(), p)
    for actual, expected in zip(values, (out, gradient)):
        torch.testing.assert_close(actual, expected)


def test_a_list_that_backward_needs_and_build_writes_is_an_error_as_in_eager():
    p = torch.nn.Parameter(torch.ones(3))

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.p = p

        def build(self):
            v = self.p * 2
            loss = v.square().sum()
            with torch.no_grad():
                torch._foreach_mul_([v], 2.0)
            loss.backward()
            return loss

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Step()()
