"""oneflow.multiprocessing: torch.multiprocessing."""

from .. import _bind


def unlink_all_shared_memory():
    """Nothing to do: torch's file-descriptor strategy leaves no names behind; each block goes with its last
    handle.
    """


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.multiprocessing")
