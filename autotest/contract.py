"""The promises of a call beyond its values: the memory of its result, its writes, the settings it leaves.

The checks compare the two sides of each call, if both sides use torch's tensors. CHECKS says at which level
each applies: a candidate with kernels of its own may return other strides, and take other random numbers.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import case as cases
from .errors import Mismatch
from .pair import tensors_of
from .placement import in_global_scope
from .verdict import OTHER_IMPLEMENTATION, SAME_KERNELS

if TYPE_CHECKING:
    import torch

    from .pair import Pair, RandomState

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments of a call
ALL, SAME = (SAME_KERNELS, OTHER_IMPLEMENTATION), (SAME_KERNELS,)
CHECKS = {  # check: levels
    "identity": ALL,
    "inputs written": ALL,
    "gradient": ALL,
    "kind of result": ALL,
    "aliasing": SAME,
    "strides": SAME,
    "random stream": SAME,
    "second call": SAME,
    "module": ALL,
    "initial values": SAME,
}
ATOMS = (int, float, bool, str, complex, type(None), types.EllipsisType, range)
DESCRIPTIONS = {"dtype", "device", "layout", "memory_format", "Size"}
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)
EFFECTS = {"backward", "step", "zero_grad", "grad", "register_hook", "manual_seed", "seed"}


class Side:
    """The tensors of one side before a call, and their versions."""

    def __init__(self, function: Any, arguments: Arguments) -> None:
        owner = getattr(function, "__self__", None)
        self.arguments = [t for t in flat([owner, *arguments[0], *arguments[1].values()])]
        self.versions = [_version(t) for t in self.arguments]

    def written(self) -> list[bool]:
        return [_version(t) != version for t, version in zip(self.arguments, self.versions)]


def is_watched(pair: Pair) -> bool:
    """Whether the promises of a call are compared besides its results."""
    return pair.same_tensors and not in_global_scope() and cases.current() is not None


class Watch:
    """The promises of one call; made before it, compared after it."""

    def __init__(
        self,
        pair: Pair,
        name: str,
        functions: tuple[Any, Any],
        arguments: tuple[Arguments, Arguments],
        describe: Callable[[], str],
    ) -> None:
        self.pair, self.name, self.describe = pair, name, describe
        self.reference, self.function = functions
        self.candidate_arguments = arguments[1]
        self.sides = Side(functions[0], arguments[0]), Side(functions[1], arguments[1])

    def fail(self, check: str, message: str) -> Mismatch:
        return Mismatch(check, f"{self.describe()}: {message}")

    def compare_calls(
        self, r: object, c: object, has_values: bool, after_reference: RandomState, state: RandomState
    ) -> None:
        """Compare the promises of both calls: their results, random streams, and a second call."""
        self.compare(r, c, has_values)
        if has_values:
            self.compare_streams(after_reference)
            self.compare_second_call(c, state)

    def compare(self, r: Any, c: Any, has_values: bool) -> None:
        """Compare the promises that the two results keep; `has_values` is False for uninitialized memory."""
        of_reference, of_candidate = flat(r), flat(c)
        if len(of_reference) != len(of_candidate):
            return  # reported with the number and type of outputs
        self.compare_pairs(of_reference, of_candidate)
        self.compare_kinds(r, c)
        strict = self.pair.level == SAME_KERNELS
        for x, y in zip(of_reference, of_candidate):
            self.compare_gradients(x, y, strict)
            if strict and x.shape == y.shape:
                self.compare_strides(x, y)
        if strict and has_values:
            self.compare_aliases(of_reference, of_candidate)

    def compare_pairs(self, of_reference: list[Any], of_candidate: list[Any]) -> None:
        reference, candidate = self.sides
        written = reference.written(), candidate.written()
        if written[0] != written[1] and len(written[0]) == len(written[1]):
            raise self.fail("inputs written", self.each("arguments written", *written))
        identical = [
            [any(t is a for a in side.arguments) for t in results]
            for side, results in zip(self.sides, (of_reference, of_candidate))
        ]
        if identical[0] != identical[1]:
            raise self.fail("identity", self.each("the result is an argument", *identical))

    def compare_aliases(self, of_reference: list[Any], of_candidate: list[Any]) -> None:
        shared = [
            [[_memory(t) == _memory(a) is not None for a in side.arguments] for t in results]
            for side, results in zip(self.sides, (of_reference, of_candidate))
        ]
        if shared[0] != shared[1] and len(self.sides[0].arguments) == len(self.sides[1].arguments):
            raise self.fail("aliasing", self.each("the result shares memory with its arguments", *shared))

    def compare_kinds(self, r: Any, c: Any) -> None:
        kinds = kind_of(r), kind_of(c)
        if kinds[0] != kinds[1]:
            raise self.fail("kind of result", self.each("the result is", *kinds))

    def compare_gradients(self, x: torch.Tensor, y: torch.Tensor, strict: bool) -> None:
        if x.requires_grad != y.requires_grad:
            side, not_side = self.pair.names if x.requires_grad else reversed(self.pair.names)
            raise self.fail("gradient", f"the result requires a gradient in {side} and not in {not_side}")
        if strict and x.is_leaf != y.is_leaf:
            raise self.fail("gradient", self.each("the result is a leaf", x.is_leaf, y.is_leaf))

    def compare_strides(self, x: torch.Tensor, y: torch.Tensor) -> None:
        strides = significant_strides(x), significant_strides(y)
        if strides[0] != strides[1]:
            raise self.fail("strides", self.each("the strides are", x.stride(), y.stride()))

    def each(self, what: str, r: object, c: object) -> str:
        return f"{what} {r} in {self.pair.names[0]}, {c} in {self.pair.names[1]}"

    # ------------------------------------------------------------------ random numbers, and a second call
    def compare_streams(self, after_reference: RandomState) -> None:
        """Compare the state of the random stream that both calls leave."""
        if self.pair.level == SAME_KERNELS and self.pair.has_moved(after_reference):
            raise self.fail("random stream", "the two sides take other random numbers from the stream")

    def compare_second_call(self, result: Any, state: RandomState) -> None:
        """Call the candidate again on the same arguments and random numbers: the values must be the same."""
        if self.pair.level != SAME_KERNELS or not self.can_call_again(result):
            return
        after = self.pair.random_state()
        self.pair.rewind(state)
        try:
            again = self.function(*self.candidate_arguments[0], **self.candidate_arguments[1])
        except Exception as e:
            raise self.fail("second call", f"raised {type(e).__name__}: {e}") from e
        finally:
            self.pair.rewind(after)
        results, repeated = flat(result), flat(again)
        if len(results) != len(repeated) or not all(map(_equal, results, repeated)):
            raise self.fail("second call", f"gives other values in {self.pair.names[1]}")
        own = {_memory(a) for a in self.sides[1].arguments}
        if not isinstance(self.function, self.pair.reference_module) and any(
            _memory(t) == _memory(u) and _memory(t) not in (None, *own) for t, u in zip(results, repeated)
        ):
            raise self.fail("second call", f"writes the first result again in {self.pair.names[1]}")

    def is_stateless_module(self, module: Any) -> bool:
        """Whether a forward changes nothing: torch's own modules, without hooks and running statistics."""
        parts = list(self.reference.modules())
        return (
            all(type(m).__module__.startswith("torch.nn.modules") for m in parts)
            and not any(m._forward_hooks or m._forward_pre_hooks for m in (*parts, *module.modules()))
            and (not module.training or not any(True for _ in module.buffers()))
        )

    def can_call_again(self, result: Any) -> bool:
        function, candidate = self.function, self.sides[1]
        results = flat(result)
        if not results or not all(_is_dense_on_cpu(t) for t in results):
            return False
        if self.name.endswith("_") or self.name in EFFECTS or any(candidate.written()):
            return False
        if not is_plain([*self.candidate_arguments[0], *self.candidate_arguments[1].values()]):
            return False
        if isinstance(function, self.pair.reference_module):
            return self.is_stateless_module(function)
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, (self.pair.reference_tensor, types.ModuleType)):
            return False
        return isinstance(function, FUNCTIONS)


