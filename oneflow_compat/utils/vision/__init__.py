"""oneflow.utils.vision (OneFlow 0.5): its transforms and data sets live on in the package flowvision, which
this hands out.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, NoReturn

if TYPE_CHECKING:
    import types
    from collections.abc import Callable


def hand_over(name: str, module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of the module `name`, backed by flowvision's `module`."""

    def theirs() -> types.ModuleType:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != "flowvision":
                raise
            raise ModuleNotFoundError(
                f"{name} is handed out by the package flowvision, which is not installed: pip install"
                " flowvision",
                name="flowvision",
            ) from None

    def __getattr__(attr: str) -> Any:
        if attr.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attr!r}")
        return getattr(theirs(), attr)

    return __getattr__, lambda: sorted(dir(theirs()))


def __getattr__(attr: str) -> Any:
    if attr in ("datasets", "transforms"):
        return importlib.import_module(f"{__name__}.{attr}")
    return _getattr(attr)


_getattr, __dir__ = hand_over(__name__, "flowvision")
