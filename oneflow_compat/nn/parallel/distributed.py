"""Data parallelism in OneFlow's form: the call adds hooks to the module and returns that module.

torch's DistributedDataParallel is a class that wraps the module. A call with one of torch's own keywords
(device_ids, ...) makes torch's. With one process (WORLD_SIZE unset or 1) nothing is started.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ... import _bind, _env
from ..._errors import RefusedType
from ..._global.collectives import checking
from ..._global.failures import transfer
from ..._global.process_group import start
from ..modules._same import SameAsTorch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


__all__ = ["DistributedDataParallel", "allreduce_fn", "grad_setting_fn"]


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel, metaclass=SameAsTorch):
    """Return `module` itself; its gradients are averaged over all processes during backward() from now on.

    broadcast_parameters: rank 0's parameters are copied to the others now, and with broadcast_buffers its
    buffers.
    broadcast_buffers: rank 0's buffers are copied before every forward in training.
    bucket_size: parameters per message with `use_bucket`; otherwise each gradient is sent alone.

    This is a class so that `isinstance(model, DistributedDataParallel)` works (true for torch's wrapper
    only), and so that a subclass of it is a subclass of torch's.
    """

    _torch_class = torch.nn.parallel.DistributedDataParallel

    def __new__(
        cls,
        module: torch.nn.Module,
        *torch_args: Any,
        broadcast_buffers: bool = True,
        broadcast_parameters: bool = True,
        bucket_size: int = 10,
        use_bucket: bool = True,
        **torch_more: Any,
    ) -> Any:
        if cls is not DistributedDataParallel:
            return super().__new__(cls)
        if torch_args or torch_more:
            return torch.nn.parallel.DistributedDataParallel(  # type: ignore[misc]
                module, *torch_args, broadcast_buffers=broadcast_buffers, **torch_more
            )
        if not isinstance(module, torch.nn.Module):
            raise RefusedType(
                f"DistributedDataParallel: module must be a torch.nn.Module, found {type(module).__name__}"
            )
        if not getattr(module, "_is_ddp_module", False):
            module._is_ddp_module = True  # type: ignore[assignment]
            buckets = _attach(
                module, broadcast_buffers, broadcast_parameters, max(1, bucket_size) if use_bucket else 1
            )
            _answer_as_wrapper(module, buckets)
        return module


def _attach(
    module: torch.nn.Module, broadcast_buffers: bool, broadcast_parameters: bool, bucket_size: int
) -> _Buckets | None:
    """Add the hooks of data parallelism to a module. Return its buckets, or None on one rank."""
    world = _world_size()
    if world == 1:
        return None
    _check_same_modules(module, broadcast_buffers, broadcast_parameters, bucket_size)
    if broadcast_parameters:
        with torch.no_grad(), transfer("DistributedDataParallel"):
            for tensor in [*module.parameters(), *(module.buffers() if broadcast_buffers else ())]:
                _broadcast(tensor)
    trained = [p for p in module.parameters() if p.requires_grad]
    trained.reverse()  # gradients arrive from the last parameter to the first
    buckets = _Buckets(
        [trained[start : start + bucket_size] for start in range(0, len(trained), bucket_size)], world
    )
    if broadcast_buffers:
        module.register_forward_pre_hook(_send_buffers)
    module.register_forward_pre_hook(buckets.begin)
    module.register_forward_hook(_UsesAll([weakref.ref(p) for p in trained]))
    return buckets


def _check_same_modules(module: torch.nn.Module, *options: Any) -> None:
    """Raise RuntimeError on every rank unless all ranks have the same parameters and buffers."""
    with checking("DistributedDataParallel", sends=True) as request:
        tensors = [*module.named_parameters(), *module.named_buffers()]
        request.must_match(
            broadcast_buffers=options[0], broadcast_parameters=options[1], bucket_size=options[2]
        )
        request.send_message([(name, tuple(t.shape), t.dtype, t.requires_grad) for name, t in tensors])
    for rank, message in enumerate(request.messages):
        for ours, theirs in itertools.zip_longest(request.messages[0], message):
            if ours != theirs:
                raise RuntimeError(
                    f"DistributedDataParallel: the modules differ: rank 0 has {ours}, rank {rank} {theirs}"
                )


def _answer_as_wrapper(module: torch.nn.Module, buckets: _Buckets | None) -> None:
    """Add the attributes of torch's wrapper that programs use: `module.module` and `module.no_sync()`."""
    if not hasattr(module, "module"):
        module.__dict__["module"] = module
    if not hasattr(module, "no_sync"):
        module.__dict__["no_sync"] = buckets.no_sync if buckets else contextlib.nullcontext


