"""Collectives in OneFlow's call form, on torch.distributed.

Each function works in place on its tensor, as OneFlow's does. With one process it needs no process group.
With several, the first call makes the default group from the launcher's variables. The ranks compare their
arguments first: a call raises on every rank, or on none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .. import _processes
from .._global.collectives import checking
from .._global.failures import transfer
from .._global.process_group import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = [
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_to_all",
    "broadcast",
    "barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "gather",
    "scatter",
    "send",
    "recv",
]

# torch 2.13 warns about the older names.
_gather_whole: Any = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)
_scatter_whole: Any = getattr(dist, "reduce_scatter_single", None) or getattr(
    dist, "reduce_scatter_tensor", None
)


def _alone() -> bool:
    if _processes.get_world_size() == 1 and not dist.is_initialized():
        return True
    start()
    return dist.get_world_size() == 1


def _check_rank(name: str, rank: object) -> None:
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise TypeError(f"comm.{name}: a rank is an int, found {rank!r}")
    if not 0 <= rank < _processes.get_world_size():
        raise RuntimeError(
            f"comm.{name}: rank {rank} does not exist, there are {_processes.get_world_size()}"
        )


def _check_tensors(name: str, argument: str, tensors: object, like: torch.Tensor | None = None) -> None:
    """Check for one tensor per rank; with several ranks, all need the shape and dtype of `like`."""
    world = _processes.get_world_size()
    if not isinstance(tensors, (list, tuple)) or len(tensors) != world:
        actual = len(tensors) if isinstance(tensors, (list, tuple)) else type(tensors).__name__
        raise RuntimeError(
            f"comm.{name}: {argument} must be a list of one tensor per rank ({world}), found {actual}"
        )
    for tensor in tensors:
        _check_tensor(name, argument, tensor)
        if like is not None and world > 1 and (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
            raise RuntimeError(
                f"comm.{name}: each tensor in {argument} must be {tuple(like.shape)} of {like.dtype}, found"
                f" {tuple(tensor.shape)} of {tensor.dtype}"
            )


def _check_tensor(name: str, argument: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"comm.{name}: {argument} must be a tensor, found {type(tensor).__name__}")


def _check_sizes(name: str, whole: torch.Tensor, part: torch.Tensor) -> None:
    """With several ranks, check that `whole` has as many elements as the `part`s of all ranks."""
    world = _processes.get_world_size()
    _check_tensor(name, "output_tensor and input_tensor", whole)
    _check_tensor(name, "output_tensor and input_tensor", part)
    if world > 1 and (whole.numel(), whole.dtype) != (part.numel() * world, part.dtype):
        raise RuntimeError(
            f"comm.{name}: the tensor of all {world} ranks must have {part.numel() * world} elements of"
            f" {part.dtype}, found {whole.numel()} of {whole.dtype}"
        )


def _about(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the attributes that must be the same on every rank."""
    return {"shape": tuple(tensor.shape), "dtype": tensor.dtype}


def all_reduce(tensor: torch.Tensor) -> None:
    """Sum `tensor` over ranks, in place.

    The tensors have one shape and dtype on all ranks. Returns nothing.
    """
    with checking("comm.all_reduce") as request:
        _check_tensor("all_reduce", "tensor", tensor)
        request.must_match(**_about(tensor))
    if not _alone():
        _written("all_reduce", [tensor], lambda out: dist.all_reduce(out[0]))


