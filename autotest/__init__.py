"""One program, two libraries, everything compared: the harness behind OneFlow's module tests.

`bind(reference, candidate)` gives the API for any two libraries with torch's names; see docs/autotest.md.
This package knows torch and NumPy; it never imports the library under test.
"""

from .dual import Dual as DualObject
from .errors import BothDoNotSupportError, Mismatch, OneFlowGraphBuildOrRunError, PyTorchDoesNotSupportError
from .generators import (
    constant,
    generator,
    nothing,
    oneof,
    random,
    random_bool,
    random_or_nothing,
    tuple,
)
from .harness import bind
from .known import known_failure
from .placement import GlobalScope, globaltest, is_global
from .tensors import (
    choice_pytorch_tensor,
    cpu_device,
    gpu_device,
    random_device,
    random_pytorch_dtype,
    random_pytorch_tensor,
)

__all__ = [
    "bind",
    "known_failure",
    "DualObject",
    "Mismatch",
    "PyTorchDoesNotSupportError",
    "BothDoNotSupportError",
    "OneFlowGraphBuildOrRunError",
    "generator",
    "random",
    "random_bool",
    "random_or_nothing",
    "oneof",
    "constant",
    "nothing",
    "random_device",
    "cpu_device",
    "gpu_device",
    "random_pytorch_tensor",
    "random_pytorch_dtype",
    "choice_pytorch_tensor",
    "globaltest",
    "GlobalScope",
    "is_global",
]
