"""MLX against torch, gradients included: `python -m pytest test_mlx.py`. On Linux: `pip install mlx-cpu`."""

import mlx.core
import torch as reference

from oneflow_autotest import bind


def grad(program, inputs, output_gradients):
    """Return the gradients of the inputs. `program(*inputs)` returns the list of outputs."""
    _, gradients = mlx.core.vjp(program, inputs, output_gradients)
    return gradients


api = bind(
    reference, mlx.core, names=("torch", "mlx"), grad=grad, to_candidate=lambda t: mlx.core.array(t.numpy())
)
torch, autotest, random_tensor, random = api.torch, api.autotest, api.random_tensor, api.random


@autotest(n=20, check_graph=False)
def test_exp(test_case):
    return torch.exp(random_tensor(2))


@autotest(n=20, check_graph=False)
def test_matmul(test_case):
    n = random(1, 6).to(int)
    return torch.matmul(random_tensor(2, 3, n), random_tensor(2, n, 4))
