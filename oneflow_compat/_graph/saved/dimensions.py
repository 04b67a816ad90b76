"""Guards on the sizes of arguments in program.json."""

import re
from typing import Any

from ..._file_safety.shown import reason, shown
from ..guards.dimensions import Dimension, DimensionGuards, Layout, UnsupportedExpression
from ..program.program import Slot
from ..program.tensor_info import Shape
from .reader import inside, integer, label, listed, read_size, record, refuse, row

_SYMBOL = re.compile(r"s[0-9]{1,9}\Z")


def _symbol(value: object, location: str) -> str:
    if type(value) is not str or not _SYMBOL.match(value):
        raise refuse(location, "a symbol such as s0", value)
    return value


dimensions_record = record(
    symbols=listed(row(_symbol, integer(0), integer(0), integer(2))),
    strides=listed(row(integer(0), listed(read_size))),
    conditions=listed(label),
)


def has_symbols(slot: Slot) -> bool:
    """Whether the shape of a slot has symbols."""
    return any(type(size) is str for size in slot.shape or ())


def record_of(guards: DimensionGuards | None) -> dict[str, Any] | None:
    """Return the record of the guards; the shapes are those of the slots."""
    if guards is None:
        return None
    return {
        "symbols": [[d.symbol, d.argument, d.dim, d.example] for d in guards.dimensions],
        "strides": [[index, list(layout.stride)] for index, layout in guards.layouts.items()],
        "conditions": list(guards.conditions),
    }


def read_dimensions(
    contents: dict[str, Any] | None, shapes: dict[int, Shape], location: str
) -> DimensionGuards | None:
    """Return the DimensionGuards of a record, or None.

    `shapes`: index of a flat argument -> shape, in which each text must be a symbol that is declared there.
    """
    dimensions = [Dimension(*values) for values in contents["symbols"]] if contents else []
    strides = dict(contents["strides"]) if contents else {}
    _check_symbols(dimensions, shapes, location, contents)
    if contents is None:
        return None
    if any(d.argument not in strides for d in dimensions):
        raise refuse(inside(location, "symbols"), "dimensions of arguments", contents["symbols"])
    if len({d.symbol for d in dimensions}) != len(dimensions) or len(strides) != len(contents["strides"]):
        raise refuse(location, "each symbol and each argument once", contents)
    for index, steps in strides.items():
        if len(steps) != len(shapes.get(index, ())):
            raise refuse(inside(location, "strides"), "a stride for each dimension", steps)
    layouts = {index: Layout(tuple(shapes[index]), tuple(steps)) for index, steps in strides.items()}
    try:
        return DimensionGuards(tuple(dimensions), layouts, tuple(contents["conditions"]))
    except UnsupportedExpression as error:
        raise refuse(inside(location, "conditions"), "arithmetic on the symbols", reason(error)) from None


def _check_symbols(
    dimensions: list[Dimension], shapes: dict[int, Shape], location: str, contents: dict[str, Any] | None
) -> None:
    """Raise unless the declared symbols are those of the shapes, each in its dimension."""
    declared = {(d.argument, d.dim, d.symbol) for d in dimensions}
    used = {
        (index, dim, size)
        for index, shape in shapes.items()
        for dim, size in enumerate(shape)
        if type(size) is str
    }
    if undeclared := used - declared:
        index, dim, symbol = min(undeclared)
        raise refuse(location, f"the symbol {shown(symbol)} of dimension {dim} of argument {index}", contents)
    if declared != used:
        symbols = contents["symbols"] if contents is not None else None
        raise refuse(inside(location, "symbols"), "dimensions of arguments", symbols)
