"""Make torch.fx record our functions as call targets, so that `node.target == torch.add` holds in a program
with `import oneflow as torch`.

Otherwise a proxy passes through our function and torch.fx records torch's own, which the program has no name
for.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from typing import Any

import torch

from . import _bind

_SPACES = {
    "oneflow": "torch",
    "oneflow.nn.functional": "torch.nn.functional",
    "oneflow.linalg": "torch.linalg",
}


@functools.cache
def teach() -> None:
    """Make every later Tracer wrap our functions that differ from torch's of the same name, as it wraps the
    functions of `math`.
    """
    original = torch.fx.Tracer.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        ids, modules = _ours()
        self._autowrap_function_ids.update(ids)
        self._autowrap_search.extend(modules)

    torch.fx.Tracer.__init__ = init  # type: ignore[method-assign]


def _ours() -> tuple[list[int], list[types.ModuleType]]:
    """Return (ids of the functions, modules that contain them) for the current dialect."""
    ids, modules = [], []
    for space, torch_space in _SPACES.items():
        module, theirs = importlib.import_module(space), importlib.import_module(torch_space)
        modules.append(module)
        for name in {**_bind.function_rows(space), **_bind.rename_rows(space)}:
            ours = getattr(module, name)
            if inspect.isfunction(ours) and getattr(theirs, name, ours) is not ours:
                ids.append(id(ours))
    return ids, modules
