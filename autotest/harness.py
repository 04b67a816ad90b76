"""`bind(reference, candidate)`: the whole public API for two libraries."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import case as cases
from . import config, generators, placement_generators, source, tensors
from .dual import Dual
from .dual import GetDualObject as _dual_of
from .generators import constant, generator, nothing, oneof, random, random_bool, random_or_nothing
from .pair import Pair
from .placement import GlobalScope, globaltest, in_global_scope, tensor_to_global
from .profiler import make_profile
from .runner import make_autotest

if TYPE_CHECKING:
    import torch

    from .pair import Library
    from .tensors import Bound, Size

SIZE_LIMIT = "ONEFLOW_TEST_TENSOR_SIZE_LIMIT_MB"

# Names that `from ... import *` of OneFlow's harness brings into a test file.
PUBLIC = (
    "autotest",
    "globaltest",
    "random_tensor",
    "choice_tensor",
    "random_dtype",
    "torch",
    "profile",
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
    "all_placement",
    "all_cpu_placement",
    "all_cuda_placement",
    "random_placement",
    "random_cpu_placement",
    "random_gpu_placement",
    "all_sbp",
    "random_sbp",
)


def bind(
    reference: Library,
    candidate: Library,
    names: tuple[str, str] = ("reference", "candidate"),
    **conversions: Any,
) -> types.SimpleNamespace:
    """Return the API of the harness for two libraries, as one namespace object.

    `reference` is torch or has torch's tensors; `candidate` is anything with torch's names. `names`
    are how messages and dual objects call the two sides. `to_candidate` and `to_numpy` convert tensors if
    `candidate.tensor(array)` (or `candidate.asarray(array)`) and `tensor.detach().cpu().numpy()` do not.
    `accepts_more=True` says that the candidate may run a call that the reference refuses.
    `like="oneflow"` samples by OneFlow's defaults.
    `grad` computes gradients for a candidate without backward(), and `dtypes` maps the reference's dtypes to
    the candidate's where they differ; see `Pair`.
    `level` is "same kernels" or "other implementation": how strictly the candidate is judged.
    """
    pair = Pair(reference, candidate, names, **conversions)
    samplers = _Samplers(pair)
    return types.SimpleNamespace(
        pair=pair,
        torch=Dual(pair, reference, candidate),
        autotest=make_autotest(pair),
        profile=make_profile(),
        random_tensor=samplers.random_tensor,
        choice_tensor=samplers.choice_tensor,
        random_dtype=samplers.random_dtype,
        GetDualObject=samplers.GetDualObject,
        random=random,
        random_bool=random_bool,
        random_or_nothing=random_or_nothing,
        constant=constant,
        nothing=nothing,
        oneof=oneof,
        tuple=generators.tuple,
        globaltest=globaltest,
        GlobalScope=GlobalScope,
        is_global=in_global_scope,
        **{name: getattr(tensors, name) for name in tensors.__all__},
        **placement_generators.make(lambda: candidate),
        __all__=list(PUBLIC),
    )


class _Samplers:
    """The functions of the public API that make dual objects of one pair of libraries."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def random_tensor(
        self,
        ndim: Size = None,
        dim0: Size = tensors.DEFAULT_DIM0,
        dim1: Size = None,
        dim2: Size = None,
        dim3: Size = None,
        dim4: Size = None,
        low: Bound = None,
        high: Bound = None,
        dtype: Any = float,
        requires_grad: bool | generator = True,
        pin_memory: bool | generator = False,
        special: bool | generator = False,
    ) -> Dual:
        """Sample a tensor on both sides.

        Sizes, values, dtype and strides that the test does not give are sampled. `special=True` adds inf,
        nan, denormals and the extremes of the dtype.
        """
        sampler = tensors.random_pytorch_tensor(
            ndim, dim0, dim1, dim2, dim3, dim4, low, high, dtype, pin_memory, special
        )
        return self._on_both_sides(sampler.value(), requires_grad, pin_memory)

    def choice_tensor(
        self,
        a: Any,
        size: Any = None,
        replace: Any = True,
        p: Any = None,
        dtype: Any = int,
        requires_grad: bool | generator = False,
    ) -> Dual:
        """Sample a tensor of elements of `a` on both sides, as numpy.random.choice does."""
        sampler = tensors.choice_pytorch_tensor(a, size, replace, p, dtype)
        return self._on_both_sides(sampler.value(), requires_grad)

    def random_dtype(self, seq_names: Sequence[str]) -> Dual | None:
        """Sample a dtype of the named families, on both sides."""
        dtype = tensors.random_pytorch_dtype(seq_names).value()
        if dtype is None:
            return None
        candidate_dtype = getattr(self._pair.candidate, str(dtype).rpartition(".")[2])
        return Dual(self._pair, dtype, candidate_dtype, "dtype")

    def GetDualObject(self, name: str, pytorch: Any, oneflow: Any) -> Dual:
        """Return the dual object of two existing values."""
        dual = _dual_of(self._pair, name, pytorch, oneflow)
        if dual._step is not None and self._pair.is_candidate_tensor(oneflow):
            note_different_values(self._pair, dual)
        return dual

    def _on_both_sides(
        self,
        tensor: torch.Tensor,
        requires_grad: bool | generator | None,
        pin_memory: bool | generator = False,
    ) -> Dual:
        pair = self._pair
        _check_size(tensor)
        if isinstance(requires_grad, generator):
            requires_grad = requires_grad.to(bool).value()
        strides = self._sampled_strides(tensor)
        if strides is not None:
            tensor = tensors.with_strides(tensor, *strides)
        if requires_grad and (tensor.is_floating_point() or tensor.is_complex()) and wants_gradients(pair):
            tensor.requires_grad_(True)
        candidate_side = pair.to_candidate(tensor, pin_memory=bool(pin_memory))
        if strides is not None:
            candidate_side = tensors.with_strides(candidate_side, *strides)
            candidate_side.requires_grad_(tensor.requires_grad)
        if in_global_scope():
            candidate_side = tensor_to_global(pair, candidate_side)
        dual = _dual_of(pair, "unused", tensor, candidate_side)
        if dual._step is not None:
            dual._step.strides = strides
        return dual

    def _sampled_strides(self, tensor: torch.Tensor) -> tuple[tuple[int, ...], int] | None:
        """Sample (strides, offset) of an input; None if it stays contiguous."""
        if cases.breaking() is None or not self._pair.shares_devices or in_global_scope():
            return None
        if tensor.is_pinned():
            return None
        return tensors.sampled_strides(tuple(tensor.shape), source.current().live())