def all_gather(tensor_list: Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
    """Fill `tensor_list` (one tensor per rank) with every rank's `tensor`.

    The tensors have one shape and dtype on all ranks. Returns nothing.
    """
    with checking("comm.all_gather") as request:
        _check_tensor("all_gather", "tensor", tensor)
        _check_tensors("all_gather", "tensor_list", tensor_list, tensor)
        request.must_match(**_about(tensor))
    if _alone():
        _fill(tensor_list[0], tensor)
    else:
        _written("all_gather", tensor_list, lambda out: dist.all_gather(out, tensor.contiguous()))


def all_gather_into_tensor(output_tensor: torch.Tensor, input_tensor: torch.Tensor) -> None:
    """Concatenate every rank's `input_tensor` in `output_tensor`, of any shape with as many elements."""
    with checking("comm.all_gather_into_tensor") as request:
        _check_sizes("all_gather_into_tensor", output_tensor, input_tensor)
        request.must_match(elements=input_tensor.numel(), dtype=input_tensor.dtype)
    if _alone():
        _fill(output_tensor, input_tensor)
    else:
        _written(
            "all_gather_into_tensor",
            [output_tensor],
            lambda out: _gather_whole(_row(out[0]), _row(input_tensor)),
        )


def all_to_all(output_tensor_list: Sequence[torch.Tensor], input_tensor_list: Sequence[torch.Tensor]) -> None:
    """Copy rank i's `input_tensor_list[j]` to rank j's `output_tensor_list[i]`, for all i and j."""
    name = "all_to_all"
    with checking("comm.all_to_all") as request:
        _check_tensors(name, "output_tensor_list", output_tensor_list)
        _check_tensors(name, "input_tensor_list", input_tensor_list)
        request.must_match(dtype=sorted({str(t.dtype) for t in (*output_tensor_list, *input_tensor_list)}))
        if len(input_tensor_list) <= _FEW_RANKS:
            request.send_integers(*(t.numel() for t in (*output_tensor_list, *input_tensor_list)))
    _check_exchange(request.integers)
    if _alone():
        _fill(output_tensor_list[0], input_tensor_list[0])
    else:
        _written(
            name, output_tensor_list, lambda out: _exchange(out, [t.contiguous() for t in input_tensor_list])
        )


_FEW_RANKS = 32  # up to this count of ranks, the sizes of their tensors are compared


def _check_exchange(integers: Sequence[Sequence[int]]) -> None:
    """Check the sizes of all ranks on every rank, so that all ranks raise."""
    for receiver, sizes in enumerate(integers):
        for sender, expected in enumerate(sizes[: len(sizes) // 2]):
            sent = integers[sender][len(integers[sender]) // 2 + receiver]
            if sent != expected:
                raise RuntimeError(
                    f"comm.all_to_all: rank {sender} sends {sent} elements to rank {receiver}, which expects"
                    f" {expected}"
                )


def _exchange(received: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
    if sent[0].device.type != "cpu":
        dist.all_to_all(received, sent)
        return
    mine = dist.get_rank()  # gloo has no all_to_all before torch 2.13
    _fill(received[mine], sent[mine])
    others = [r for r in range(len(sent)) if r != mine]
    works: list[Any] = [dist.irecv(received[r], r) for r in others]
    works += [dist.isend(sent[r], r) for r in others]
    for work in works:
        work.wait()


def broadcast(tensor: torch.Tensor, src: int = 0) -> None:
    """Copy rank `src`'s tensor to every rank, in place.

    The tensors have one shape and dtype on all ranks. Returns nothing.
    """
    with checking("comm.broadcast") as request:
        _check_rank("broadcast", src)
        _check_tensor("broadcast", "tensor", tensor)
        request.must_match(**_about(tensor), src=src)
    if not _alone():
        _written("broadcast", [tensor], lambda out: dist.broadcast(out[0], src))


def barrier() -> None:
    """Wait for every rank."""
    with checking("comm.barrier"):
        pass
    if not _alone():
        with transfer("comm.barrier"):
            dist.barrier()


def reduce(tensor: torch.Tensor, dst: int = 0) -> None:
    """Sum `tensor` over ranks on rank `dst`, in place.

    The tensors have one shape and dtype on all ranks. Returns nothing.
    """
    with checking("comm.reduce") as request:
        _check_rank("reduce", dst)
        _check_tensor("reduce", "tensor", tensor)
        request.must_match(**_about(tensor), dst=dst)
    if not _alone():
        _written("reduce", [tensor], lambda out: dist.reduce(out[0], dst))


def reduce_scatter(output: torch.Tensor, input_list: Sequence[torch.Tensor]) -> None:
    """Sum the ranks' `input_list[rank]` into `output`."""
    with checking("comm.reduce_scatter") as request:
        _check_tensor("reduce_scatter", "output", output)
        _check_tensors("reduce_scatter", "input_list", input_list, output)
        request.must_match(**_about(output))
    if _alone():
        _fill(output, input_list[0])
    else:
        _written(
            "reduce_scatter",
            [output],
            lambda out: dist.reduce_scatter(out[0], [t.contiguous() for t in input_list]),
        )


def reduce_scatter_tensor(output_tensor: torch.Tensor, input_tensor: torch.Tensor) -> None:
    """Sum `input_tensor` over ranks; `output_tensor` gets this rank's shard of the elements, row by row."""
    with checking("comm.reduce_scatter_tensor") as request:
        _check_sizes("reduce_scatter_tensor", input_tensor, output_tensor)
        request.must_match(elements=output_tensor.numel(), dtype=output_tensor.dtype)
    if _alone():
        _fill(output_tensor, input_tensor)
    else:
        _written(
            "reduce_scatter_tensor",
            [output_tensor],
            lambda out: _scatter_whole(_row(out[0]), _row(input_tensor)),
        )


def gather(tensor: torch.Tensor, gather_list: Sequence[torch.Tensor] | None = None, dst: int = 0) -> None:
    """Copy every rank's tensor to `gather_list` on rank `dst`.

    The tensors have one shape and dtype on all ranks. Returns nothing.
    """
    with checking("comm.gather") as request:
        _check_rank("gather", dst)
        _check_tensor("gather", "tensor", tensor)
        if _processes.get_rank() == dst:
            _check_tensors("gather", "gather_list", gather_list, tensor)
        request.must_match(**_about(tensor), dst=dst)
    received = gather_list if gather_list is not None and _processes.get_rank() == dst else []
    if _alone():
        _fill(received[0], tensor)
    else:
        _written("gather", received, lambda out: dist.gather(tensor.contiguous(), out or None, dst))


def scatter(tensor: torch.Tensor, scatter_list: Sequence[torch.Tensor] | None = None, src: int = 0) -> None:
    """Copy this rank's element of rank `src`'s `scatter_list` to `tensor`."""
    with checking("comm.scatter") as request:
        _check_rank("scatter", src)
        _check_tensor("scatter", "tensor", tensor)
        if _processes.get_rank() == src:
            _check_tensors("scatter", "scatter_list", scatter_list, tensor)
        request.must_match(**_about(tensor), src=src)
    sent = scatter_list if scatter_list is not None and _processes.get_rank() == src else []
    if _alone():
        _fill(tensor, sent[0])
    else:
        parts = [t.contiguous() for t in sent] or None
        _written("scatter", [tensor], lambda out: dist.scatter(out[0], parts, src))


def send(input: torch.Tensor, dst: int, send_meta: bool = True) -> None:
    """Send a tensor to rank `dst`; with `send_meta`, its shape and dtype go first, for `recv(src)`."""
    _check_other("send", dst)
    _check_tensor("send", "input", input)
    with transfer(f"comm.send to rank {dst}"):
        if send_meta:
            dist.send_object_list([(tuple(input.shape), input.dtype)], dst)
        dist.send(input.contiguous(), dst)


def recv(
    src: int,
    shape: int | Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Receive a tensor from rank `src`, into `out` if given.

    Without `shape` and `dtype`, `send` announces them. A tensor that does not fit `out` is received and then
    refused, so that the next call gets the next tensor.

    RuntimeError for a tensor of another shape or dtype than `out`.
    """
    _check_other("recv", src)
    with transfer(f"comm.recv from rank {src}"):
        if shape is None:
            box: list[Any] = [None]
            dist.recv_object_list(box, src)
            shape, dtype = box[0]
        shape = (shape,) if isinstance(shape, int) else tuple(shape or ())
        if out is None:
            out = torch.empty(shape, dtype=dtype, device=device)
        elif (tuple(out.shape), out.dtype) != (shape, dtype or out.dtype):
            dist.recv(torch.empty(shape, dtype=dtype, device=out.device), src)
            raise RuntimeError(
                f"comm.recv: rank {src} sends {shape} of {dtype or out.dtype}, and `out` is"
                f" {tuple(out.shape)} of {out.dtype}"
            )
        _receive([out], lambda received: dist.recv(received[0], src))
    return out


def _check_other(name: str, rank: int) -> None:
    if _alone():
        raise RuntimeError(f"comm.{name}: there is one process; start several with torchrun")
    _check_rank(name, rank)
    if rank == _processes.get_rank():
        raise RuntimeError(f"comm.{name}: rank {rank} is this process; name another one")


def _written(name: str, outputs: Sequence[torch.Tensor], call: Callable[[list[torch.Tensor]], Any]) -> None:
    with transfer(f"comm.{name}"):
        _receive(outputs, call)


def _receive(outputs: Sequence[torch.Tensor], call: Callable[[list[torch.Tensor]], Any]) -> None:
    """Run `call` on `outputs` in contiguous memory, and copy the results back.

    gloo and the other ranks take memory as if it were contiguous.
    """
    with torch.no_grad():
        dense = [t.contiguous() for t in outputs]
        call(dense)
        for tensor, values in zip(outputs, dense):
            if values is not tensor:
                tensor.copy_(values)


def _row(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1)


def _fill(out: torch.Tensor, value: torch.Tensor) -> None:
    with torch.no_grad():
        out.copy_(value.reshape(out.shape))
