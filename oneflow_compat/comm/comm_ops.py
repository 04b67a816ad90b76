"""Collectives in OneFlow's call form, on torch.distributed.

Each works in place on its tensor as OneFlow's does and needs no process group with one process;
with several, the default group is made at the first call from the launcher's variables.
"""
from __future__ import annotations

import atexit

import torch
import torch.distributed as dist

from .. import env

__all__ = ["all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "broadcast", "barrier", "reduce", "reduce_scatter",
           "reduce_scatter_tensor", "gather", "scatter", "send", "recv"]

# torch 2.13 warns of the older names
_gather_whole = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_scatter_whole = getattr(dist, "reduce_scatter_single", None) or getattr(dist, "reduce_scatter_tensor", None)


def _alone() -> bool:
    if env.get_world_size() == 1 and not dist.is_initialized():
        return True
    start()
    return dist.get_world_size() == 1


def start():
    """Make the default process group from the launcher's variables, once."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(_leave)


def _leave():
    """A process that ends while gloo's threads still run may abort. (NCCL's would wait for ranks that have failed.)"""
    if dist.is_initialized() and not torch.cuda.is_available():
        dist.destroy_process_group()


def _check_rank(name, rank):
    if not 0 <= rank < env.get_world_size():
        raise RuntimeError(f"comm.{name}: rank {rank} does not exist, there are {env.get_world_size()}")


def all_reduce(tensor):
    """Sum of `tensor` over ranks, in place."""
    if not _alone():
        _written([tensor], lambda out: dist.all_reduce(*out))


def all_gather(tensor_list, tensor):
    """Fill `tensor_list` (one tensor per rank) with every rank's `tensor`."""
    if len(tensor_list) != env.get_world_size():
        raise RuntimeError(f"comm.all_gather: one output per rank is needed ({env.get_world_size()}), found {len(tensor_list)}")
    if _alone():
        _fill(tensor_list[0], tensor)
    else:
        _written(tensor_list, lambda out: dist.all_gather(out, tensor.contiguous()))


def all_gather_into_tensor(output_tensor, input_tensor):
    """`input_tensor` of every rank, one after the other, into `output_tensor`: any shape that holds so many elements."""
    _fill(output_tensor, input_tensor) if _alone() else _written([output_tensor], lambda out: _gather_whole(_row(*out), _row(input_tensor)))


def all_to_all(output_tensor_list, input_tensor_list):
    """Rank i's `input_tensor_list[j]` becomes rank j's `output_tensor_list[i]`."""
    if _alone():
        _fill(output_tensor_list[0], input_tensor_list[0])
    else:
        _written(output_tensor_list, lambda out: _exchange(out, [t.contiguous() for t in input_tensor_list]))


def _exchange(received, sent):
    if sent[0].device.type != "cpu":
        return dist.all_to_all(received, sent)
    mine = dist.get_rank()  # gloo has no all_to_all before torch 2.13
    _fill(received[mine], sent[mine])
    others = [r for r in range(len(sent)) if r != mine]
    for work in [dist.irecv(received[r], r) for r in others] + [dist.isend(sent[r], r) for r in others]:
        work.wait()


def broadcast(tensor, src=0):
    """Rank `src`'s tensor on every rank, in place."""
    _check_rank("broadcast", src)
    if not _alone():
        _written([tensor], lambda out: dist.broadcast(*out, src))


def barrier():
    """Wait for every rank."""
    if not _alone():
        dist.barrier()


def reduce(tensor, dst=0):
    """Sum over ranks on rank `dst`, in place."""
    _check_rank("reduce", dst)
    if not _alone():
        _written([tensor], lambda out: dist.reduce(*out, dst))


def reduce_scatter(output, input_list):
    """Sum of the ranks' `input_list[rank]` in `output`."""
    if _alone():
        _fill(output, input_list[0])
    else:
        _written([output], lambda out: dist.reduce_scatter(*out, [t.contiguous() for t in input_list]))


def reduce_scatter_tensor(output_tensor, input_tensor):
    """Sum over ranks of `input_tensor`, this rank's part of its elements, row by row, in `output_tensor`."""
    _fill(output_tensor, input_tensor) if _alone() else _written([output_tensor], lambda out: _scatter_whole(_row(*out), _row(input_tensor)))


def gather(tensor, gather_list=None, dst=0):
    """Every rank's tensor in `gather_list` on rank `dst`."""
    _check_rank("gather", dst)
    if _alone():
        _fill(gather_list[0], tensor)
    else:
        _written(gather_list or [], lambda out: dist.gather(tensor.contiguous(), out or None, dst))


def scatter(tensor, scatter_list=None, src=0):
    """This rank's element of rank `src`'s `scatter_list`, in place."""
    _check_rank("scatter", src)
    if _alone():
        _fill(tensor, scatter_list[0])
    else:
        parts = scatter_list and [t.contiguous() for t in scatter_list]
        _written([tensor], lambda out: dist.scatter(*out, parts, src))


def send(input, dst, send_meta=True):
    """Send a tensor to rank `dst`; with `send_meta` its shape and dtype go first, for `recv(src)`."""
    _several("send")
    if send_meta:
        dist.send_object_list([(tuple(input.shape), input.dtype)], dst)
    dist.send(input.contiguous(), dst)


def recv(src, shape=None, dtype=None, device=None, *, out=None):
    """Receive from rank `src` a tensor of `shape` and `dtype`, or without these as `send` announces it; into `out` if given."""
    _several("recv")
    if shape is None:
        box = [None]
        dist.recv_object_list(box, src)
        shape, dtype = box[0]
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=device)
    elif (tuple(out.shape), out.dtype) != (tuple(shape), dtype or out.dtype):
        raise RuntimeError(f"comm.recv: rank {src} sends {tuple(shape)} of {dtype or out.dtype}, and `out` is {tuple(out.shape)} of {out.dtype}")
    _written([out], lambda received: dist.recv(*received, src))
    return out


def _several(name):
    if _alone():
        raise RuntimeError(f"comm.{name}: there is one process; start several with torchrun")


def _written(outputs, call):
    """`call` on `outputs`, each laid out row by row: gloo takes memory as if it were, and so would other ranks."""
    with torch.no_grad():
        dense = [t.contiguous() for t in outputs]
        call(dense)
        for tensor, values in zip(outputs, dense):
            if values is not tensor:
                tensor.copy_(values)


def _row(tensor):
    return tensor.contiguous().view(-1)


def _fill(out, value):
    with torch.no_grad():
        out.copy_(value.reshape(out.shape))
