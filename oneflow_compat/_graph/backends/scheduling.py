"""What torch's inductor forgets of reads and writes of one memory (2.13, torch.compile too)."""
from __future__ import annotations

import contextlib
import dataclasses

import torch


@contextlib.contextmanager
def dependencies_kept():
    """A node on the CPU whose loops are made to match another's, to be fused with it, keeps its dependencies.

    Its reads are listed anew, under the names that memory had before it was written in place (scatter_add): it ran before the write.
    """
    from torch._inductor.dependencies import StarDep, WeakDep
    from torch._inductor.scheduler import SchedulerNode

    before = SchedulerNode.recompute_size_and_body

    def recompute(self, *args, **kwargs):
        only_order = type(self.read_writes.reads)(d for d in self.read_writes.reads if isinstance(d, (WeakDep, StarDep)))
        before(self, *args, **kwargs)
        self.set_read_writes(self.read_writes.with_read(only_order).rename(self.mutation_renames))

    SchedulerNode.recompute_size_and_body = recompute
    try:
        yield
    finally:
        SchedulerNode.recompute_size_and_body = before


@contextlib.contextmanager
def sources_kept():
    """A write into a part of a tensor (index_put) goes into that tensor's own memory only where nothing else the operator reads lies there.

    `h.index_add(0, targets, h)` read rows that it had already added to.
    """
    from torch._inductor.fx_passes.reinplace import inplaceable_ops
    from torch._inductor.fx_utils import get_node_storage

    def apart(node, written):
        memory = get_node_storage(node.args[written])
        others = torch.fx.node.map_arg((*node.args[:written], *node.args[written + 1 :], node.kwargs), get_node_storage)
        return memory not in torch.utils._pytree.tree_leaves(others)

    before = dict(inplaceable_ops)
    for target, entry in before.items():
        if isinstance(entry.mutated_arg, int):
            check = lambda node, entry=entry: entry.extra_check(node) and apart(node, entry.mutated_arg)
            inplaceable_ops[target] = dataclasses.replace(entry, extra_check=check)
    try:
        yield
    finally:
        inplaceable_ops.update(before)
