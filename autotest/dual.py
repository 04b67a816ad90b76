"""The dual object: one name for a value on the reference's side and its twin on the candidate's.

Attributes, calls, operators, indexing and assignment act on both sides. `.pytorch` and `.oneflow`
(or the pair's own names) and `.reference`, `.candidate` hand out the sides.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from . import case as cases
from . import profiler, source
from .calls import at_step, call_both, record, split, split_arguments
from .case import Step
from .compare import compare_plain
from .contract import is_watched
from .errors import Mismatch
from .module_contract import HookCounter, compare_copies, compare_new_modules
from .pair import MODULE_METHODS
from .placement import in_global_scope, module_to_global
from .printing import PLACEMENT_METHODS

if TYPE_CHECKING:
    from .pair import Pair

_set = object.__setattr__
Agreed = TypeVar("Agreed")


class _Length(int):
    """The result of `dual.__len__()` when a test calls it by that name: it has the two sides, as other
    results do.
    """


class Dual:
    """A value of the reference and its twin of the candidate.

        x = Dual(pair, torch.ones(2), flow.ones(2))
        y = (x + 1).sum()
        y.reference, y.candidate  # both sides ran

    Each operation is recorded as a step of the running case.
    """

    __dual__ = True
    __slots__ = ("_pair", "_ref", "_cand", "_path", "_owner", "_step", "__weakref__")

    def __init__(self, pair: Pair, ref: Any, cand: Any, path: str = "", owner: Dual | None = None) -> None:
        _set(self, "_pair", pair)
        _set(self, "_ref", ref)
        _set(self, "_cand", cand)
        _set(self, "_path", path)
        _set(self, "_owner", owner)
        _set(self, "_step", None)

    # ------------------------------------------------------------------ the two sides
    @property
    def pytorch(self) -> Any:
        return self._ref

    @property
    def oneflow(self) -> Any:
        return self._cand

    reference, candidate = pytorch, oneflow

    @property
    def name(self) -> str:
        return self._path

    def plain(self) -> Any:
        """The value as an ordinary Python value; both sides must agree."""
        if type(self._ref) is not type(self._cand) or self._ref != self._cand:
            message = (
                f"{self._path or 'value'} is {self._ref!r} in {self._pair.names[0]} and {self._cand!r} in"
                f" {self._pair.names[1]}"
            )
            raise at_step(Mismatch("values", message), _expression(self, "{}"))
        return self._ref

    # ------------------------------------------------------------------ attributes
    def __getattr__(self, key: str) -> Any:
        pair = self._pair
        if key in pair.names:
            return self.pytorch if key == pair.names[0] else self.oneflow
        path = f"{self._path}.{key}" if self._path else key
        if self._step is None and not pair.is_reference_tensor(self._ref):
            return _namespace_attribute(self, key, path)
        special = _reference_of_placement(self, key)
        try:
            ref = pair.attribute_of_reference(self._ref, key) if special is None else special[0]
            cand = getattr(self._cand, key)
        except Exception as e:
            raise at_step(e, _expression(self, "{}." + key))
        if ref is None and cand is None:
            return None
        if (ref is None) != (cand is None) and key != "grad":
            message = (
                f"{path} is {_type_text(ref)} in {pair.names[0]} and {_type_text(cand)} in {pair.names[1]}"
            )
            raise at_step(Mismatch("number and type of outputs", message), _expression(self, "{}." + key))
        out = Dual(pair, ref, cand, key, owner=self)
        if pair.is_reference_tensor(ref):
            record(Step("get", self, (key,)), out)
        return out

    def __setattr__(self, key: str, value: Any) -> None:
        if key in Dual.__slots__:
            return _set(self, key, value)
        if key in ("pytorch", "reference", self._pair.names[0]):
            return _set(self, "_ref", value)
        if key in ("oneflow", "candidate", self._pair.names[1]):
            return _set(self, "_cand", value)
        value, r, c = split(value)
        step = Step("set", self, (key, value))
        try:
            setattr(self._ref, key, r)
            setattr(self._cand, key, c)
        except Exception as e:
            raise at_step(e, step)
        record(step)

    def __delattr__(self, key: str) -> None:
        delattr(self._ref, key)
        delattr(self._cand, key)

    def __dir__(self) -> list[str]:
        return sorted(
            set(dir(self._ref)) | {"pytorch", "oneflow", "reference", "candidate", *self._pair.names}
        )

    # ------------------------------------------------------------------ calls
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pair = self._pair
        if profiler.measured_paths and self._path in profiler.measured_paths:
            return profiler.profile_dual_object(self)(*args, **kwargs)
        resolved, reference_arguments, candidate_arguments = split_arguments(self._ref, args, kwargs)
        name = self._path.rpartition(".")[2]
        case = cases.current()
        is_first_forward = False
        if isinstance(self._ref, pair.reference_module) and case is not None:
            is_first_forward = case.note_forward(self) and is_watched(pair)
        step = Step("call", self, *resolved)
        call = functools.partial(
            call_both, pair, step, self._ref, self._cand, reference_arguments, candidate_arguments, name
        )
        r, c = self._call_with_hooks(call, step) if is_first_forward else call()
        step.random = pair.drawn_from
        made_before = len(case.modules) if case is not None else 0
        try:
            made = wrap(pair, r, c)
        except Mismatch as e:  # the mismatch of a new module
            raise at_step(e, step)
        out = record(step, made)
        if case is not None and len(case.modules) > made_before:
            vary_module(out)
        return out

    def _call_with_hooks(self, call: Callable[[], Any], step: Step) -> Any:
        with HookCounter(self._ref, self._cand) as hooks:
            results = call()
        try:
            hooks.compare(self._pair, self._path or type(self._ref).__name__)
        except Mismatch as e:
            raise at_step(e, step)
        return results

    # ------------------------------------------------------------------ containers and contexts
    def __iter__(self) -> Iterator[Any]:
        r, c = self._ref, self._cand
        is_sequence = all(hasattr(x, "__len__") and hasattr(x, "__getitem__") for x in (r, c))
        if is_sequence and not isinstance(r, (dict, str)):
            n = len(self)
            items: Any = self
            return iter([items[i] for i in range(n)])
        return _iterate(_operate(iter, "iter", self))

    def __next__(self) -> Any:
        end = object()
        r, c = next(self._ref, end), next(self._cand, end)
        step = Step("op", Dual(self._pair, next, next, "next"), (self,))
        if (r is end) != (c is end):
            shorter = self._pair.names[0 if r is end else 1]
            raise at_step(
                Mismatch(
                    "number and type of outputs", f"{self._path or 'the iterator'} ends earlier in {shorter}"
                ),
                step,
            )
        if r is end:
            raise StopIteration
        return record(step, Dual(self._pair, r, c))

    def __reversed__(self) -> Iterator[Any]:
        return reversed(list(self))

    def __len__(self) -> int:
        length = _Length(_agreed(self, "len({})", len(self._ref), len(self._cand)))
        for name in ("reference", "candidate", *self._pair.names):
            setattr(length, name, int(length))
        return length

    def __contains__(self, item: object) -> bool:
        item, r, c = split(item)
        return _agreed(self, "{1} in {0}", r in self._ref, c in self._cand, item)

    def __setitem__(self, key: Any, value: Any) -> None:
        _operate(operator.setitem, "setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        _operate(operator.delitem, "delitem", self, key)

    def __enter__(self) -> Any:
        r, c = self._ref.__enter__(), self._cand.__enter__()
        record(Step("enter", self))
        return self if r is self._ref else wrap(self._pair, r, c)

    def __exit__(self, *exc: object) -> Any:
        stop = self._cand.__exit__(*exc)
        stop = self._ref.__exit__(*exc) or stop
        record(Step("exit", self))
        return stop

    # ------------------------------------------------------------------ as a Python value
    def __bool__(self) -> bool:
        return _agreed(self, "bool({})", bool(self._ref), bool(self._cand))

    def __int__(self) -> int:
        return _agreed(self, "int({})", int(self._ref), int(self._cand))

    def __index__(self) -> int:
        return _agreed(self, "operator.index({})", operator.index(self._ref), operator.index(self._cand))

    def __float__(self) -> float:
        return self._number(float, "float({})")

    def __complex__(self) -> complex:
        return self._number(complex, "complex({})")

    def _number(self, kind: Callable[[Any], Agreed], template: str) -> Agreed:
        """The reference's value as a number; of a plain value, the candidate's must be near."""
        r, c = kind(self._ref), kind(self._cand)
        case = cases.current()
        # the values of a tensor are compared at the end, by the float64 value
        if case is None or self._pair.is_reference_tensor(self._ref) or not case.options.check_allclose:
            return r
        expression = template.format(self._path or "value")
        try:
            compare_plain(r, c, expression, case.options, self._pair.names)
        except Mismatch as e:
            raise at_step(e, _expression(self, template))
        return r

    def __hash__(self) -> int:
        return id(self)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x._ref if hasattr(type(x), "__dual__") else x, (self._ref, self._cand))

    def __format__(self, spec: str) -> str:
        return format(self._ref, spec)

    def __repr__(self) -> str:
        a, b = self._pair.names
        return f"{a}:\n{self._ref}\n\n{b}:\n{self._cand}"

    __str__ = __repr__


def _agreed(dual: Dual, template: str, r: Agreed, c: Agreed, *operands: object) -> Agreed:
    """Return r, the value of the Python expression `template` of a dual object, if both sides agree on it."""
    if r != c:
        expression = template.format(dual._path or "value", *operands)
        message = f"{expression} is {r!r} in {dual._pair.names[0]} and {c!r} in {dual._pair.names[1]}"
        raise at_step(Mismatch("values", message), _expression(dual, template, *operands))
    return r


def _expression(dual: Dual, template: str, *operands: object) -> Step:
    return Step("expression", dual, (template, *operands))


def _iterate(iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield the elements of a dual iterator."""
    while True:
        try:
            element = next(iterator)
        except StopIteration:
            return
        yield element


