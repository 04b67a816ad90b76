"""Notes which optimizers build() looks at: their options then decide the program like other Python values."""

from __future__ import annotations

import contextlib

from ..._active import capturing
from .patching import patched_attributes


@contextlib.contextmanager
def option_reads(optimizers, recorder):
    """Yield the set of the indices of the optimizers whose param_groups build() reads.

    `param_groups` is an attribute of the instance. A property of the class comes before it.
    """
    index_of = {id(optimizer): index for index, optimizer in enumerate(optimizers)}
    read: set = set()

    def get(optimizer):
        if capturing() and recorder.phase != "update":
            index = index_of.get(id(optimizer))
            if index is not None:
                read.add(index)
        return optimizer.__dict__["param_groups"]

    def put(optimizer, groups):
        optimizer.__dict__["param_groups"] = groups

    classes = {type(optimizer) for optimizer in optimizers if "param_groups" in optimizer.__dict__}
    classes = [cls for cls in classes if not hasattr(cls, "param_groups")]
    with patched_attributes((cls, "param_groups", property(get, put)) for cls in classes):
        yield read
