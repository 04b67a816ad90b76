"""oneflow.framework.generator: the default random stream, torch's, under OneFlow's path."""

from torch import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

from .._ops.core import Generator as create_generator

__all__ = [
    "create_generator",
    "default_generator",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]
