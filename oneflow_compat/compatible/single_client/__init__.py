"""oneflow.compatible.single_client: OneFlow's job-function API (up to 0.5) on the graph engine of nn.Graph.

Names come from `_tables/legacy/names.py` and are looked up at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..._tables.legacy import names as _table

if TYPE_CHECKING:
    from typing import Any


def __getattr__(name: str) -> Any:
    """The sub-module or the object of this name."""
    if name in _table.MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _table.home(name)
    if home is None:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}: it is not a name of OneFlow's job-function API"
        )
    module, _, inner = home.partition(":")
    base = (
        importlib.import_module(module)
        if module == "torch"
        else importlib.import_module(f"{__name__}.{module}")
    )
    value = getattr(base, inner)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_table.MODULES, *_table.all_names(), "__name__", "__doc__", "__path__"})
