"""Deep path of save, load, and of sending an object to every rank."""

from __future__ import annotations

from .. import _processes
from .._global.collectives import from_rank


def _broadcast_py_object(obj, src: int = 0):
    """Rank `src`'s object on every rank; with one process the object itself."""
    if _processes.get_world_size() == 1:
        return obj

    return from_rank(src, lambda: obj, "broadcast of an object")


def tensor_getstate(self) -> dict:
    """A local tensor's values as an array, its dtype and the name of its device.

    NotImplementedError of a global tensor of several ranks.
    """
    if hasattr(self, "_dtensor"):
        raise NotImplementedError(
            "tensor_getstate of a global tensor of several ranks; pass tensor.to_local() or"
            " tensor.full_tensor()"
        )
    return {"data": self.detach().cpu().numpy(), "dtype": self.dtype, "device": str(self.device)}


def __getattr__(name):
    if name in ("save", "load"):
        import oneflow

        return getattr(oneflow, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
