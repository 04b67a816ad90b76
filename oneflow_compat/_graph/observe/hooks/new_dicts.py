"""Which dicts build() made. The collector lists a dict only once it holds more than constants.

    entry = {}                  # made by build(), and not listed
    entry["epoch"] = 1
    log["last"] = entry         # `log` is older, and listed from now on, as if build() had made it

So the age of a dict is that of what refers to it.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...guards.values import is_a

if TYPE_CHECKING:
    from .writes import Write


def with_ages_of_dicts(
    created: set[int], writes: Sequence[Write], attribute_dicts: dict[int, int], own: set[int]
) -> set[int]:
    """Return the ids of the objects that build() made: `created`, corrected for the dicts that it wrote.

    `attribute_dicts` is {id(dict of attributes): id(its object)}. `own` are ids of what the observer holds,
    and of what may hold new dicts.
    """
    owners = (write.owner for write in writes if write.key is None)
    dicts = {id(d): d for d in owners if type(d) is dict and id(d) not in attribute_dicts}
    if not dicts:
        return created
    before: dict[int, set[int]] = {}  # id of a container -> the ids of what it held before it was written
    for write in writes:
        owner = id(write.owner)
        before.setdefault(owner, set()).update(map(id, write.held[1:]))
        before.setdefault(attribute_dicts.get(owner, owner), before[owner])
    skipped = created | own | {id(dicts), id(before)}
    older = set(_with_older_referrers(dicts, skipped, before))
    return created - older | (dicts.keys() - older)


def _with_older_referrers(
    dicts: dict[int, dict[object, object]], skipped: set[int], before: dict[int, set[int]]
) -> Iterable[int]:
    """Yield the ids of the dicts that something older than build() referred to before build() ran."""
    for referrer in gc.get_referrers(*dicts.values()):
        holder = id(referrer)
        if holder in skipped or is_a(referrer, types.FrameType):
            continue
        held = before.get(holder)
        for value in gc.get_referents(referrer):
            if id(value) in dicts and (held is None or id(value) in held):
                yield id(value)
