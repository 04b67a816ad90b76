"""Two libraries under comparison, a torch-like reference and a candidate, and how values cross over."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .verdict import LEVELS, OTHER_IMPLEMENTATION, SAME_KERNELS, Names

if TYPE_CHECKING:
    import torch


Library = Any  # a namespace with torch's names
CandidateTensor = Any  # a tensor or an array of any library
Module = Any  # a module of either library
# (program, inputs, output gradients) -> gradients of the inputs
GradientFunction = Callable[
    [Callable[..., list[Any]], list[CandidateTensor], list[CandidateTensor]], Iterable[CandidateTensor]
]
# Methods of a module that the harness calls, besides the module itself.
MODULE_METHODS = (
    "named_parameters",
    "named_buffers",
    "named_modules",
    "parameters",
    "state_dict",
    "load_state_dict",
    "train",
    "eval",
)
RandomState: TypeAlias = "torch.Tensor | None"  # None if the two sides share no random stream


class Pair:
    """`reference` makes torch tensors; `candidate` is any namespace with torch's names.

    names: the attributes of a dual object that hand out its two sides, besides `.reference` and `.candidate`.
    to_candidate: makes a candidate tensor from a torch tensor; default `candidate.tensor(array)` or
        `candidate.asarray(array)`,
        and a copy if both libraries share one tensor class.
    to_numpy: makes an array from a candidate tensor; default `.detach().cpu().numpy()`, of which an array
        needs none.
    accepts_more: the candidate may run a call that the reference refuses; such a case does not count.
        Otherwise it fails.
    level: "same kernels" if the candidate runs the reference's own kernels, "other implementation" if it has
        others; default: the first if both libraries share one tensor class.
    like: "kernels" samples what breaks kernels, "oneflow" samples by the defaults of OneFlow's harness.
    grad: for a candidate without backward(): grad(program, inputs, output_gradients) returns the gradients of
        the inputs, all as candidate tensors. `program(*inputs)` returns the list of outputs.
    dtypes: {"int64": "int32"} if the candidate has another dtype where the reference has this one.
    """

    def __init__(
        self,
        reference: Library,
        candidate: Library,
        names: tuple[str, str] = ("pytorch", "oneflow"),
        to_candidate: Callable[[torch.Tensor], CandidateTensor] | None = None,
        to_numpy: Callable[[CandidateTensor], np.ndarray] | None = None,
        accepts_more: bool = False,
        level: str | None = None,
        like: str = "kernels",
        grad: GradientFunction | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self.reference, self.candidate = reference, candidate
        self.names: Names = (names[0], names[1])
        self.reference_tensor = reference.Tensor
        self.accepts_more = accepts_more
        self.custom_to_candidate, self.custom_to_numpy = to_candidate, to_numpy
        if to_candidate is not None:
            self._convert = to_candidate  # type: ignore[method-assign, assignment]
        if to_numpy is not None:
            self.to_numpy = to_numpy  # type: ignore[method-assign, assignment]
        self.same_tensors = getattr(candidate, "Tensor", None) is reference.Tensor
        self.level = level or (SAME_KERNELS if self.same_tensors else OTHER_IMPLEMENTATION)
        if self.level not in LEVELS:
            raise ValueError(
                f"bind(level=...) must be one of {', '.join(map(repr, LEVELS))}, found {level!r}"
            )
        if like not in ("kernels", "oneflow"):
            raise ValueError(f"bind(like=...) must be 'kernels' or 'oneflow', found {like!r}")
        self.like = like
        # A conversion of the caller's may put the candidate's inputs on another device.
        self.shares_devices = self.same_tensors and to_candidate is None
        # jax.numpy.ndarray is the class of traced arrays, too
        self.candidate_tensor = (
            getattr(candidate, "Tensor", None)
            or getattr(candidate, "ndarray", None)
            or type(self._convert(reference.zeros(1)))
        )
        self.dtypes = {dtype_named(r): dtype_named(c) for r, c in (dtypes or {}).items()}
        self.gradient_function = grad
        self._candidate_scalars = (np.generic,) if issubclass(self.candidate_tensor, np.ndarray) else ()
        self.has_gradients = hasattr(self.candidate_tensor, "requires_grad_")
        if grad is not None and self.has_gradients:
            name = self.candidate_tensor.__name__
            raise ValueError(
                f"bind(grad=...) is for a library without backward(), but {name} has requires_grad_():"
                " leave grad out"
            )
        # state of the random stream before the last call, if that drew from it
        self.drawn_from: RandomState = None
        # names of exceptions by which the candidate says "this cannot be a graph"
        self.graph_refusals = {"CaptureError"}
        self.reference_module = reference.nn.Module
        self.candidate_module = getattr(getattr(candidate, "nn", None), "Module", ())

    # ------------------------------------------------------------------ kinds of values
    def is_candidate_module(self, x: object) -> bool:
        """Whether x is a module of the candidate: of its nn.Module, or with the methods of one."""
        if self.candidate_module:
            return isinstance(x, self.candidate_module)
        return all(hasattr(x, name) for name in MODULE_METHODS)

    @property
    def computes_gradients(self) -> bool:
        return self.has_gradients or self.gradient_function is not None

    def have_same_dtype(self, r: torch.dtype, c: torch.dtype) -> bool:
        return r == c or self.dtypes.get(r) == c

    def is_reference_tensor(self, x: object) -> bool:
        return isinstance(x, self.reference_tensor)

    def is_candidate_tensor(self, x: object) -> bool:
        return isinstance(x, (self.candidate_tensor, *self._candidate_scalars))

    def original_method(self, name: str) -> Callable[..., Any] | None:
        """Return torch's own method of a name that another package replaced in the shared tensor class.

        Both sides would run the replacement, and agree whatever it computes.
        """
        replaced = vars(self.reference_tensor).get(name) if self.same_tensors else None
        if replaced is None:
            return None
        original: Any = getattr(replaced, "__oneflow_original__", None)
        if original is None and not _is_of_torch(replaced):
            original = getattr(self.reference_tensor.__base__, name, None)
        return original if callable(original) else None

    def attribute_of_reference(self, ref: Any, name: str) -> Any:
        """Return an attribute of the reference's side; of a tensor, torch's own method."""
        original = self.original_method(name) if self.is_reference_tensor(ref) else None
        return getattr(ref, name) if original is None else types.MethodType(original, ref)

    def operator_of_reference(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return an operator that calls torch's own methods of a reference tensor."""
        if not self.same_tensors:
            return function

        def apply(*operands: Any) -> Any:
            is_tensor = self.is_reference_tensor(operands[0])
            if not is_tensor and not (len(operands) > 1 and self.is_reference_tensor(operands[1])):
                return function(*operands)
            original = self.original_method(f"__{name}__" if is_tensor else f"__r{name}__")
            if original is None:
                return function(*operands)
            result = original(*(operands if is_tensor else reversed(operands)))
            return function(*operands) if result is NotImplemented else result

        return apply

    # ------------------------------------------------------------------ crossing over
    def to_candidate(
        self, tensor: torch.Tensor, requires_grad: bool | None = None, pin_memory: bool = False
    ) -> CandidateTensor:
        """Return a candidate tensor with the values of the torch tensor; it never shares memory with it."""
        needs = tensor.requires_grad if requires_grad is None else requires_grad
        tensor_of_candidate = self._convert(tensor.detach())
        if pin_memory and hasattr(tensor_of_candidate, "pin_memory") and tensor.is_pinned():
            tensor_of_candidate = tensor_of_candidate.pin_memory()
        return (
            tensor_of_candidate.requires_grad_(True) if needs and self.has_gradients else tensor_of_candidate
        )

    def _convert(self, tensor: torch.Tensor) -> CandidateTensor:
        if self.same_tensors:
            return tensor.clone()
        make = getattr(self.candidate, "tensor", None) or self.candidate.asarray
        return make(tensor.cpu().numpy().copy())

    def as_torch(self, x: CandidateTensor) -> torch.Tensor:
        """Return a tensor of either side as a torch tensor, for comparison; of a global tensor, the full
        tensor.
        """
        if isinstance(x, self.reference_tensor):
            x = x.detach()
            if type(x) is self.reference_tensor:
                return x
            if getattr(x, "is_global", hasattr(x, "full_tensor")):
                return x.full_tensor() if hasattr(x, "full_tensor") else x.to_local()
            if self.custom_to_numpy is None:
                return x.as_subclass(self.reference_tensor)
        import torch

        return torch.from_numpy(np.array(self.to_numpy(x)))

    def to_numpy(self, x: CandidateTensor) -> np.ndarray:
        for method in ("detach", "cpu", "numpy"):
            x = getattr(x, method, lambda x=x: x)()
        return np.asarray(x)

    @functools.cached_property
    def float_dtypes(self) -> list[torch.dtype]:
        """Return the float dtypes besides float32 that a tensor keeps on its way to the candidate."""
        kept = []
        for name in ("float64", "float16", "bfloat16"):
            dtype = getattr(self.reference, name, None)
            try:
                converted = self.as_torch(self._convert(self.reference.zeros(1, dtype=dtype)))
            except Exception:  # the candidate has no such dtype
                continue
            if converted.dtype == dtype:
                kept.append(dtype)
        return kept

    def copy_state(self, reference: torch.nn.Module, candidate: Module) -> None:
        """Give the candidate module the reference module's parameters and buffers."""
        state = {
            k: self._convert(v.detach()) for k, v in reference.state_dict().items() if hasattr(v, "detach")
        }
        if not state:
            return
        if all(hasattr(v, "copy_") for v in state.values()) and self.same_tensors:
            mine = dict(candidate.state_dict())
            if mine.keys() == state.keys() and all(mine[k].shape == state[k].shape for k in mine):
                for k in mine:
                    mine[k].detach().copy_(self._beside(state[k], mine[k]))
                return
        candidate.load_state_dict(state, strict=False)

    def _beside(self, tensor: CandidateTensor, like: CandidateTensor) -> CandidateTensor:
        """Return a tensor that every rank has, as a global tensor if `like` is one."""
        if not getattr(like, "is_global", False):
            return tensor
        return tensor.to_global(placement=like.placement, sbp=[self.candidate.sbp.broadcast] * len(like.sbp))

    def run_backward(self, outputs: list[CandidateTensor], gradients: list[torch.Tensor]) -> None:
        """Run the candidate's backward from these outputs, with output gradients given as torch tensors."""
        converted = []
        for g, c in zip(gradients, outputs):
            g = self.to_candidate(g, requires_grad=False)
            if getattr(c, "is_global", False):
                g = self._beside(g, c)
            elif hasattr(g, "to"):
                g = g.to(c.device)
            converted.append(g.to(c.dtype))
        autograd: Any = getattr(self.candidate, "autograd", None)
        if len(outputs) == 1 or not hasattr(autograd, "backward"):
            for c, g in zip(outputs, converted):
                c.backward(g)
        else:
            autograd.backward(outputs, converted)

    # ------------------------------------------------------------------ random numbers
    def random_state(self) -> RandomState:
        """Return the state of the random stream that both sides share, or None if they share none."""
        return self.reference.default_generator.get_state() if self.same_tensors else None

    def has_moved(self, state: RandomState) -> bool:
        """Whether random numbers were taken from the stream since `state`."""
        return not self.is_state(state, self.random_state())

    def is_state(self, state: RandomState, other: RandomState) -> bool:
        return state is None or other is None or bool(self.reference.equal(state, other))

    def rewind(self, state: RandomState) -> None:
        if state is not None:
            self.reference.default_generator.set_state(state)


def dtype_named(name: str) -> torch.dtype:
    """Return torch's dtype of a name such as "int64".

    Raises ValueError if there is none.
    """
    import torch  # here, because the harness may be imported without it

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"bind(dtypes=...) takes names of torch's dtypes, such as 'int64', found {name!r}")
    return dtype


def _is_of_torch(function: Any) -> bool:
    """Whether torch itself defines this attribute of its tensor class."""
    return str(getattr(function, "__module__", None) or "torch").partition(".")[0] == "torch"


def tensors_of(x: object, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the tensors in x, through sequences and dicts, in order."""
    if is_tensor(x):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return [t for e in x for t in tensors_of(e, is_tensor)]
    return []
