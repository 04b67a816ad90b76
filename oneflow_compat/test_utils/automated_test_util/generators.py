"""Deep path of the generators."""

import numpy as np

from oneflow_autotest.generators import Nothing, add, generator, mul, neg, pack, py_tuple, tuple  # noqa: F401
from oneflow_autotest.harness import PUBLIC as _PUBLIC

from . import _api

rng = np.random.default_rng()
_NAMES = [
    n
    for n in _PUBLIC
    if n
    not in ("autotest", "globaltest", "torch", "profile", "random_tensor", "choice_tensor", "random_dtype")
]
globals().update({name: getattr(_api, name) for name in _NAMES})


def convert_torch_object_to_flow(x):
    """A torch tensor as an oneflow tensor of its own; anything else as it is."""
    return _api.pair.to_candidate(x) if _api.pair.is_reference_tensor(x) else x


__all__ = _NAMES
