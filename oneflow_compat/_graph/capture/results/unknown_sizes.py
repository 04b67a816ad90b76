"""The symbolic results of operators on tensors of unknown sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ...._global.marks import several
from ...errors import KEEP_SIZE, CaptureError, user_location
from ...program.symbolic import SYMBOLIC_NUMBERS

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
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # the module imports sympy

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
    shapes: list[Any]
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
    assert traceback is not None, "the error was raised"
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


# ---------- The symbolic results of operators for which torch has no symbolic form, derived from examples
# An example has numbers in place of the unknown sizes. If, in all examples, a dimension of a result is a
# multiple of an argument's dimension plus a number, that is its form. Otherwise the result has none. When
# the program runs, the operator itself computes the results: only their symbolic sizes come from here.

_NUMBERS = 101, 37, 223, 149, 61
_DIVISIBLE = 720720  # every number to 16 divides this example of a size


def results_from_examples(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the results as symbolic tensors, or None if their sizes are no simple function of the inputs'.

    Call it in the symbolic mode.
    """
    sizes = _unknown_sizes(tree_flatten((args, kwargs))[0])
    if sizes is None:
        return None
    assignments = _assignments(sizes)
    examples = [_example(func, args, kwargs, assignment) for assignment in assignments]
    if any(e is None for e in examples):
        return None
    results, forms = zip(*map(tree_flatten, examples))
    if any(form != forms[0] for form in forms) or not all(isinstance(r, torch.Tensor) for r in results[0]):
        return None
    tensors = [_tensor(each, assignments, sizes) for each in zip(*results)]
    return None if any(m is NotImplemented for m in tensors) else tree_unflatten(tensors, forms[0])


def _unknown_sizes(leaves: Any) -> list[Any] | None:
    """Return the unknown sizes among the arguments; None if there are other scalars computed from sizes."""
    if any(type(a) in SYMBOLIC_NUMBERS and type(a) is not torch.SymInt for a in leaves):
        return None
    sizes = [s for a in leaves for s in (a.shape if isinstance(a, FakeTensor) else (a,))]
    return [s for s in sizes if type(s) is torch.SymInt]


def _assignments(sizes: Any) -> list[Any]:
    """Return examples of the unknown sizes: {symbol: number} each."""
    symbols = sorted({symbol for s in sizes for symbol in s.node.expr.free_symbols}, key=str)
    factor = 1 if all(s.node.expr.is_polynomial() for s in sizes) else _DIVISIBLE
    return [
        {s: factor * (n + 7 * position * (1 + i)) for i, s in enumerate(symbols)}
        for position, n in enumerate(_NUMBERS)
    ]


def _number(value: Any, assignment: Any) -> Any:
    if type(value) is torch.SymInt:
        return int(value.node.expr.xreplace(assignment))
    return [_number(v, assignment) for v in value] if isinstance(value, (tuple, list)) else value


def _example(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assignment: Any) -> Any:
    def of_numbers(a: Any) -> Any:
        if isinstance(a, FakeTensor):
            return torch.empty_strided(
                _number(a.shape, assignment), _number(a.stride(), assignment), dtype=a.dtype, device=a.device
            )
        return _number(a, assignment)

    with _disable_current_modes(), FakeTensorMode():
        try:
            return func(*tree_map(of_numbers, args), **tree_map(of_numbers, kwargs))
        except Exception:  # sizes that do not fit together, no form for numbers either
            return None


def _tensor(examples: Any, assignments: Any, sizes: Any) -> Any:
    shape = [_dimension(values, assignments, sizes) for values in zip(*(e.shape for e in examples))]
    orders = {tuple(sorted(range(e.dim()), key=lambda d: (-e.stride(d), d))) for e in examples}
    if len(shape) != examples[0].dim() or any(n is None for n in shape) or len(orders) > 1:
        return NotImplemented
    stride, step = [1] * len(shape), 1
    for d in reversed(orders.pop()):
        stride[d], step = step, step * shape[d]
    if any(list(e.stride()) != _number(stride, assignment) for e, assignment in zip(examples, assignments)):
        return NotImplemented
    return torch.empty_strided(shape, stride, dtype=examples[0].dtype, device=examples[0].device)


def _dimension(values: Any, assignments: Any, sizes: Any) -> Any:
    if len(set(values)) == 1:
        return values[0]
    for size in sizes:
        size_values = [_number(size, assignment) for assignment in assignments]
        times = (
            (values[1] - values[0]) // (size_values[1] - size_values[0])
            if size_values[1] != size_values[0]
            else 0
        )
        rest = values[0] - times * size_values[0]
        if all(v == times * k + rest for v, k in zip(values, size_values)):
            return size * times + rest
    return None
