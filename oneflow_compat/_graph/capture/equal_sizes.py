"""`x[mask] + y` for a y of 5 rows: the program is of 5 rows, and checks that; a call with other sizes goes
another way (engine.py).
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import user_location

aten = torch.ops.aten


def take_as_equal(func, args, kwargs, environment) -> bool:
    """Decide that unknown sizes are those an operator needs; False where none is in question.

    Call it after torch found them to differ.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    decided = False
    for one, other in _pairs(func, args, kwargs):
        equal = one == other
        if (
            type(equal) is torch.SymBool
            and not statically_known_true(equal)
            and not statically_known_true(torch.sym_not(equal))
        ):
            if environment.branch(equal, True, user_location()):
                torch._check(equal)
                decided = True
    return decided


def _pairs(func, args, kwargs):
    """The sizes that are to be equal; an unknown one that is 1 in a run is not broadcast: torch's symbolic
    results would have the wrong one of both.
    """
    if func is aten.cat.default:
        tensors, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
        shapes = [[n for d, n in enumerate(t.shape) if d != dim % t.dim()] for t in tensors]
    elif func is aten.expand.default:
        shapes = [args[0].shape, args[1]]
    elif torch.Tag.pointwise in func.tags or func._opname in ("copy_", "copy", "where"):
        shapes = [a.shape for a in (*args, *kwargs.values()) if isinstance(a, FakeTensor)]
    else:
        return
    for i, shape in enumerate(shapes):
        for other in shapes[:i]:
            for one, two in zip(reversed(shape), reversed(other)):
                if not any(type(n) is int and n in (1, -1) for n in (one, two)):
                    yield one, two
