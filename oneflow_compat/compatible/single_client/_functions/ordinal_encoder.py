"""categorical_ordinal_encode: codes 1, 2, ... for the distinct values of a blob, in two variables.

The table is OneFlow's hash table: row `value mod capacity`, or the next free row after it, holds a value and
its code; a row of value 0 is free. Looking values up row by row would take one tensor operation for each
collision, so a sorted copy of the stored values is kept beside each table between calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from .._jobs import context as _context


@dataclass(frozen=True)
class _Index:
    """The sorted values of a table with their codes, and the state of the table that they were read in."""

    values: torch.Tensor
    codes: torch.Tensor
    state: tuple[int, int]


_indexes = WeakIdKeyDictionary()


def categorical_ordinal_encode(
    table: torch.Tensor,
    size: torch.Tensor,
    input_tensor: torch.Tensor,
    hash_precomputed: bool = True,
    name: str | None = None,
) -> torch.Tensor:
    """Encode the distinct values of `input_tensor` as 1, 2, ... in the order of their first appearance.

    The value 0 stays 0. `table` (pairs of value and code) and `size` (one element) are the variables that
    hold the codes. A full table raises ValueError. The job runs op by op.
    """
    _context.value_dependent("categorical_ordinal_encode")
    rows = table.detach().reshape(-1, 2)
    values, positions = torch.unique(input_tensor.detach().reshape(-1).to(rows.dtype), return_inverse=True)
    index = _index_of(table, rows)
    codes = _look_up(index, values)
    unseen = _in_order_of_appearance(((codes == 0) & (values != 0)).nonzero().reshape(-1), positions, values)
    if unseen.numel():
        slots = _rows_for(values[unseen], rows, index.values.numel())
        last = int(size.reshape(-1)[0]) + unseen.numel()
        codes[unseen] = torch.arange(
            last - unseen.numel() + 1, last + 1, device=codes.device, dtype=codes.dtype
        )
        trace = _context.trace()
        if trace is None or not trace.probe:
            rows[slots] = torch.stack([values[unseen], codes[unseen]], dim=1)
            size.detach().fill_(last)
            added = unseen.sort().values
            _indexes[table] = _merged(index, values[added], codes[added], _state(table))
    return codes[positions].to(input_tensor.dtype).reshape(input_tensor.shape)


def _state(table: torch.Tensor) -> tuple[int, int]:
    """Changes whenever the values of `table` are written, for example by load_variables()."""
    return table.data_ptr(), table._version


def _index_of(table: torch.Tensor, rows: torch.Tensor) -> _Index:
    index = _indexes.get(table)
    if index is None or index.state != _state(table):
        stored = rows[rows[:, 0] != 0]
        values, order = stored[:, 0].sort(stable=True)
        index = _indexes[table] = _Index(values, stored[order, 1], _state(table))
    return index


def _look_up(index: _Index, values: torch.Tensor) -> torch.Tensor:
    """Return the code of each value; 0 for a value that the table does not hold."""
    if not index.values.numel():
        return torch.zeros_like(values)
    candidates = torch.searchsorted(index.values, values).clamp_(max=index.values.numel() - 1)
    return torch.where(index.values[candidates] == values, index.codes[candidates], 0)


def _in_order_of_appearance(unseen: Any, positions: Any, values: Any) -> Any:
    """Sort `unseen`, indices into `values`, by the first of `positions` that holds each."""
    if not unseen.numel():
        return unseen
    order = torch.arange(positions.numel(), device=positions.device)
    appearance = torch.full_like(values, positions.numel(), dtype=torch.int64)
    appearance.scatter_reduce_(0, positions, order, "amin")
    return unseen[appearance[unseen].argsort()]


def _rows_for(values: torch.Tensor, rows: torch.Tensor, num_stored: int) -> torch.Tensor:
    """Return the rows that linear probing gives to `values`, inserted in their order."""
    capacity = rows.shape[0]
    free = (rows[:, 0] == 0).nonzero().reshape(-1)
    if values.numel() > free.numel():
        raise ValueError(
            f"categorical_ordinal_encode: more than {capacity} distinct values: {num_stored} are stored,"
            f" found {values.numel()} new ones; raise the capacity"
        )
    values = values.long()
    unsigned = torch.where(values < 0, 2**64 % capacity, 0)  # OneFlow converts a value to size_t
    home = (torch.remainder(values, capacity) + unsigned) % capacity
    # Probing skips occupied rows, so it moves along the list of free rows.
    ranks = torch.searchsorted(free, home) % free.numel()
    if ranks.unique().numel() < ranks.numel():
        ranks = torch.tensor(_probed(ranks.tolist(), free.numel()), device=free.device)
    return free[ranks]


def _probed(ranks: list[int], length: int) -> list[int]:
    """Give each rank, in order, the first unused one from it on, cyclically."""
    following: dict[int, int] = {}  # used rank -> a rank after it, with all ranks between them used
    probed = []
    for rank in ranks:
        while rank in following:
            after = following[rank]
            following[rank] = following.get(after, after)
            rank = following[rank]
        probed.append(rank)
        following[rank] = (rank + 1) % length
    return probed


def _merged(index: _Index, values: torch.Tensor, codes: torch.Tensor, state: tuple[int, int]) -> _Index:
    """Return the index with `values`, sorted and not in it, added."""
    total = index.values.numel() + values.numel()
    added = torch.searchsorted(index.values, values) + torch.arange(values.numel(), device=values.device)
    kept = torch.ones(total, dtype=torch.bool, device=values.device)
    kept[added] = False
    merged = []
    for before, new in ((index.values, values), (index.codes, codes)):
        column = new.new_empty(total)
        column[added] = new
        column.masked_scatter_(kept, before)
        merged.append(column)
    return _Index(merged[0], merged[1], state)
