"""The errors of reading a file. A message names the file, its defect, and what to do."""

from __future__ import annotations

import contextlib
import errno
import pickle
from collections.abc import Iterator

from .shown import reason


class CheckpointError(RuntimeError):
    """A file cannot be read: it is truncated, altered or of another format.

    `source` is the file, if known.
    """

    source: object = None

    @classmethod
    def of(cls, source: object, message: object) -> CheckpointError:
        """Return the error with the name of its file."""
        error = cls(f"{source}: {message}")
        error.source = source
        return error


class RefusedError(CheckpointError, pickle.UnpicklingError):
    """A file asks for something that a safe load does not do."""


@contextlib.contextmanager
def named_errors(source: object) -> Iterator[None]:
    """Turn every error that a damaged file can cause into a CheckpointError that names `source`.

    The error that it replaces is not its cause: a traceback would print that error's arguments, which may be
    values of the file.
    """
    try:
        yield
    except CheckpointError as error:
        if error.source is not None:
            raise
        raise type(error).of(source, error) from None
    except (MemoryError, RecursionError) as error:
        raise CheckpointError.of(
            source, f"altered: reading it needs too much memory or depth ({type(error).__name__})"
        ) from None
    except (OSError, ImportError) as error:
        if getattr(error, "errno", None) != errno.EINVAL:
            raise  # the error comes from the system, not from the content
        raise CheckpointError.of(
            source, "truncated or altered: it names an offset before its beginning"
        ) from None
    except Exception as error:
        if getattr(error, "of_the_caller", False):
            raise
        raise CheckpointError.of(
            source, f"truncated or altered ({type(error).__name__}: {reason(error)})"
        ) from None
