"""Helpers of OneFlow's harness by their deep paths: rows of `_tables/deep_paths.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oneflow_autotest.compare import compare_gradients, compare_values
from oneflow_autotest.errors import Mismatch
from oneflow_autotest.runner import Options

from ... import _processes
from . import _api  # type: ignore[attr-defined]  # its stub declares public names only

if TYPE_CHECKING:
    pass


GetDualObject = _api.GetDualObject
rng = np.random.default_rng()


def convert_torch_object_to_flow(x: Any) -> Any:
    """A torch tensor as an oneflow tensor of its own; anything else as it is."""
    return _api.pair.to_candidate(x) if _api.pair.is_reference_tensor(x) else x


def torch_tensor_to_flow(x: Any) -> Any:
    """The torch tensor's values as an oneflow tensor without a gradient."""
    return _api.pair.to_candidate(x, requires_grad=False)


def check_equality(
    dual_object: Any, rtol: float = 0.0001, atol: float = 1e-05, check_dtype: bool = False
) -> bool:
    """Return True if the two sides agree, gradients included."""
    options, pair = Options(rtol=rtol, atol=atol, check_dtype=check_dtype), _api.pair
    try:
        compare_values(pair, dual_object._ref, dual_object._cand, "value", options)
        if pair.is_reference_tensor(dual_object._ref) and dual_object._ref.is_leaf:
            compare_gradients(pair, dual_object._ref, dual_object._cand, "value", options)
    except Mismatch as e:
        print(e)
        return False
    return True


def broadcast(obj: Any, src: int = 0) -> Any:
    """`obj` of rank `src` on every rank, by pickle."""
    if _processes.get_world_size() == 1:
        return obj
    import torch.distributed

    box = [obj if _processes.get_rank() == src else None]
    torch.distributed.broadcast_object_list(box, src=src)
    return box[0]
