"""Run build() with autocast and micro batches, and check the values that it takes and returns."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..._global.marks import is_global
from ..._global.program_results import wrappers
from ..._global.stage_routes import between_stages
from ..cut_step import variables_of_head
from ..errors import KEEP_PADDED, KEEP_SIZE, CaptureError, GraphTypeError, UsageError, raised_at
from ..program.object_trees import has_objects, owners_of_leaves
from ..program.python_values import is_constant
from ..program.pytree import argument_names, path_text, paths, tree_flatten, with_sizes
from ..program.symbolic import SYMBOLIC_NUMBERS
from .results.crossing_objects import refuse_shared_objects
from .results.histories import refuse_lost_attributes
from .results.unknown_sizes import asks_for_a_size, innermost
from .side_effects.argument_objects import ArgumentObjects
from .side_effects.caller_tensors import note_changed_containers, same_contents
from .side_effects.result_objects import Results, flatten_results
from .update.loss_scaling import resolve_scaler, scaled
from .values.branch_values import with_known_lengths

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec

    from ..config import Config
    from ..definition import GraphDefinition
    from ..program.locations import Keys
    from .interfaces import CaptureInterface, LossFactor

# names that the body of a class without methods leaves in it, on any Python
_OF_EVERY_CLASS = frozenset(
    ["__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__"]
    + ["__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__", "__annotate_func__"]
    + ["__annotations_cache__", "__abstractmethods__", "_abc_impl"]
)


def check_leaves(flat: Iterable[Any], name: Callable[[int], str], also: tuple[type, ...] = ()) -> None:
    """Raise unless every leaf is a tensor, a plain Python value, or of one of the classes in `also`.

    An error calls the leaf name(index).
    """
    for index, leaf in enumerate(flat):
        if not isinstance(leaf, (torch.Tensor, *SYMBOLIC_NUMBERS, *also)) and not is_constant(leaf):
            raise GraphTypeError(
                f"the {name(index)} of build() has the type {_class_name(type(leaf))}, which a graph cannot"
                " take",
                "Use tensors, numbers, strings, None, and nested list, tuple or dict of them (numpy:"
                " flow.from_numpy(x)). An object may also hold functions, classes and other such objects:"
                " leave anything else out of it, or use only its tensors.",
            )
        if isinstance(leaf, torch.Tensor) and _is_nested(leaf):
            raise GraphTypeError(
                f"the {name(index)} of build() is a nested tensor, which a graph cannot take", KEEP_PADDED
            )


def check_arguments(flat: Sequence[Any], spec: TreeSpec, positional: Sequence[str]) -> None:
    """Raise unless every leaf of the arguments can be an input or a constant of a program."""
    argument = None  # the one that an error names

    def name(index: int) -> str:
        nonlocal argument
        argument, leaf = argument_names(spec, positional)[index]
        owner = owners_of_leaves(spec)[index]
        if owner is None:
            return f"argument {leaf!r}"
        return f"argument {argument!r}{_text_of_part(paths(spec)[index][2:], owner)}"

    try:
        check_leaves(flat, name)
        for index, leaf in enumerate(flat):
            if isinstance(leaf, torch.Tensor) and type(leaf) is not torch.Tensor and _has_own_behavior(leaf):
                raise GraphTypeError(
                    f"the {name(index)} of build() is a tensor of the class {_class_name(type(leaf))}, which"
                    " has methods or attributes of its own",
                    "A program computes with plain tensors: pass those inside, or"
                    " x.as_subclass(torch.Tensor).",
                )
    except GraphTypeError as error:
        error.argument = argument
        raise


def check_results(results: Results) -> None:
    """Raise unless every leaf of the results can be an output or a constant of a program."""

    def name(index: int) -> str:
        path, owner = paths(results.spec)[index], owners_of_leaves(results.spec)[index]
        text = path_text(path) if owner is None else _text_of_part(path, owner)
        return f"output {text}".rstrip()

    check_leaves(results.leaves, name, (torch.nn.Module,))
    check_leaves(results.changed_leaves, lambda index: "new value in an argument")
    refuse_lost_attributes(results.leaves)


def _text_of_part(path: Keys, owner: type) -> str:
    return f"{path_text(path)} (in an object of the class {_class_name(owner)})"


def _is_nested(tensor: torch.Tensor) -> bool:
    if type(tensor) is torch.Tensor:
        return tensor.is_nested
    with torch._C.DisableTorchFunction():  # the class may refuse the question
        return tensor.is_nested


def _has_own_behavior(tensor: torch.Tensor) -> bool:
    """Whether the class of a tensor answers otherwise than torch.Tensor, which stands for it in a capture."""
    if is_global(tensor) or isinstance(tensor, wrappers()):
        return False
    own = itertools.takewhile(lambda base: base is not torch.Tensor, type(tensor).__mro__)
    bases = (base for base in own if base is not torch.nn.Parameter)
    return any(not _OF_EVERY_CLASS.issuperset(vars(base)) for base in bases)


def _class_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def leaf_name(spec: TreeSpec, index: int) -> str:
    """Return a readable path of a flat leaf, such as [0]['x'].layers."""
    return path_text(paths(spec)[index])


def run_build(capture: CaptureInterface, flat: list[Any]) -> Results:
    """Call build() once, or once per micro batch."""
    parts = capture.config.accumulation if capture.definition.updates_after_build else 1
    capture.loss_factor = loss_factor(capture.definition, parts)
    if parts <= 1:
        return _once(capture, flat)
    splits = [split_batch(v, parts) if isinstance(v, torch.Tensor) else [v] * parts for v in flat]
    results = []
    try:
        with between_stages(capture.plan is not None):
            for k in range(parts):
                capture.recorder.micro_batch = k
                results.append(_once(capture, [s[k] for s in splits]))
    finally:
        capture.recorder.micro_batch = None
    spec = results[0].spec
    if any(r.uses_arguments for r in results):
        raise CaptureError(
            "build() changes or returns an object among its arguments, in a step of several micro batches",
            "Return the new tensors, or set_gradient_accumulation_steps(1).",
        )
    if any(r.spec != spec for r in results):
        raise CaptureError(
            "build() returned different structures for different micro batches",
            "Return the same structure in each call.",
        )
    joined = [join_batches([r.leaves[i] for r in results]) for i in range(spec.num_leaves)]
    return replace(results[0], leaves=joined)


def _once(capture: CaptureInterface, flat: list[Any]) -> Results:
    objects = ArgumentObjects(capture.in_spec, flat) if has_objects(capture.in_spec) else None
    tree = pytree.tree_unflatten(list(flat), with_sizes(capture.in_spec)) if objects is None else objects.tree
    if objects is not None:
        capture.reads.note_twins(objects.twins(capture.argument_objects))
    args, kwargs = with_known_lengths(capture.recorder, tree)
    contents = tree_flatten((args, kwargs)) if objects is None else None
    with autocast(capture):
        try:
            result = capture.definition.build(*args, **kwargs)
        except (RuntimeError, TypeError, AssertionError) as e:
            for said, what, instead in _UNCLEAR:
                if said(e):
                    raise CaptureError(what, instead, raised_at(e)) from e
            raise
    variables = None if capture.definition.cut is None else variables_of_head(result)
    if variables is not None:
        made, reads = capture.reads.ids_made_by_build(), capture.reads.reads
        refuse_shared_objects(variables, made, [*args, *kwargs.values()], reads)
    if objects is not None:
        is_changed = objects.changes_container()
    else:
        is_changed = not same_contents(contents, tree_flatten((args, kwargs)))
    if is_changed:
        note_changed_containers(capture)
    results = flatten_results(result, objects, capture.reads.ids_made_by_build)
    capture.reads.returned.update(_ids_of_containers(result))
    return results


def _ids_of_containers(value: Any) -> Iterator[int]:
    if isinstance(value, (list, tuple, dict, deque)):
        yield id(value)
        for element in value.values() if isinstance(value, dict) else value:
            yield from _ids_of_containers(element)


def _of_nested_tensors(error: BaseException) -> Any:
    return (
        any(said in str(error) for said in ("NestedTensorImpl", "_nested_tensor"))
        or innermost(error).f_code.co_name == "create_symbolic_nested_int"
    )


_UNCLEAR = (  # (whether an error of torch is this one, its cause, what to do)
    (
        lambda e: "data is not allocated yet" in str(e) or "cannot be called on meta tensors" in str(e),
        (
            "an operator reads the numbers of a tensor, as tensor_split(x, indices) does with indices that"
            " are a tensor"
        ),
        "Give it Python numbers, or compute that part outside the graph.",
    ),
    (
        lambda e: "compressed tensor instance" in str(e),
        "build() makes a sparse tensor of compressed rows or columns from its parts (sparse_csr_tensor)",
        (
            "Make it outside of build(), or take torch.sparse_coo_tensor() or dense.to_sparse_csr() in"
            " build()."
        ),
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


def autocast(capture: CaptureInterface, enabled: bool = True) -> AbstractContextManager[object]:
    return autocast_of(capture.config, (*capture.args_flat, *capture.tensors), enabled)


def autocast_of(
    config: Config, values: Iterable[object], enabled: bool = True
) -> AbstractContextManager[object]:
    """Return the context of config.amp around build(). `values` are its arguments and its state."""
    if not config.amp:
        return contextlib.nullcontext()
    device = "cuda" if any(isinstance(v, torch.Tensor) and v.is_cuda for v in values) else "cpu"
    dtype = config.amp_dtype or (torch.float16 if device == "cuda" else torch.bfloat16)
    return torch.autocast(device, dtype=dtype, enabled=enabled)


def loss_factor(definition: GraphDefinition, parts: int) -> LossFactor:
    """Return the function from a root of backward() and its gradient to the scaled gradient."""
    scaler = resolve_scaler(definition.grad_scaler)

    def factor(tensor: torch.Tensor, grad: torch.Tensor | None) -> torch.Tensor | None:
        if grad is None:
            return grad
        if parts > 1:
            grad = grad / parts
        if scaler is not None:
            grad = scaled(scaler, grad)
        return grad

    return factor


def split_batch(tensor: torch.Tensor, parts: int) -> Any:
    """Return the micro batches of an argument."""
    if tensor.dim() == 0 or tensor.shape[0] % parts:
        raise UsageError(
            f"an argument of shape {tuple(tensor.shape)} cannot be split into {parts} micro batches",
            f"With set_gradient_accumulation_steps({parts}) the first dimension of every tensor argument must"
            f" be a multiple of {parts}.",
        )
    return tensor.chunk(parts, dim=0)


def join_batches(values: Any) -> Any:
    """Return the result of a step from those of its micro batches."""
    leading = values[0]
    if not isinstance(leading, torch.Tensor):
        return leading
    with torch.no_grad():
        return torch.stack(values) if leading.dim() == 0 else torch.cat(values)
