"""Checking one case after its program has run: every result, every gradient, every buffer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .backward import run_backward
from .case import Case, DualObject, Step
from .compare import compare_gradients, compare_values
from .contract import is_watched
from .derivatives import check_numerically, check_second_order
from .errors import Mismatch
from .oracle import Oracle, narrowest_of
from .pair import tensors_of
from .printing import name_of
from .verdict import OTHER_IMPLEMENTATION, SAME_KERNELS, Standard, Truth, narrowest

if TYPE_CHECKING:
    import torch

    from .pair import CandidateTensor, Pair


def flatten_outputs(result: Any) -> list[DualObject]:
    """Return the dual objects that a test returned, out of any nesting of sequences and dicts."""
    if result is None:
        return []
    if hasattr(type(result), "__dual__"):
        return [result]
    if isinstance(result, dict):
        return [d for v in result.values() for d in flatten_outputs(v)]
    if isinstance(result, (list, tuple)):
        return [d for v in result for d in flatten_outputs(v)]
    return []


@contextlib.contextmanager
def about(dual: DualObject) -> Iterator[None]:
    """Note in a Mismatch that it is about the step that made this object."""
    try:
        yield
    except Mismatch as e:
        e.differing_step = e.differing_step or dual._step
        raise


def check_results(case: Case) -> None:
    """Compare every tensor of the program, in program order, so that the earliest difference is reported."""
    pair, options = case.pair, case.options
    values, oracle = options.check_allclose, oracle_of(case)
    for step in case.steps:
        out = step.out
        if out is None or step.action == "input":
            if out is not None and values:
                compare_values(pair, out._ref, out._cand, name_of(out), options)
            continue
        if holds_tensor(pair, out._ref) or holds_tensor(pair, out._cand):
            standard = Standard(
                level_of_values(case),
                oracle.result(out),
                functools.partial(narrowest_before, pair, step),
                signs=level_of_values(case) == SAME_KERNELS,
            )
            with about(out):
                compare_values(
                    pair, out._ref, out._cand, name_of(out), options, check_values=values, standard=standard
                )
        elif promises_value(case, step):
            with about(out):
                compare_values(pair, out._ref, out._cand, name_of(out), options, check_values=values)


# functions whose plain results two libraries never share, and those that only the same kernels share
ADDRESSES = {"data_ptr", "initial_seed", "seed", "__hash__"}
OF_KERNELS = {"stride", "storage_offset", "is_contiguous", "is_non_overlapping_and_dense"}


def promises_value(case: Case, step: Step) -> bool:
    """Whether the two sides must agree on a result without tensors that the test has not returned."""
    if case.options.like == "oneflow" or step.action not in ("call", "op"):
        return False
    name = step.target._path.rpartition(".")[2]
    if name in OF_KERNELS:
        return case.pair.level == SAME_KERNELS
    return name not in ADDRESSES


def oracle_of(case: Case) -> Oracle:
    """Return the float64 runs of a case."""
    if not isinstance(case.oracle, Oracle):
        case.oracle = Oracle(case)
    return case.oracle


def narrowest_before(pair: Pair, step: Step) -> torch.dtype | None:
    """Return the narrowest float dtype among the tensors that a step's result is computed from."""
    dtypes: list[torch.dtype] = []
    seen: set[int] = set()
    todo: list[Any] = [step.out, step.target, step.args, step.kwargs]
    while todo:
        x = todo.pop()
        if hasattr(type(x), "__dual__"):
            if id(x) in seen:
                continue
            seen.add(id(x))
            if (
                x is step.out or x._step is None or x._step.action != "input"
            ):  # the values of an input are exact
                dtypes += [t.dtype for t in tensors_of(x._ref, pair.is_reference_tensor)]
            if isinstance(x._ref, pair.reference_module):
                dtypes += [p.dtype for p in x._ref.parameters()]
            todo += [x._owner, *((x._step.target, x._step.args, x._step.kwargs) if x._step else ())]
        elif isinstance(x, dict):
            todo += x.values()
        elif isinstance(x, (tuple, list)):
            todo += x
    return narrowest(dtypes)


def holds_tensor(pair: Pair, x: object) -> bool:
    """Whether x is a tensor of either side, or a sequence that holds one."""
    if pair.is_reference_tensor(x) or pair.is_candidate_tensor(x):
        return True
    return isinstance(x, (tuple, list)) and any(holds_tensor(pair, e) for e in x)


def check_outputs(case: Case) -> None:
    """Compare the returned values that hold no tensor: numbers, dtypes and other plain values."""
    for out in case.outputs:
        if not holds_tensor(case.pair, out._ref) or out._step is None:
            values = case.options.check_allclose
            with about(out):
                compare_values(
                    case.pair, out._ref, out._cand, name_of(out), case.options, check_values=values
                )


