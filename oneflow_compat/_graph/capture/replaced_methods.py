"""Methods of torch.Tensor that the user replaced by functions that call the original one."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

_OF_LIBRARIES = ("torch", "oneflow")


def called_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that was called, which may not be the function that torch reports.

    A method written in C reports what lies under its name on torch.Tensor (torch 2.13). That is the user's
    function, which would run a second time.
    """
    if type(function) is not FunctionType or (function.__module__ or "").split(".")[0] in _OF_LIBRARIES:
        return function
    names = (name for name, value in vars(torch.Tensor).items() if value is function)
    return getattr(torch.Tensor.__base__, next(names, ""), function)
