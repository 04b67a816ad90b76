"""The fixed parts of a cell's script: how outcomes are made, and how they are compared."""

from __future__ import annotations

import re

from ..script_parts import HELPERS
from ..verdict import TABLE, of_plain_numbers

_RTOL, _ATOL = of_plain_numbers()
_DTYPES = ",\n".join(f"    torch.{dtype}: {pair}" for dtype, pair in TABLE.items())

# A script of a cell ends with this line, unless the cell claims something else than agreement.
AGREE = "agree(actual, expected)"

# name: source. A part comes after the parts that it uses.
PARTS = {
    "tensors_of": '''
def tensors_of(x):
    """Return the tensors of a result, those in containers included."""
    if isinstance(x, torch.Tensor):
        return [x]
    x = list(x.values()) if isinstance(x, dict) else x
    return [t for e in x for t in tensors_of(e)] if isinstance(x, (tuple, list)) else []
''',
    "gradients_of": '''
def gradients_of(out, leaves):
    """Return the gradients of the leaves for fixed gradients of the outputs."""
    outputs = [t for t in tensors_of(out) if t.requires_grad]
    fixed = [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype) for t in outputs]
    return list(torch.autograd.grad(outputs, leaves, fixed, allow_unused=True)) if outputs else []
''',
    "numpy_result": '''
def numpy_result(*args, **kwargs):
    """Call the NumPy function of torch's table of operators."""
    arrays = [a.detach().numpy() if isinstance(a, torch.Tensor) else a for a in args]
    keywords = {k: a.detach().numpy() if isinstance(a, torch.Tensor) else a for k, a in kwargs.items()}
    return torch.as_tensor(operator.ref(*arrays, **keywords))
''',
    "unpack": HELPERS["unpack"],
    "with_strides": HELPERS["with_strides"],
    "outcome": '''
def outcome(function, *args):
    """Return the result of a call, or the error that it raises."""
    try:
        return function(*args)
    except Exception as error:
        return error
''',
    "TOLERANCES": f"\nTOLERANCES = {{\n{_DTYPES},\n}}  # rtol, atol\n",
    "agree": f"""
def agree(actual, expected, tolerance=None):
    \"\"\"Assert that two outcomes agree: errors by class, tensors and numbers by value.\"\"\"
    if isinstance(actual, Exception) or isinstance(expected, Exception):
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        assert related, f"{{actual!r}} instead of {{expected!r}}"
    elif isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), f"{{type(actual)}} instead of a tensor"
<tensors>
    elif isinstance(expected, (tuple, list)):
        assert isinstance(actual, (tuple, list)) and len(actual) == len(expected), f"{{actual}} {{expected}}"
        for a, e in zip(actual, expected):
            agree(a, e, tolerance)
    elif isinstance(expected, dict):
        assert isinstance(actual, dict) and actual.keys() == expected.keys(), f"{{actual}} {{expected}}"
        for key in expected:
            agree(actual[key], expected[key], tolerance)
    elif isinstance(expected, (float, complex)) or hasattr(expected, "__array__"):
        torch.testing.assert_close(actual, expected, rtol={_RTOL}, atol={_ATOL}, equal_nan=True)
    elif isinstance(expected, (bool, int, str, type(None))):
        assert actual == expected, f"{{actual!r}} instead of {{expected!r}}"
    elif type(expected).__name__ in ("dtype", "device", "layout", "memory_format"):
        assert str(actual) == str(expected), f"{{actual}} instead of {{expected}}"
""",
}

VALUES = """        inexact = expected.is_floating_point() or expected.is_complex()
        rtol, atol = tolerance or (TOLERANCES[expected.dtype] if inexact else (0, 0))
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)"""
# The assertion for a function whose values no library promises.
FORM = """        form = expected.shape, expected.dtype
        assert (actual.shape, actual.dtype) == form, f"{actual} instead of {expected}\""""


AGREE_PARTS = {
    by_value: PARTS["agree"].replace("<tensors>", VALUES if by_value else FORM) for by_value in (True, False)
}


def _whole(part: str) -> str:
    return part.strip("\n") + "\n\n\n"


WHOLE_PARTS = tuple(_whole(p) for name, p in PARTS.items() if name != "agree") + tuple(
    map(_whole, AGREE_PARTS.values())
)


def with_parts(text: str, values: bool = True) -> str:
    """Return the source text after the parts that it uses; `values` is False to compare only forms."""
    chosen: list[str] = []
    for name, part in reversed(PARTS.items()):
        source = _whole(AGREE_PARTS[values] if name == "agree" else part)
        if re.search(rf"\b{name}\b", text + "".join(chosen)):
            chosen.insert(0, source)
    return "".join(chosen) + text
