"""Deep path of the dual object and of `autotest`."""

from oneflow_autotest.dual import Dual as DualObject  # noqa: F401
from oneflow_autotest.errors import (  # noqa: F401
    BothDoNotSupportError,
    OneFlowGraphBuildOrRunError,
    PyTorchDoesNotSupportError,
)
from oneflow_autotest.placement import globaltest

from . import _api

autotest, random_tensor, choice_tensor, random_dtype = (
    _api.autotest,
    _api.random_tensor,
    _api.choice_tensor,
    _api.random_dtype,
)
GetDualObject, torch = _api.GetDualObject, _api.torch


def torch_tensor_to_flow(x):
    """The torch tensor's values as an oneflow tensor without a gradient."""
    return _api.pair.to_candidate(x, requires_grad=False)


def check_equality(dual_object, rtol=0.0001, atol=1e-05, check_dtype=False):
    """Do the two sides agree, gradients included?"""
    from oneflow_autotest.compare import compare_gradients, compare_values
    from oneflow_autotest.errors import Mismatch
    from oneflow_autotest.runner import Options

    options, pair = Options(rtol=rtol, atol=atol, check_dtype=check_dtype), _api.pair
    try:
        compare_values(pair, dual_object._ref, dual_object._cand, "value", options)
        if pair.is_reference_tensor(dual_object._ref) and dual_object._ref.is_leaf:
            compare_gradients(pair, dual_object._ref, dual_object._cand, "value", options)
    except Mismatch as e:
        print(e)
        return False
    return True


__all__ = ["autotest", "globaltest", "random_tensor", "choice_tensor", "random_dtype"]
