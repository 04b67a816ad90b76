"""What is changed in torch while build() runs under capture, and how build() is run (autocast, micro
batches).
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer

from ..._active import capturing
from ..._global.marks import several
from ..._global.tensor import view_or_copy
from ..._upstream.versions import torch_is_before
from ..errors import KEEP_PADDED, KEEP_SIZE, CaptureError, raised_at
from ..program.pytree import tree_flatten, with_sizes
from .branch_values import with_known_lengths
from .caller_tensors import same_contents, warn_of_changed_containers
from .checkpointing import recomputed, torch_checkpoints
from .integer_indexing import tensors_as_indices
from .patching import global_hook, patched, patched_attributes, undone
from .random_state import generators_of_build, states_of_generators
from .recurrent import recurrent_layers
from .size_builtins import builtins_of_sizes
from .state_map import resolve
from .tensor_texts import texts_of_tensors
from .tracers import tracers
from .unknown_sizes import asks_for_a_size, innermost
from .update.loss_scaling import scaled
from .value_readers import value_readers

if TYPE_CHECKING:
    from torch.nn import Module

    from .interfaces import CaptureInterface
    from .recorder import Recorder
    from .state_map import StateMap


@contextlib.contextmanager
def capture_patches(capture: CaptureInterface, state_map: StateMap) -> Iterator[None]:
    """Everything here is undone on exit, in reverse order."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_module_paths(capture.recorder, state_map))
        stack.enter_context(patched(torch.autograd, "_engine_run_backward", _backward(capture)))
        stack.enter_context(states_of_generators(capture.recorder))
        stack.enter_context(recurrent_layers(capturing, capture.recorder))
        stack.enter_context(_many_gradients_at_once(any(t.is_cuda for t in capture.tensors)))
        stack.enter_context(generators_of_build(capture.recorder, capturing))
        stack.enter_context(_data_assignment())
        stack.enter_context(_views_of_any_layout())
        stack.enter_context(tensors_as_indices(capture.recorder, capturing))
        stack.enter_context(_unchecked_and_uncompiled())
        stack.enter_context(_ranks_talk_in_the_program())
        stack.enter_context(
            patched(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", lambda was: True)
        )
        stack.enter_context(_no_step_in_build(capture.recorder))
        stack.enter_context(value_readers(capture.recorder, capturing, capture.config.backend == "aten"))
        stack.enter_context(builtins_of_sizes())
        stack.enter_context(tracers(patched, capturing))
        stack.enter_context(texts_of_tensors(capture, capturing))
        stack.enter_context(_deep_copies())
        stack.enter_context(torch_checkpoints(patched, capturing, capture.recorder))
        for module in resolve(capture.engine.recompute):
            stack.enter_context(recomputed(module, capturing, capture.recorder))
        yield


def _backward(capture: CaptureInterface) -> Any:
    """Wraps the autograd engine: names the phase, scales root gradients of backward() by the loss scale and
    the micro batches.
    """

    def make(original: Callable[..., Any]) -> Any:
        def run(tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not capturing():  # another thread
                return original(tensors, grad_tensors, *args, **kwargs)
            recorder = capture.recorder
            outer, recorder.phase = recorder.phase, "backward"
            try:
                with (
                    _autocast(capture, False),
                    _formulas(recorder),
                ):  # gradients have the types of the forward operators
                    if kwargs.get("accumulate_grad"):
                        factor = capture.loss_factor
                        grad_tensors = tuple(factor(t, g) for t, g in zip(tensors, grad_tensors))
                    return original(tensors, grad_tensors, *args, **kwargs)
            finally:
                recorder.phase = outer

        return run

    return make


def _formulas(recorder: Recorder) -> Any:
    """Before 2.13, matrix products in torch's formulas of gradients take unknown sizes in Python only."""
    return (
        torch._C._EnablePythonDispatcher()
        if recorder.sizes.nodes and torch_is_before("2.13")
        else contextlib.nullcontext()
    )


@contextlib.contextmanager
def _module_paths(recorder: Recorder, state_map: StateMap) -> Iterator[None]:
    """recorder.module_path follows the module that runs."""
    paths = {id(m): p for p, m in state_map.all_modules()}
    stack = []

    def enter(module: Module, args: tuple[Any, ...]) -> None:
        if not capturing():
            return
        stack.append(recorder.module_path)
        recorder.module_path = paths.get(id(module), recorder.module_path)

    def leave(module: Module, args: tuple[Any, ...], result: Any) -> None:
        if stack and capturing():
            recorder.module_path = stack.pop()

    hooks = torch.nn.modules.module
    with (
        global_hook(hooks.register_module_forward_pre_hook, hooks._global_forward_pre_hooks, enter),
        global_hook(hooks.register_module_forward_hook, hooks._global_forward_hooks, leave, always_call=True),
    ):
        yield


@contextlib.contextmanager
def _ranks_talk_in_the_program() -> Iterator[None]:
    """With several ranks: a collective is recorded with the wait for its result; DTensor's search for shapes
    is not recorded.
    """
    if not several():
        yield
        return
    from torch.distributed import _functional_collectives
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.distributed.tensor.placement_types import _StridedShard

    def make(original: Callable[..., Any]) -> Any:
        def unrecorded(self: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.utils._python_dispatch._disable_current_modes():
                return original(self, *args, **kwargs)

        return unrecorded

    traced = lambda original: lambda: capturing() or original()
    shapes = (
        patched(ShardingPropagator, "_propagate_tensor_meta_non_cached", make),
        patched(_StridedShard, "local_shard_size_and_offset", make),
    )
    with shapes[0], shapes[1], patched(_functional_collectives, "_are_we_tracing", traced):
        yield


@contextlib.contextmanager
def _many_gradients_at_once(on_cuda: Any) -> Iterator[None]:
    """On a GPU, clipping takes torch's multi-tensor form for symbolic gradients too, whose norms are not bit
    for bit those of the plain one.
    """
    from torch.utils._foreach_utils import _foreach_supported_types

    if not on_cuda:
        yield
        return
    before = list(_foreach_supported_types)

    def undo() -> None:
        _foreach_supported_types[:] = before

    with undone(undo):
        _foreach_supported_types.append(FakeTensor)
        yield


@contextlib.contextmanager
def _no_step_in_build(recorder: Recorder) -> Iterator[None]:
    """optimizer.step() belongs to the engine: one called in build() would be captured with its learning rate
    as a constant.
    """

    def refuse(stepped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if capturing() and recorder.phase != "update":
            raise CaptureError(
                f"build() calls step() of {type(stepped).__name__}",
                "Give the optimizer to add_optimizer() in __init__ and leave out zero_grad() and step(): the"
                " graph does both.",
            )

    with global_hook(
        optimizer.register_optimizer_step_pre_hook, optimizer._global_optimizer_pre_hooks, refuse
    ):
        yield


@contextlib.contextmanager
def _data_assignment() -> Any:
    """`tensor.data = value` in build() is recorded as a copy into the tensor's memory: a program cannot give
    a tensor other memory.
    """
    original: Any = torch.Tensor.data

    def put(tensor: Any, value: Any) -> None:
        if not capturing():
            original.__set__(tensor, value)
        elif value.shape != tensor.shape or value.dtype != tensor.dtype:
            raise CaptureError(
                f"build() assigns .data of {value.dtype}{list(value.shape)} to a tensor of"
                f" {tensor.dtype}{list(tensor.shape)}",
                "A program keeps the shape and dtype of its tensors; change them outside build().",
            )
        else:
            with torch.no_grad():
                original.__get__(tensor).copy_(value)

    with patched_attributes([(torch.Tensor, "data", property(original.__get__, put))]):
        yield


@contextlib.contextmanager
def _views_of_any_layout() -> Iterator[None]:
    """view() in build() takes a tensor of any layout, as the tensors of OneFlow's graphs are contiguous."""
    originals = {name: getattr(torch.Tensor, name) for name in ("view", "view_as")}

    def take(original: Callable[..., Any]) -> Callable[..., Any]:
        lenient = view_or_copy(original)
        return lambda tensor, *args, **kwargs: (lenient if capturing() else original)(tensor, *args, **kwargs)

    with patched_attributes((torch.Tensor, name, take(original)) for name, original in originals.items()):
        yield


@contextlib.contextmanager
def _deep_copies() -> Iterator[None]:
    """Record copy.deepcopy() of a tensor or module in build() as a copy of each call's values.

    The copy is written to the program's memory.
    """

    def make(original: Callable[..., Any]) -> Any:
        def copy_of(tensor: torch.Tensor, memo: Any) -> Any:
            if not capturing() or not tensor.is_leaf or id(tensor) in memo:
                return original(tensor, memo)
            with torch.no_grad():
                copied = tensor.clone(memory_format=torch.preserve_format)
            if isinstance(tensor, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, tensor.requires_grad)
            else:
                copied.requires_grad_(tensor.requires_grad)
            memo[id(tensor)] = copied
            return copied

        return copy_of

    with patched(torch.Tensor, "__deepcopy__", make), patched(torch.nn.Parameter, "__deepcopy__", make):
        yield


@contextlib.contextmanager
def _unchecked_and_uncompiled() -> Iterator[None]:
    """Distributions do not look at the values of their arguments; functions of torch.compile, and
    flex_attention, run as they were written.
    """
    with contextlib.ExitStack() as stack:
        distributions = sys.modules.get("torch.distributions.distribution")
        if distributions is not None:
            stack.enter_context(patched(distributions.Distribution, "_validate_args", lambda was: False))
        if "torch._dynamo.eval_frame" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:
            from torch._higher_order_ops.flex_attention import sdpa_dense

            stack.enter_context(patched(flex, "flex_attention_hop", lambda was: sdpa_dense))
            stack.enter_context(patched(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", lambda was: True))
        yield


# -- running build ------------------------------------------------------------------


def run_build(capture: Any, flat: Any) -> Any:
    """Call build() once, or once per micro batch; returns (flat outputs, tree spec)."""
    config = capture.config
    optimizers = capture.engine.optimizers
    parts = config.accumulation if callable(optimizers) or optimizers else 1
    capture.loss_factor = _loss_factor(capture, parts)
    if parts <= 1:
        return _once(capture, flat)
    splits = [_split(v, parts, capture) if isinstance(v, torch.Tensor) else [v] * parts for v in flat]
    results = []
    for k in range(parts):
        results.append(_once(capture, [s[k] for s in splits]))
    spec = results[0][1]
    if any(r[1] != spec for r in results):
        raise CaptureError(
            "build() returned different structures for different micro batches",
            "Return the same structure in each call.",
        )
    return [_join([r[0][i] for r in results]) for i in range(len(results[0][0]))], spec


def _once(capture: CaptureInterface, flat: Any) -> Any:
    args, kwargs = with_known_lengths(
        capture.recorder, pytree.tree_unflatten(list(flat), with_sizes(capture.in_spec))
    )
    contents = tree_flatten((args, kwargs))
    with _autocast(capture):
        try:
            result = capture.engine.build(*args, **kwargs)
        except (RuntimeError, TypeError, AssertionError) as e:
            for said, what, instead in _UNCLEAR:
                if said(e):
                    raise CaptureError(what, instead, raised_at(e)) from e
            raise
    if not same_contents(contents, tree_flatten((args, kwargs))):
        warn_of_changed_containers(capture.engine)
    return tree_flatten(result)


def _of_nested_tensors(error: BaseException) -> Any:
    return (
        any(said in str(error) for said in ("NestedTensorImpl", "_nested_tensor"))
        or innermost(error).f_code.co_name == "create_symbolic_nested_int"
    )


_UNCLEAR = (  # is it this error of torch's, what it comes from, and what to do
    (
        lambda e: "data is not allocated yet" in str(e),
        (
            "an operator reads the numbers of a tensor, as tensor_split(x, indices) does with indices that"
            " are a tensor"
        ),
        "Give it Python numbers, or compute that part outside the graph.",
    ),
    (
        _of_nested_tensors,
        "build() computes with a nested tensor, which has no place in a program",
        KEEP_PADDED,
    ),
    (
        asks_for_a_size,
        (
            "build() branches on a size that depends on values (of x[mask], nonzero(), .item() or the like),"
            " or makes a Python number of it"
        ),
        KEEP_SIZE,
    ),
    (
        lambda e: "HigherOrderOperator" in str(e),
        "build() calls an operator of torch that takes functions (while_loop, map, ...)",
        "Write it as a Python loop, which is recorded step by step.",
    ),
    (
        lambda e: "Creating a new Tensor subclass" in str(e),
        "build() makes a tensor of a class of its own (as_subclass, Own(x)), which has no place in a program",
        (
            "Make it outside of the graph, as an argument or attribute of build(), or compute with a plain"
            " tensor there."
        ),
    ),
)


def _autocast(capture: CaptureInterface, enabled: bool = True) -> Any:
    config = capture.config
    if not config.amp:
        return contextlib.nullcontext()
    device = (
        "cuda"
        if any(isinstance(v, torch.Tensor) and v.is_cuda for v in (*capture.args_flat, *capture.tensors))
        else "cpu"
    )
    dtype = config.amp_dtype or (torch.float16 if device == "cuda" else torch.bfloat16)
    return torch.autocast(device, dtype=dtype, enabled=enabled)


def _loss_factor(capture: Any, parts: Any) -> Any:
    scaler = resolve_scaler(capture.engine.grad_scaler)

    def factor(tensor: torch.Tensor, grad: Any) -> Any:
        if grad is None:
            return grad
        if parts > 1:
            grad = grad / parts
        if scaler is not None:
            grad = scaled(scaler, grad)
        return grad

    return factor


def resolve_scaler(scaler: Any) -> Any:
    return scaler() if callable(scaler) and not hasattr(scaler, "state_dict") else scaler


def _split(tensor: torch.Tensor, parts: Any, capture: CaptureInterface) -> Any:
    if tensor.dim() == 0 or tensor.shape[0] % parts:
        raise CaptureError(
            f"an argument of shape {tuple(tensor.shape)} cannot be split into {parts} micro batches",
            f"With set_gradient_accumulation_steps({parts}) the first dimension of every tensor argument must"
            f" be a multiple of {parts}.",
        )
    return tensor.chunk(parts, dim=0)


def _join(values: Any) -> Any:
    leading = values[0]
    if not isinstance(leading, torch.Tensor):
        return leading
    with torch.no_grad():
        return torch.stack(values) if leading.dim() == 0 else torch.cat(values)
