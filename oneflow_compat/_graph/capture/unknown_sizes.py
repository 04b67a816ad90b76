"""The symbolic results of operators on tensors of unknown sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor

from ..._global.tensor import several
from ..errors import KEEP_SIZE, CaptureError, user_location
from ..program.symbolic import SYMBOLIC_NUMBERS
from .results_from_examples import results_from_examples

aten = torch.ops.aten


def of_unknown_sizes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], environment: Any) -> Any:
    """Return the symbolic results of an operator some of whose arguments have unknown sizes.

    Call it in the symbolic mode.
    """
    try:
        return func(*args, **kwargs)
    except (RuntimeError, ValueError) as error:
        out = _another_form(func, args, kwargs) if asks_for_a_size(error) else None
        if out is not None:
            return out
        if not several() and _take_as_equal(func, args, kwargs, environment):
            return of_unknown_sizes(func, args, kwargs, environment)
        if not asks_for_a_size(error):
            raise
        raise CaptureError(
            f"{func} has no symbolic form for sizes that depend on values (of x[mask], nonzero() or the"
            " like)",
            KEEP_SIZE,
        ) from error


def _another_form(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    decomposition = decomposition_table.get(func)
    if decomposition is not None:
        try:
            return decomposition(*args, **kwargs)
        except RuntimeError as error:
            if not asks_for_a_size(error):
                raise
    return results_from_examples(func, args, kwargs)


def _take_as_equal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], environment: Any) -> bool:
    """Record that unknown sizes are those an operator needs; return False if none is in question.

    In `x[mask] + y` for a y of 5 rows, the program is of 5 rows and asserts it; a call with another size
    takes another program. Call this after torch could not tell that the sizes are equal.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # it imports sympy

    decided = False
    for size, required in _pairs(func, args, kwargs):
        equal = size == required
        if type(equal) is not torch.SymBool or any(map(statically_known_true, (equal, torch.sym_not(equal)))):
            continue
        if environment.branch(equal, True, user_location()):
            torch._check(equal)
            decided = True
    return decided


def _pairs(func: Any, args: Any, kwargs: Any) -> Any:
    """Yield the pairs of sizes that must be equal.

    An unknown size that is 1 in a run is not broadcast, because torch's symbolic results would have the
    wrong size.
    """
    if func is aten.cat.default:
        tensors, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
        shapes = [[n for d, n in enumerate(t.shape) if d != dim % t.dim()] for t in tensors]
    elif func is aten.expand.default:
        shapes = [args[0].shape, args[1]]
    elif torch.Tag.pointwise in func.tags or func._opname in ("copy_", "copy", "where"):
        shapes = [a.shape for a in (*args, *kwargs.values()) if isinstance(a, FakeTensor)]
    else:
        return
    for i, shape in enumerate(shapes):
        for previous in shapes[:i]:
            for pair in zip(reversed(shape), reversed(previous)):
                if not any(type(n) is int and n in (1, -1) for n in pair):
                    yield pair


def innermost(error: BaseException) -> Any:
    """Return the frame that raised the error."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame


def asks_for_a_size(error: BaseException) -> bool:
    """Return True if torch's error says that it needs the value of an unknown size."""
    message = str(error)
    if isinstance(error, TypeError):  # Python that wants an int: random.Random(n), {}[n]
        return "SymInt" in message or any(
            type(v) in SYMBOLIC_NUMBERS for v in innermost(error).f_locals.values()
        )
    if type(error).__name__ in ("GuardOnDataDependentSymNode", "UnsupportedOperatorException"):
        return True
    return any(
        said in message
        for said in (
            "symbolic sizes",
            "symbolic shapes",
            "isIntList",
            "concrete integers",
            "NO overloaded args",
            "no interpreter set",
        )
    )
