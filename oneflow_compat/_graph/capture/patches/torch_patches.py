"""The list of what a capture changes in torch while build() runs, and those changes that are short."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer

from ...._active import capturing
from ...._global.marks import several
from ...._upstream.versions import torch_is_before
from ...errors import CaptureError
from ...program.program import roots
from ..build import autocast
from ..results.histories import refuse_older_histories
from ..state_map import resolve
from ..update.steps_of_build import FoundOptimizer, is_known, is_of_build
from ..values.numbers_and_symbols import arithmetic_of_symbols
from .checkpointing import recomputed, torch_checkpoints
from .integer_indexing import tensors_as_indices
from .patching import answered_in_build, everywhere, global_hook, patched, patched_attributes, undone
from .random_state import generators_of_build, states_of_generators
from .recurrent_layers import recurrent_layers
from .size_builtins import builtins_of_sizes
from .stages import inputs_on_stages
from .tensor_texts import texts_of_tensors
from .traced_questions import answers_of_eager
from .value_readers import value_readers
from .view_layouts import views_of_any_layout

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from ..interfaces import CaptureInterface
    from ..recorder import Recorder
    from ..state_map import StateMap


@contextlib.contextmanager
def capture_patches(capture: CaptureInterface, state_map: StateMap) -> Iterator[None]:
    """Everything here is undone on exit, in reverse order."""
    with contextlib.ExitStack() as stack:
        replacements = stack.enter_context(answers_of_eager())
        stack.enter_context(_module_paths(capture.recorder, state_map))
        stack.enter_context(patched(torch.autograd, "_engine_run_backward", _backward(capture)))
        replacements |= stack.enter_context(states_of_generators(capture.recorder))
        stack.enter_context(recurrent_layers(capturing, capture.recorder))
        stack.enter_context(_many_gradients_at_once(any(t.is_cuda for t in capture.tensors)))
        replacements |= generators_of_build(capture.recorder, capturing)
        stack.enter_context(_data_assignment())
        stack.enter_context(views_of_any_layout(capture.recorder))
        replacements |= stack.enter_context(tensors_as_indices(capture.recorder, capturing))
        stack.enter_context(_one_form_of_constraints())
        stack.enter_context(_uncompiled())
        stack.enter_context(_ranks_talk_in_the_program())
        stack.enter_context(
            patched(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", lambda was: True)
        )
        stack.enter_context(_no_step_in_build(capture))
        exact = capture.config.backend == "aten"
        replacements |= stack.enter_context(value_readers(capture.recorder, capturing, exact))
        stack.enter_context(everywhere(replacements))
        stack.enter_context(builtins_of_sizes())
        stack.enter_context(arithmetic_of_symbols(capture.recorder))
        stack.enter_context(_tracers())
        stack.enter_context(patched(torch.Tensor, "__hash__", _hash(capture)))
        stack.enter_context(texts_of_tensors(capture, capturing))
        stack.enter_context(_deep_copies())
        stack.enter_context(patched(torch.utils, "swap_tensors", _swapped))
        stack.enter_context(torch_checkpoints(patched, capturing, capture.recorder))
        for module in resolve(capture.definition.recompute):
            stack.enter_context(recomputed(module, capturing, capture.recorder))
        # a move is not computed again in backward
        stack.enter_context(inputs_on_stages(capture.definition.stages()))
        yield


def _hash(capture: CaptureInterface) -> Any:
    """Note which arguments are in sets or are keys of dicts, where one tensor given twice is one element."""

    def make(original: Callable[[torch.Tensor], int]) -> Any:
        def __hash__(tensor: torch.Tensor) -> int:
            if capturing():
                capture.reads.note_hash(tensor)
            return original(tensor)

        return __hash__

    return make


def _backward(capture: CaptureInterface) -> Any:
    """Wrap the autograd engine: name the phase, and scale root gradients of backward() by the loss scale and
    the micro batches.
    """

    def make(original: Callable[..., Any]) -> Any:
        def run(tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not capturing():  # another thread
                return original(tensors, grad_tensors, *args, **kwargs)
            recorder = capture.recorder
            if capture.definition.steps_in_build:
                refuse_older_histories(tensors, recorder.histories)
            outer, recorder.phase = recorder.phase, "backward"
            try:
                if not (args and args[0]):  # retain_graph
                    capture.consumed += [t.grad_fn for t in tensors if t.grad_fn is not None]
                # gradients have the types of the forward operators
                with (
                    autocast(capture, False),
                    _formulas(recorder),
                ):
                    factor = capture.loss_factor
                    if factor is not None and kwargs.get("accumulate_grad"):
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

    from .rank_collectives import collectives_that_write

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
    waits = patched(_functional_collectives, "_are_we_tracing", traced)
    with shapes[0], shapes[1], waits, collectives_that_write(capturing):
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
def _no_step_in_build(capture: CaptureInterface) -> Iterator[None]:
    """optimizer.step() belongs to the engine: one called in build() would be captured with its learning rate
    as a constant. A build() that steps its optimizers is captured again with one that was not known.
    """

    def refuse(stepped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if capturing() and capture.recorder.phase != "update":
            if capture.definition.steps_in_build:
                _find(capture, stepped)
            raise CaptureError(
                f"build() calls step() of {type(stepped).__name__}",
                "Give the optimizer to add_optimizer() in __init__ and leave out zero_grad() and step(): the"
                " graph does both.",
            )

    with global_hook(
        optimizer.register_optimizer_step_pre_hook, optimizer._global_optimizer_pre_hooks, refuse
    ):
        yield


def _find(capture: CaptureInterface, stepped: Optimizer) -> None:
    """Capture again with an optimizer that is not known. Raise if it is known, or made by the step."""
    if is_known(capture, stepped):
        raise CaptureError(
            f"the step calls step() of {type(stepped).__name__} by another way than optimizer.step()",
            "Call optimizer.step().",
        )
    if is_of_build(capture, stepped):
        raise CaptureError(
            f"the step makes a {type(stepped).__name__} and calls its step()",
            "Make the optimizer outside of the step.",
        )
    raise FoundOptimizer(stepped)


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
        elif value.untyped_storage()._cdata != tensor.untyped_storage()._cdata and not _is_computed(value):
            raise CaptureError(
                "build() assigns .data that another tensor has, too",
                "A program keeps the memory of its tensors; assign a copy: p.data = value.clone().",
            )
        else:
            with torch.no_grad():
                original.__get__(tensor).copy_(value)

    with patched_attributes([(torch.Tensor, "data", property(original.__get__, put))]):
        yield


def _is_computed(value: torch.Tensor) -> bool:
    """Whether build() computes a tensor in memory of its own. A global tensor keeps its part inside."""
    if not isinstance(value, FakeTensor) and type(value) not in (torch.Tensor, torch.nn.Parameter):
        return True
    node = getattr(value, "_of_node", None)
    return node is not None and all(root.op == "call_function" for root in roots([node]))


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


def _swapped(original: Callable[..., Any]) -> Callable[..., Any]:
    """Swap the parameters of a layer of build() that moves (to_empty(), double()).

    torch refuses, because the recorder has weak references to them.
    """

    def swap(t1: torch.Tensor, t2: torch.Tensor) -> None:
        if type(t1) is FakeTensor is type(t2):
            t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
            torch._C._swap_tensor_impl(t1, t2)
        else:
            original(t1, t2)

    return swap


@contextlib.contextmanager
def _one_form_of_constraints() -> Iterator[None]:
    """A distribution checks a positive definite matrix without a branch on whether it is symmetric."""
    constraints = sys.modules.get("torch.distributions.constraints")
    if constraints is None:
        yield
        return

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def check(constraint: Any, value: torch.Tensor) -> torch.Tensor:
            if not capturing():
                return original(constraint, value)  # type: ignore[no-any-return]
            symmetric = constraints.symmetric.check(value)
            return symmetric & torch.linalg.cholesky_ex(value).info.eq(0)  # type: ignore[no-any-return]

        return check

    with patched(type(constraints.positive_definite), "check", make):
        yield


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Functions of torch.compile, and flex_attention, run as they were written."""
    with contextlib.ExitStack() as stack:
        if "torch._dynamo.eval_frame" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:
            from torch._higher_order_ops.flex_attention import sdpa_dense

            stack.enter_context(patched(flex, "flex_attention_hop", lambda was: sdpa_dense))
            stack.enter_context(patched(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", lambda was: True))
        yield


@contextlib.contextmanager
def _tracers() -> Iterator[None]:
    """Tracers of torch inside build(): linearize() calls its function where it would trace it.

    make_fx, whose graph would hold symbolic tensors, is an error.
    """
    with contextlib.ExitStack() as stack:
        transforms = sys.modules.get("torch._functorch.eager_transforms")
        if transforms is not None:
            stack.enter_context(
                patched(
                    transforms,
                    "lazy_dynamo_disallow",
                    lambda original: lambda f: _UNTRACED[f.__name__] if capturing() else original(f),
                )
            )
        tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")
        if tracer is not None:
            stack.enter_context(
                patched(
                    tracer._MakefxTracer,
                    "trace",
                    lambda original: lambda *args: _refuse_make_fx() if capturing() else original(*args),
                )
            )
        yield


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for make_fx in linearize(), which calls make_fx(f)(example) and its result."""
    return lambda example: lambda *flat: pytree.tree_leaves(function(flat))


_UNTRACED = {"make_fx": _untraced, "split_const_subgraphs": lambda function: function}


def _refuse_make_fx() -> None:
    raise CaptureError(
        "build() traces a function with make_fx", "Call the function itself: build() is recorded anyway."
    )


@contextlib.contextmanager
def autograd_of_capture(name: str, trains: bool, in_inference_mode: bool) -> Iterator[None]:
    """Run autograd in one thread, without the check of set_detect_anomaly, and with no cache of autocast.

    The cache would hand out weights that were cast before, and later those of the capture. The check of
    set_detect_anomaly reads the values of gradients. build() asks for the caller's modes.
    """
    detects = torch.is_anomaly_enabled()
    if detects and trains:
        warnings.warn(
            f"graph {name}: torch.autograd.set_detect_anomaly() does not check the gradients of a graph."
            " Run the model in eager mode to find the operator that gives NaN.",
            stacklevel=2,
        )
    torch.clear_autocast_cache()
    try:
        with (
            torch.autograd.set_multithreading_enabled(False),
            torch.autograd.set_detect_anomaly(detects, check_nan=False),
            answered_in_build(torch, "is_inference_mode_enabled", in_inference_mode),
        ):
            yield
    finally:
        torch.clear_autocast_cache()