def _type_text(x: object) -> str:
    return "None" if x is None else f"a {type(x).__name__}"


def _namespace_attribute(self: Dual, key: str, path: str) -> Dual | None:
    """Return the attribute of a namespace of the two libraries, a class or a function; such objects need no
    record.
    """
    try:
        ref = getattr(self._ref, key)
    except AttributeError as e:
        at_step(e, _expression(self, "{}." + key))
        if not key.startswith("__") and hasattr(self._cand, key):
            raise AttributeError(f"{self._pair.names[0]} has no {path}, {self._pair.names[1]} has") from None
        raise
    try:
        cand = getattr(self._cand, key)
    except Exception as e:
        raise at_step(e, _expression(self, "{}." + key))
    if ref is None and cand is None:
        return None
    return Dual(self._pair, ref, cand, path, owner=self._owner)


def _reference_of_placement(dual: Dual, key: str) -> tuple[Any] | None:
    ref = dual._ref
    if key in PLACEMENT_METHODS:
        copy = ref.clone if dual._pair.is_reference_tensor(ref) else (lambda: ref)
        return (lambda *args, **kwargs: copy(),)
    if key in ("placement", "sbp"):
        return ("unused",)
    if key == "broadcast_like" and not hasattr(ref, key):
        return (lambda like, *args, **kwargs: ref.broadcast_to(like.size()),)
    return None


