"""Version of this package, and the newest OneFlow version whose API it offers."""

from __future__ import annotations

from typing import Any

__version__ = "1.0.0"
__git_commit__ = "unknown"
oneflow_api = "1.0"


def __getattr__(name: str) -> Any:
    """torch.version's names (cuda, hip, git_version, ...): the kernels are torch's."""
    import torch.version

    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torch.version, name)