def ids_of_manual_gradients(case: Case) -> set[int]:
    """Return the ids of reference tensors whose gradient the test took by hand, through `x.oneflow` only: it
    never called a dual backward.
    """
    if any(
        step.action == "call" and step.target._path.rpartition(".")[2] in ("backward", "grad")
        for step in case.steps
    ):
        return set()
    outs = [
        step.out
        for step in case.steps
        if step.out is not None and case.pair.is_reference_tensor(step.out._ref) and step.out._ref.is_leaf
    ]
    return {
        id(out._ref) for out in outs if out._ref.grad is None and getattr(out._cand, "grad", None) is not None
    }


def tensors_with_gradients(case: Case) -> list[DualObject]:
    """Return the dual tensors whose `.grad` is compared: leaves, and others that retain it."""
    seen, duals = ids_of_manual_gradients(case), []
    for step in case.steps:
        out = step.out
        if out is not None and case.pair.is_reference_tensor(out._ref) and id(out._ref) not in seen:
            seen.add(id(out._ref))
            if out._ref.is_leaf or out._ref.retains_grad:
                duals.append(out)
    return duals


def check_gradients(case: Case, duals: list[DualObject]) -> None:
    """Compare the gradients of these dual tensors."""
    pair, options, oracle = case.pair, case.options, oracle_of(case)
    for dual in duals:
        standard = standard_of(case, oracle.gradient(dual))
        values = options.check_allclose
        with about(dual):
            compare_gradients(
                pair,
                dual._ref.grad,
                gradient_of_candidate(case, dual),
                name_of(dual),
                options,
                values,
                standard,
            )


def gradient_of_candidate(case: Case, dual: DualObject) -> CandidateTensor | None:
    if case.pair.gradient_function is None:
        return getattr(dual._cand, "grad", None)
    return case.candidate_gradients.get(dual._step.number)


def standard_of(case: Case, truth: Truth) -> Standard:
    """Return the standard of a gradient or of a module's tensor, which any step may have reached."""
    return Standard(level_of_values(case), truth, functools.partial(narrowest_of, case))


def level_of_values(case: Case) -> str:
    """Return how strictly values are judged. OneFlow's harness knows a tolerance only."""
    return OTHER_IMPLEMENTATION if case.options.like == "oneflow" else case.pair.level


def check_modules(case: Case) -> None:
    """Compare parameters, their gradients, and buffers (the running statistics that a forward changes)."""
    for module in case.modules:
        with about(module):
            check_parameters(case, module)
    for module in case.modules:
        with about(module):
            check_buffers(case, module)


def check_parameters(case: Case, module: DualObject) -> None:
    pair, options, oracle = case.pair, case.options, oracle_of(case)
    values = options.check_allclose
    theirs = dict(module._cand.named_parameters())
    for name, r in module._ref.named_parameters():
        if name not in theirs:
            continue  # reported when the module was made
        what, c = f"parameter {name} of {name_of(module)}", theirs[name]
        gradient = standard_of(case, oracle.parameter(module, name, gradient=True))
        compare_gradients(pair, r.grad, getattr(c, "grad", None), what, options, values, gradient)
        value = standard_of(case, oracle.parameter(module, name))
        compare_values(pair, r, c, what, options, check_values=values, standard=value)


def check_buffers(case: Case, module: DualObject) -> None:
    pair, options, oracle = case.pair, case.options, oracle_of(case)
    theirs = dict(module._cand.named_buffers())
    for name, r in module._ref.named_buffers():
        if name not in theirs:
            continue
        what = f"buffer {name} of {name_of(module)}"
        value = standard_of(case, oracle.parameter(module, name))
        try:
            compare_values(
                pair, r, theirs[name], what, options, check_values=options.check_allclose, standard=value
            )
        except Mismatch as e:
            raise renamed(e, "buffers", str(e)) from None


def renamed(error: Mismatch, check: str, message: str) -> Mismatch:
    """Return the difference as one of another check."""
    other = Mismatch(check, message)
    other.distance, other.tolerance = error.distance, error.tolerance
    return other


def check_derivatives(case: Case) -> None:
    """Check second derivatives if the case was sampled for it, and all derivatives with gradcheck=True."""
    if not is_watched(case.pair) or not case.options.check_allclose:
        return
    is_asked = case.options.gradcheck
    if is_asked or case.has_second_order and case.pair.level == SAME_KERNELS:
        check_second_order(case)
    if is_asked:
        check_numerically(case)


def check(case: Case) -> None:
    """Run all checks of the two eager sides, in order."""
    check_results(case)
    check_outputs(case)
    # Noted before the harness's own backward, after which manual gradients cannot be told.
    case.duals_with_gradient = tensors_with_gradients(case)
    wrong_derivative = None
    if case.options.auto_backward:
        try:
            check_derivatives(case)
        except Mismatch as e:  # a wrong gradient comes first
            wrong_derivative = e
        run_backward(case)
    check_gradients(case, case.duals_with_gradient)
    check_modules(case)
    if wrong_derivative is not None:
        raise wrong_derivative