def wrap(pair: Pair, r: Any, c: Any, path: str = "") -> Dual:
    """Return the dual object of two results; a new module gets the reference's weights."""
    out = Dual(pair, r, c, path)
    if not isinstance(r, pair.reference_module):
        return out
    if not pair.is_candidate_module(c):
        refuse_without_module(pair, r, c)
        return out
    case = cases.current()
    if case is not None and id(c) in case.module_ids:
        return out
    if is_watched(pair):
        compare_new_modules(pair, r, c)
    else:
        warn_of_missing_tensors(pair, r, c)
    pair.copy_state(r, c)
    if in_global_scope():
        c = module_to_global(pair, c)
        _set(out, "_cand", c)
    if case is not None:
        case.note_module(out, in_global_scope())
    return out


def refuse_without_module(pair: Pair, r: Any, c: Any) -> None:
    """Raise if the reference's module has tensors and the candidate's object cannot take them."""
    if next(iter(r.state_dict()), None) is not None:
        raise TypeError(
            f"{pair.names[0]} made a {type(r).__name__} with parameters or buffers, and {pair.names[1]} an"
            f" object of class {type(c).__name__} that is no module: it needs {', '.join(MODULE_METHODS)}"
        )


def warn_of_missing_tensors(pair: Pair, r: Any, c: Any) -> None:
    missing = [k for k in r.state_dict() if k not in c.state_dict()]
    if missing:
        warnings.warn(f"{pair.names[1]}'s {type(c).__name__} does not have {missing}", stacklevel=4)


