"""Sharing one Python object between ranks."""

from ... import _processes


def broadcast(obj, src: int = 0):
    """`obj` of rank `src` on every rank, by pickle."""
    if _processes.get_world_size() == 1:
        return obj
    import torch.distributed

    box = [obj if _processes.get_rank() == src else None]
    torch.distributed.broadcast_object_list(box, src=src)
    return box[0]
