"""What is computed again in backward: torch.utils.checkpoint in build(), and the modules with
`activation_checkpointing`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint

from .... import _active
from ...._global.tensor import memory_of
from ...program.program import roots, written_args
from .patching import patched_attributes

if TYPE_CHECKING:
    from torch.nn import Module

    from ..recorder import Recorder


@contextlib.contextmanager
def torch_checkpoints(patched: Any, capturing: Any, recorder: Recorder) -> Iterator[None]:
    """Mark in the program the operators that torch's checkpoint recomputes in backward.

    They get the module and scope of the first run.
    """

    def marked(function: Callable[..., Any], first_recomputation: Any) -> Any:
        runs, path, scope = [], recorder.module_path, _active.REPORTED_SCOPE.get()

        def run(*args: Any, **kwargs: Any) -> Any:
            runs.append(True)
            outer = recorder.recomputing, recorder.module_path
            recorder.recomputing, recorder.module_path = outer[0] or len(runs) >= first_recomputation, path
            try:
                # the Python dispatcher would record other operators than the first run
                with torch._C._DisablePythonDispatcher(), _active.reporting_scope(scope):
                    return function(*args, **kwargs)
            finally:
                recorder.recomputing, recorder.module_path = outer

        return run if capturing() else function

    # the one is given the function for the second run, the other for both
    name = "_checkpoint_without_reentrant_generator"
    name += "_impl" if hasattr(checkpoint, name + "_impl") else ""  # torch 2.15
    later = patched(
        checkpoint, name, lambda original: lambda f, *args, **kwargs: original(marked(f, 1), *args, **kwargs)
    )
    both = patched(
        checkpoint.CheckpointFunction,
        "apply",
        lambda original: lambda f, *args: original(marked(f, 2), *args),
    )
    with later, both:
        yield


@contextlib.contextmanager
def recomputed(module: Module, capturing: Any, recorder: Recorder) -> Iterator[None]:
    """module.forward runs under torch's checkpoint, so its activations are computed again in backward; its
    buffers are written once.
    """
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or not capturing():
            return original(*args, **kwargs)
        before = _Before(module, recorder)
        out = checkpoint.checkpoint(
            original,
            *args,
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), before),
            **kwargs,
        )
        before.keep_written()
        return out

    with patched_attributes([(module, "forward", forward)]):
        yield


class _Before:
    """The buffers of a module as they are before its forward.

    In this context the module has copies instead, which are read and written.
    """

    def __init__(self, module: Module, recorder: Recorder) -> None:
        self.recorder, self.copies = recorder, []
        with torch.no_grad():
            for part in module.modules():
                for name, buffer in part._buffers.items():
                    if buffer is not None:
                        self.copies.append((part, name, buffer, buffer.clone()))
        self.last = recorder.graph._root.prev

    def keep_written(self) -> None:
        """The copies of buffers that forward did not write are not needed."""
        written: set[Any] = set()
        node = self.last.next
        while node.op != "root":
            written.update(roots(written_args(node)) if node.op == "call_function" else ())
            node = node.next
        kept = []
        for part, name, buffer, copy in self.copies:
            if part._buffers.get(name) is not buffer or self._node(buffer) in written:
                kept.append((part, name, buffer, copy))
            else:
                self.recorder.graph.erase_node(self._node(copy))
        self.copies = kept

    def _node(self, tensor: torch.Tensor) -> Any:
        return self.recorder._convert(memory_of(tensor))[0]

    def __enter__(self) -> None:
        self.now = [(part, name, part._buffers.get(name)) for part, name, *_ in self.copies]
        for part, name, _, copy in self.copies:
            part._buffers[name] = copy

    def __exit__(self, *exc: Any) -> None:
        for part, name, value in self.now:
            part._buffers[name] = value