def _is_dense_on_cpu(t: torch.Tensor) -> bool:
    return t.device.type == "cpu" and str(t.layout) == "torch.strided"


def flat(x: Any) -> list[Any]:
    """Return the torch tensors in x, through sequences and dicts, in order."""
    return tensors_of(x, _is_tensor)


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "untyped_storage") and hasattr(type(x), "_version")


def _version(t: torch.Tensor) -> int:
    return 0 if t.is_inference() else t._version


def _memory(t: torch.Tensor) -> int | None:
    """Return the address of a tensor's memory, None if it has none."""
    try:
        return t.untyped_storage().data_ptr() or None if t.numel() else None
    except (RuntimeError, NotImplementedError):  # a sparse or a wrapped tensor
        return None


def significant_strides(t: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of the dimensions that have more than one element; None without such strides."""
    try:
        return tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else None
    except RuntimeError:  # a sparse tensor
        return None


def kind_of(x: Any) -> Any:
    """Return what a result is, besides its values: the class of a container, a Parameter, the layout."""
    if _is_tensor(x):
        marks = ["Parameter"] if getattr(x, "_is_param", False) else []
        marks += ["of inference mode"] if x.is_inference() else []
        return " ".join(["a tensor", *marks, str(x.layout)])
    if isinstance(x, (tuple, list)):
        fields = getattr(x, "_fields", None) or sequence_fields(x)
        return ("list" if isinstance(x, list) else "tuple", fields, [kind_of(e) for e in x])
    if isinstance(x, dict):
        return ("dict", [kind_of(e) for e in x.values()])
    return None


def sequence_fields(x: Any) -> int | None:
    """Return the number of named fields of a structure of torch (torch.return_types)."""
    return getattr(x, "n_fields", None)


def is_plain(values: Iterable[Any]) -> bool:
    """Whether a second call may get these arguments: nothing that a call uses up, as a generator is."""
    for x in values:
        if type(x) in (tuple, list):
            if not is_plain(x):
                return False
        elif type(x) is dict:
            if not is_plain(x.values()):
                return False
        elif not (_is_tensor(x) or type(x) in ATOMS or type(x).__name__ in DESCRIPTIONS or type(x) is slice):
            return False
    return True


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    a, b = a.detach(), b.detach()
    if a.shape != b.shape or a.dtype != b.dtype or a.is_meta:
        return bool(a.is_meta and b.is_meta)
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
