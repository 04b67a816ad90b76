"""`bind(reference, candidate)`: the whole public API for two libraries."""
from __future__ import annotations

import types

from . import generators, placement, tensors
from .dual import Dual, GetDualObject as _dual_of
from .generators import generator, random_bool, random_or_nothing, constant, nothing, oneof, random
from .pair import Pair
from .placement import GlobalScope, globaltest, in_global_scope, tensor_to_global
from .profiler import make_profile
from .runner import make_autotest

SIZE_LIMIT = "ONEFLOW_TEST_TENSOR_SIZE_LIMIT_MB"

# What `from ... import *` of OneFlow's harness brings into a test file.
PUBLIC = (
    "autotest", "globaltest", "random_tensor", "choice_tensor", "random_dtype", "torch", "profile",
    "random", "random_bool", "random_or_nothing", "oneof", "constant", "nothing", "random_device", "cpu_device", "gpu_device",
    "random_pytorch_tensor", "random_pytorch_dtype", "choice_pytorch_tensor",
    "all_placement", "all_cpu_placement", "all_cuda_placement", "random_placement", "random_cpu_placement", "random_gpu_placement", "all_sbp", "random_sbp",
)


def bind(reference, candidate, names=("reference", "candidate"), **conversions):
    """The API of the harness for two libraries, as one namespace object.

    `reference` is torch or has torch's tensors; `candidate` is anything with torch's names. `names`
    are how messages and dual objects call the two sides; `to_candidate` and `to_numpy` say how
    tensors cross over where `candidate.tensor(array)` and `tensor.detach().cpu().numpy()` do not do;
    `accepts_more=True` says that the candidate may run what the reference refuses.
    """
    pair = Pair(reference, candidate, names, **conversions)
    api = types.SimpleNamespace(pair=pair, torch=Dual(pair, reference, candidate))

    def random_tensor(ndim=None, dim0=1, dim1=None, dim2=None, dim3=None, dim4=None, low=None, high=None, dtype=float, requires_grad=True,
                      pin_memory=False):
        """A tensor on both sides: sizes not given are drawn from 1 to 7, values from [low, high), by default [0, 1)."""
        made = random_pytorch_tensor(ndim, dim0, dim1, dim2, dim3, dim4, low, high, dtype, pin_memory)
        return both_sides(made.value(), requires_grad, pin_memory)

    def choice_tensor(a, size=None, replace=True, p=None, dtype=int, requires_grad=False):
        """A tensor of elements of `a` on both sides, drawn as numpy.random.choice draws them."""
        return both_sides(tensors.choice_pytorch_tensor(a, size, replace, p, dtype).value(), requires_grad)

    def both_sides(tensor, requires_grad, pin_memory=False):
        from . import config

        size = tensor.numel() * tensor.element_size() / 2**20
        if size >= config.get_int(SIZE_LIMIT):
            raise ValueError(f"autotest draws tensors below {config.get_int(SIZE_LIMIT)} MB ({SIZE_LIMIT}), this one has {size:.1f} MB")
        if isinstance(requires_grad, generator):
            requires_grad = requires_grad.to(bool).value()
        if requires_grad and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.requires_grad_(True)
        other = pair.to_candidate(tensor, pin_memory=bool(pin_memory))
        if in_global_scope():
            other = tensor_to_global(pair, other)
        return _dual_of(pair, "unused", tensor, other)

    def random_dtype(seq_names):
        """One dtype of the named families, on both sides."""
        dtype = tensors.random_pytorch_dtype(seq_names).value()
        return None if dtype is None else Dual(pair, dtype, getattr(candidate, str(dtype).rpartition(".")[2]), "dtype")

    def GetDualObject(name, pytorch, oneflow):
        """The dual object of two values made elsewhere."""
        return _dual_of(pair, name, pytorch, oneflow)

    random_pytorch_tensor = tensors.random_pytorch_tensor
    own = {f.__name__: f for f in (random_tensor, choice_tensor, random_dtype, GetDualObject, globaltest, GlobalScope, random_bool, random_or_nothing)}
    vars(api).update(own)
    vars(api).update(random=random, constant=constant, nothing=nothing, oneof=oneof, tuple=generators.tuple, is_global=in_global_scope)
    vars(api).update({name: getattr(tensors, name) for name in tensors.__all__})
    vars(api).update(placement.make(lambda: candidate))
    api.autotest = make_autotest(pair)
    api.profile = make_profile(api)
    api.__all__ = list(PUBLIC)
    return api