def _check_size(tensor: torch.Tensor) -> None:
    size, limit = tensor.numel() * tensor.element_size() / 2**20, config.get_int(SIZE_LIMIT)
    if size >= limit:
        raise ValueError(
            f"autotest samples tensors below {limit} MB ({SIZE_LIMIT}), this one has {size:.1f} MB"
        )


def wants_gradients(pair: Pair) -> bool:
    """Whether a sampled tensor may require a gradient: not if the candidate has none and the test says
    auto_backward=False.
    """
    if pair.computes_gradients:
        return True
    case = cases.current()
    if case is not None and case.options.auto_backward:
        raise TypeError(
            f"autotest compares gradients, but {pair.names[1]}'s tensors ({pair.candidate_tensor.__name__})"
            " have no requires_grad_(): say @autotest(auto_backward=False), or bind(grad=...)"
        )
    return False


def note_different_values(pair: Pair, dual: Dual) -> None:
    """Keep the candidate's values of an input too, for the script, if the test gave the two sides different
    ones.
    """
    r, c = dual._ref.detach().cpu(), pair.as_torch(dual._cand).cpu()
    if r.shape != c.shape or r.dtype != c.dtype or not reference_equal(r, c):
        dual._step.candidate_value = c.clone()


def reference_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two torch tensors hold the same values, NaN included."""
    return bool(((a == b) | ((a != a) & (b != b))).all())
