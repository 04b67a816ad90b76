"""JAX against torch, gradients included: `python -m pytest test_jax.py`."""

import jax
import jax.numpy
import torch as reference

from oneflow_autotest import bind


def grad(program, inputs, output_gradients):
    """Return the gradients of the inputs. `program(*inputs)` returns the list of outputs."""
    _, pull = jax.vjp(program, *inputs)
    return pull(output_gradients)


# JAX has 32 bits for integers unless jax_enable_x64 is set
api = bind(reference, jax.numpy, names=("torch", "jax"), grad=grad, dtypes={"int64": "int32"})
torch, autotest, random_tensor, random = api.torch, api.autotest, api.random_tensor, api.random


@autotest(n=20, check_graph=False)
def test_exp(test_case):
    return torch.exp(random_tensor(2))


@autotest(n=20, check_graph=False)
def test_matmul(test_case):
    n = random(1, 6).to(int)
    return torch.matmul(random_tensor(2, 3, n), random_tensor(2, n, 4)) + random_tensor(1, 4)


@autotest(n=20, check_graph=False)
def test_argmax(test_case):
    return torch.argmax(random_tensor(1, 5))
