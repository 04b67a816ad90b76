"""Enable the mock at the first `import torch` of a program. `eval $(python -m oneflow.mock_torch enable)`
puts this folder on PYTHONPATH.
"""

import builtins
import sys

_import = builtins.__import__


def _first(
    name: str,
    globals: dict[str, object] | None = None,
    locals: dict[str, object] | None = None,
    fromlist: tuple[str, ...] = (),
    level: int = 0,
) -> object:
    # `import oneflow` came first, and imports torch
    started = getattr(getattr(sys.modules.get("oneflow"), "__spec__", None), "_initializing", False)
    if name.partition(".")[0] == "torch" and not level and not started and builtins.__import__ is _first:
        builtins.__import__ = _import
        import oneflow.mock_torch

        oneflow.mock_torch.enable()
        return builtins.__import__(name, globals, locals, fromlist, level)
    return _import(name, globals, locals, fromlist, level)


builtins.__import__ = _first  # type: ignore[assignment]