def vary_module(module: Any) -> None:
    """Give a new module the dtype of its case; in one case of four compare copies, and use eval mode."""
    case = cases.breaking()
    if case is None or in_global_scope():
        return
    dtypes = {p.dtype for p in module._ref.parameters() if p.is_floating_point()}
    if case.dtype is not None and {str(d) for d in dtypes} == {"torch.float32"}:
        name = str(case.dtype).rpartition(".")[2]
        module.to(Dual(case.pair, case.dtype, getattr(case.pair.candidate, name), name))
    choose = source.current().live()
    if choose.integer(0, 4) == 3:
        module.eval()
    if choose.integer(0, 4) == 3 and is_watched(case.pair):
        try:
            compare_copies(case.pair, module._ref, module._cand)
        except Mismatch as e:
            raise at_step(e, module._step)


# ---------------------------------------------------------------------- operators
def _operate(function: Callable[..., Any], name: str, *operands: Any) -> Any:
    """Apply an operator on both sides; one of the operands is a dual object."""
    splits = [split(o) for o in operands]
    dual = next(o for o in operands if hasattr(type(o), "__dual__"))
    step = Step("op", Dual(dual._pair, function, function, name), tuple(s[0] for s in splits))
    reference, candidate = tuple(s[1] for s in splits), tuple(s[2] for s in splits)
    of_reference = dual._pair.operator_of_reference(function, name)
    r, c = call_both(dual._pair, step, of_reference, function, (reference, {}), (candidate, {}))
    step.random = dual._pair.drawn_from
    return record(step, Dual(dual._pair, r, c))


def _method(name: str, function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    if swapped:
        return lambda self, left: _operate(function, name, left, self)
    return lambda self, *others: _operate(function, name, self, *others)


def _install() -> None:
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    ):
        function = getattr(operator, name, None) or getattr(operator, name + "_")
        setattr(Dual, f"__{name}__", _method(name, function))
        setattr(Dual, f"__r{name}__", _method(name, function, swapped=True))
        setattr(Dual, f"__i{name}__", _method("i" + name, getattr(operator, "i" + name)))
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "getitem", "neg", "pos", "abs", "invert"):
        setattr(Dual, f"__{name}__", _method(name, getattr(operator, name)))
    for name, function in (("divmod", divmod), ("round", round)):
        setattr(Dual, f"__{name}__", _method(name, function))


_install()


def GetDualObject(pair: Pair, name: str, ref: Any, cand: Any) -> Dual:
    """Return the dual object of two existing values; tensors become inputs of the running case."""
    if isinstance(ref, pair.reference_module):
        return wrap(pair, ref, cand, name)
    out = Dual(pair, ref, cand, name)
    if pair.is_reference_tensor(ref):
        record(Step("input", None, out=out, value=ref.detach().clone()), out)
    return out
