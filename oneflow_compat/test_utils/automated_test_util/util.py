"""Sharing one Python object between ranks."""
from ... import env


def broadcast(obj, src: int = 0):
    """`obj` of rank `src` on every rank, by pickle."""
    if env.get_world_size() == 1:
        return obj
    import torch.distributed

    box = [obj if env.get_rank() == src else None]
    torch.distributed.broadcast_object_list(box, src=src)
    return box[0]
