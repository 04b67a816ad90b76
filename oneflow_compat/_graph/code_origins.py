"""Whose code a file holds: that of torch, of this package, of the standard library, or of the user."""

from __future__ import annotations

import functools
import os
import sysconfig

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
SITE = f"{os.sep}site-packages{os.sep}"


@functools.lru_cache(None)
def torch_folder() -> str:
    import torch  # here, because front ends import this module before they need torch

    return os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def is_of_torch(name: str) -> bool:
    return name.startswith(torch_folder())


def is_of_this_package(name: str) -> bool:
    return name.startswith(PACKAGE)


def is_of_standard_library(name: str) -> bool:
    return name.startswith(STDLIB) and SITE not in name


@functools.lru_cache(4096)
def is_internal(name: str) -> bool:
    """Return True for a file of torch or of this package, and for generated code."""
    return name.startswith((PACKAGE, "<", torch_folder()))


def is_of_user(name: str) -> bool:
    """Return False for a file of torch, this package or another installed package, and for generated code."""
    return not (is_internal(name) or SITE in name or name.startswith(STDLIB))
