"""What the scheduler of torch's inductor forgets (2.13, torch.compile too)."""
from __future__ import annotations

import contextlib


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
