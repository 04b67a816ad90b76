"""The exceptions this package raises beyond Python's own."""

from __future__ import annotations


class OneFlowError(RuntimeError):
    """Base class; also `oneflow._oneflow_internal.exception.CheckFailedException`."""


class UnsupportedError(OneFlowError, NotImplementedError):
    """A OneFlow feature that this package does not have; the message names the difference row."""


class StateError(OneFlowError, AssertionError):
    """An operation requested at a time when it is not possible, where OneFlow asserts."""


class NoSuchState(RuntimeError, AttributeError):
    """An attribute that this tensor does not have: OneFlow raises RuntimeError, hasattr() answers False."""


class RefusedValue(ValueError, AssertionError):
    """An argument out of its range. torch raises ValueError and OneFlow asserts; code written for either
    catches this.
    """


class RefusedStep(ValueError, RuntimeError):
    """A step of a slice that is 0 or negative: OneFlow raises ValueError for one and RuntimeError for the
    other, and torch raises ValueError.
    """


class RefusedType(TypeError, AssertionError):
    """An argument of a wrong type, where OneFlow asserts."""


class RefusedFile(TypeError, AttributeError):
    """A file object without the methods that are needed. torch's error comes from the missing attribute."""


class EmptyParameters(RefusedValue, IndexError):
    """An empty list of parameters: torch raises ValueError, OneFlow IndexError."""


class NotAParameter(RefusedType, ValueError):
    """A parameter that is no tensor: torch raises TypeError, OneFlow ValueError."""


class MissingKey(RefusedValue, KeyError):
    """A dict without a key that it needs: torch raises ValueError, OneFlow KeyError or AssertionError."""

    __str__ = ValueError.__str__


class IndexOutOfBounds(IndexError, RuntimeError):
    """An index out of bounds in compiled code: torch's operators raise one or the other."""


def asserted(error: Exception) -> Exception:
    """Return a ValueError or TypeError as an error that is also an AssertionError; return any other error
    unchanged.
    """
    error_class = {ValueError: RefusedValue, TypeError: RefusedType}.get(type(error))
    return error if error_class is None else error_class(*error.args).with_traceback(error.__traceback__)


def difference_hint(row: str) -> str:
    """Return, for an error message, the command that prints a row of the table of differences."""
    return f"(`python -m oneflow --difference {row}` says why)"


def unsupported(what: str, difference: str, instead: str) -> UnsupportedError:
    """Return an error that says what was asked, which row of the differences explains it, and what to do."""
    return UnsupportedError(f"{what} is not supported here {difference_hint(difference)}. {instead}")
