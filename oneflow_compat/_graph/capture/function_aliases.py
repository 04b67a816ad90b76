"""Functions and classes of torch under the names that modules gave them: `from torch.cuda import
get_rng_state`, oneflow.Generator.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .patching import undone


@contextlib.contextmanager
def everywhere(changes: Any) -> Iterator[None]:
    """changes: {name: (original, new)}.

    Each module that has the original under that name has the new one until the end.
    """
    back = {name: (new, original) for name, (original, new) in changes.items()}
    with undone(lambda: _exchange(back)):  # in modules that looked it up meanwhile as well
        _exchange(changes)
        yield


def _exchange(changes: Any) -> None:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            names = module.__dict__
            for name, (old, new) in changes.items():
                if names.get(name) is old:
                    names[name] = new
