"""torch.fx records our functions by themselves, so that a program's `node.target == torch.add` holds for
`import oneflow as torch`.

Without this a proxy goes through our function and torch's own is recorded, which no name of the program is.
"""

from __future__ import annotations

import functools
import importlib
import inspect

import torch

from . import _bind

_SPACES = {
    "oneflow": "torch",
    "oneflow.nn.functional": "torch.nn.functional",
    "oneflow.linalg": "torch.linalg",
}


@functools.cache
def teach():
    """From now on every Tracer wraps the functions that differ from torch's of the same name, as it wraps
    those of `math`.
    """
    original = torch.fx.Tracer.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        ids, modules = _ours()
        self._autowrap_function_ids.update(ids)
        self._autowrap_search.extend(modules)

    torch.fx.Tracer.__init__ = init


def _ours():
    """(ids of those functions, the modules that hold them), as the dialect has them now."""
    ids, modules = [], []
    for space, torch_space in _SPACES.items():
        module, theirs = importlib.import_module(space), importlib.import_module(torch_space)
        modules.append(module)
        for name in {**_bind.function_rows(space), **_bind.rename_rows(space)}:
            ours = getattr(module, name)
            if inspect.isfunction(ours) and getattr(theirs, name, ours) is not ours:
                ids.append(id(ours))
    return ids, modules
