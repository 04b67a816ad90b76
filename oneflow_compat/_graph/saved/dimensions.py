"""Guards on the sizes of arguments in program.json."""

from __future__ import annotations

import re

from ..program.dimension_guards import Dimension, DimensionGuards, Layout, UnsupportedExpression
from .reader import inside, integer, label, listed, record, refuse, row

_SYMBOL = re.compile(r"s[0-9]{1,9}\Z")


def _symbol(value, location):
    if type(value) is not str or not _SYMBOL.match(value):
        raise refuse(location, "a symbol such as s0", value)
    return value


def _step(value, location):
    return label(value, location) if type(value) is str else integer(0)(value, location)


dimensions_record = record(
    symbols=listed(row(_symbol, integer(0), integer(0), integer(2))),
    strides=listed(row(integer(0), listed(_step))),
    conditions=listed(label),
)


def has_symbols(slot) -> bool:
    """Whether the shape of a slot has symbols."""
    return any(type(size) is str for size in slot.shape or ())


def record_of(guards):
    """Return the record of the guards; the shapes are those of the slots."""
    if guards is None:
        return None
    return {
        "symbols": [[d.symbol, d.argument, d.dim, d.example] for d in guards.dimensions],
        "strides": [[index, list(layout.stride)] for index, layout in guards.layouts.items()],
        "conditions": list(guards.conditions),
    }


def read_dimensions(contents, shapes, location):
    """Return the DimensionGuards of a record, or None.

    `shapes`: index of a flat argument -> shape, in which each text must be a symbol that is declared there.
    """
    symbols, strides = (
        {} if contents is None else dict(_keyed(contents, key)) for key in ("symbols", "strides")
    )
    for index, shape in shapes.items():
        for dim, size in enumerate(shape):
            if type(size) is str and (size not in symbols or symbols[size][:2] != (index, dim)):
                raise refuse(
                    location, f"the symbol {size!r} of dimension {dim} of argument {index}", contents
                )
    if contents is None:
        return None
    for symbol, (index, dim, _) in symbols.items():
        if dim >= len(shapes.get(index, ())) or shapes[index][dim] != symbol or index not in strides:
            raise refuse(inside(location, "symbols"), "dimensions of arguments", contents["symbols"])
    if len(symbols) != len(contents["symbols"]) or len(strides) != len(contents["strides"]):
        raise refuse(location, "each symbol and each argument once", contents)
    for index, steps in strides.items():
        if len(steps) != len(shapes.get(index, ())):
            raise refuse(inside(location, "strides"), "a stride for each dimension", steps)
    try:
        return DimensionGuards(
            tuple(Dimension(*row) for row in contents["symbols"]),
            {index: Layout(tuple(shapes[index]), tuple(steps)) for index, steps in strides.items()},
            tuple(contents["conditions"]),
        )
    except UnsupportedExpression as error:
        raise refuse(inside(location, "conditions"), "arithmetic on the symbols", str(error)) from error


def _keyed(contents, key):
    return [(first, rest[0] if len(rest) == 1 else tuple(rest)) for first, *rest in contents[key]]
