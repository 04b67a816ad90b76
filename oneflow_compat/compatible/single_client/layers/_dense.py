"""dense, prelu, categorical_ordinal_encoder."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .. import scope
from .._functions.initializers import constant_initializer
from .._functions.ordinal_encoder import categorical_ordinal_encode
from .._jobs.variables import api_get_variable
from ..distribute import broadcast


def dense(
    inputs: torch.Tensor,
    units: int,
    activation: Callable[..., Any] | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str = "Dense",
    model_distribute: Any = broadcast(),
) -> torch.Tensor:
    """activation(inputs times weight^T + bias) over the last dimension.

    Variables: "<name>-weight" (units, in), "<name>-bias" (units,); zeros without initializers.
    """
    if inputs.dim() < 2:
        raise ValueError(
            f"layers.dense takes a blob of two or more dimensions, found shape {tuple(inputs.shape)}"
        )
    with scope.namespace(name):
        weight = api_get_variable(
            "weight",
            (units, inputs.shape[-1]),
            inputs.dtype,
            kernel_initializer or constant_initializer(0),
            kernel_regularizer,
            trainable,
            "weight",
            distribute=model_distribute,
            reuse=False,
        )
        bias = None
        if use_bias:
            bias = api_get_variable(
                "bias",
                (units,),
                inputs.dtype,
                bias_initializer or constant_initializer(0),
                bias_regularizer,
                trainable,
                "bias",
                distribute=model_distribute,
                reuse=False,
            )
        out = F.linear(inputs, weight, bias)
    return activation(out) if callable(activation) else out


def prelu(
    inputs: Any,
    alpha_initializer: Any = None,
    alpha_regularizer: Any = None,
    shared_axes: Any = None,
    trainable: bool = True,
    name: str = "PRelu",
    model_distribute: Any = broadcast(),
) -> Any:
    """x where positive, alpha * x elsewhere.

    "<name>-alpha" has the shape inputs.shape[1:], with 1 along `shared_axes`.
    """
    shape = list(inputs.shape[1:])
    for axis in shared_axes or ():
        if not 1 <= axis < inputs.dim():
            raise ValueError(f"layers.prelu: shared axis {axis} must lie in 1 ... {inputs.dim() - 1}")
        shape[axis - 1] = 1
    with scope.namespace(name):
        alpha = api_get_variable(
            "alpha",
            tuple(shape),
            inputs.dtype,
            alpha_initializer or constant_initializer(0),
            alpha_regularizer,
            trainable,
            distribute=model_distribute,
            reuse=False,
        )
    return torch.where(inputs > 0, inputs, alpha * inputs)


def categorical_ordinal_encoder(
    input_tensor: Any, capacity: Any, hash_precomputed: bool = True, name: str = "CategoricalOrdinalEncoder"
) -> Any:
    """Number the distinct values from 1 in order of first occurrence. The numbers are stored in two
    variables.
    """
    with scope.namespace(name):
        table = api_get_variable(
            "Table",
            (capacity * 2,),
            input_tensor.dtype,
            constant_initializer(0),
            trainable=False,
            reuse=False,
        )
        size = api_get_variable(
            "Size", (1,), input_tensor.dtype, constant_initializer(0), trainable=False, reuse=False
        )
    return categorical_ordinal_encode(table, size, input_tensor, hash_precomputed)