class _UsesAll:
    """A forward hook that makes the outputs depend on every parameter.

    A parameter that the forward did not use then gets a zero gradient. Without the hook, a process that used
    no parameter would send nothing, and another process would wait.
    """

    def __init__(self, params: Sequence[weakref.ref[torch.Tensor]]) -> None:
        self.params = params

    def __call__(self, _module: object, _args: object, output: Any) -> Any:
        from torch.utils._pytree import tree_flatten, tree_unflatten

        flat, spec = tree_flatten(output)
        at = [i for i, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not at:
            return None
        for i, tensor in zip(at, _Join.apply(len(at), *[flat[i] for i in at], *[p() for p in self.params])):
            flat[i] = tensor
        return tree_unflatten(flat, spec)


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.params = [(p.shape, p.dtype, p.device) for p in tensors[count:]]
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        zeros = [
            torch.zeros((), dtype=dtype, device=device).expand(shape) for shape, dtype, device in ctx.params
        ]
        return (None, *grads, *zeros)


class _Buckets:
    """Parameters whose gradients travel together, one bucket after the other when backward() ends.

    They are not sent earlier, because each process uses parameters in its own order, and a reentrant
    checkpoint adds to a gradient again.
    """

    def __init__(self, buckets: Sequence[Sequence[torch.Tensor]], world: int) -> None:
        self.buckets, self.world = [[weakref.ref(p) for p in bucket] for bucket in buckets], world
        self.open, self.awaited = True, False
        for bucket in buckets:
            for p in bucket:
                p.register_post_accumulate_grad_hook(self._arrived)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep the gradients of the block on their process.

        The first backward() after the block sends them with its own.
        """
        was, self.open = self.open, False
        try:
            yield
        finally:
            self.open = was

    def begin(self, _module: object, _args: object) -> None:
        """In a forward pre-hook, forget a backward() that raised."""
        self.awaited = self.awaited and torch._C._current_graph_task_id() != -1

    def _arrived(self, _param: object) -> None:
        if self.open and not self.awaited:
            self.awaited = True
            torch.autograd.Variable._execution_engine.queue_callback(self._send)

    def _send(self) -> None:
        self.awaited = False
        for bucket in self.buckets:
            trained = [p for ref in bucket if (p := ref()) is not None and p.requires_grad]
            for p in trained:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            if trained:
                with transfer("the gradients of DistributedDataParallel"):
                    _average([p.grad for p in trained if p.grad is not None], self.world)


def _average(grads: Sequence[torch.Tensor], world: int) -> None:
    import torch.distributed as dist

    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat)
    flat.div_(world)
    at = 0
    for g in grads:
        g.copy_(flat[at : at + g.numel()].view_as(g))
        at += g.numel()


def _send_buffers(module: torch.nn.Module, _args: object) -> None:
    if module.training:
        with torch.no_grad(), transfer("the buffers of DistributedDataParallel"):
            for buffer in module.buffers():
                _broadcast(buffer)


def _broadcast(tensor: torch.Tensor) -> None:
    import torch.distributed as dist

    dense = tensor.detach().contiguous()
    dist.broadcast(dense, 0)
    if not tensor.is_contiguous():
        tensor.copy_(dense)


def _world_size() -> int:
    """Return the count of processes; start torch's process group if a launcher made more than one."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    world = _env.get_int("WORLD_SIZE")
    if world > 1:
        start()
    return world


def allreduce_fn(
    module: torch.nn.Module, param: torch.Tensor, use_bucket: bool = False
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that averages one gradient of `param` over all processes."""

    def allreduce(grad: torch.Tensor) -> torch.Tensor:
        world = _world_size()
        if world > 1:
            grad = grad.clone()
            _average([grad], world)
        return grad

    return allreduce


def grad_setting_fn(module: torch.nn.Module, param: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that returns a gradient unchanged.

    Gradients are averaged in place here, with no separate buffer.
    """
    return lambda grad: grad


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.parallel.distributed")
