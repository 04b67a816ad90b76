"""The gradients of parameters in a capture whose build() owns them, as a training step of eager mode does.

build() finds the gradient that a parameter has before the call, and leaves another one behind. What it finds
is an input of the program only if build() uses it: `zero_grad()` first, and it does not matter.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import Optimizer

from ...._active import capturing
from ...errors import CaptureError
from ...guards import sources
from ...guards.guard import Guard
from ..patches.patching import forget, log, patched, patched_attributes

if TYPE_CHECKING:
    from torch.fx import Node

    from ..recorder import Recorder
    from ..state_map import StateMap


_GRAD: Any = torch.Tensor.grad


def _grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient; no mode sees the question, which would ask for the attribute again."""
    with torch._C.DisableTorchFunction():
        gradient: torch.Tensor | None = _GRAD.__get__(tensor)
        return gradient


@dataclass(eq=False)
class _Entry:
    """A leaf tensor of the state, its gradient before the call, and what stands for that in build()."""

    tensor: torch.Tensor
    before: torch.Tensor | None
    twin: torch.Tensor | None = None
    is_read: bool = False  # build() looked at the gradient before it had set one
    is_set: bool = False  # build() set a gradient, or None, before it looked at it


@dataclass(frozen=True, eq=False)
class LeftGradients:
    """The gradients that build() leaves behind.

    `nodes` compute the new gradients of `parameters`. The parameters in `cleared` have none afterwards. What
    those in `dropped` have before the call is used nowhere.
    """

    nodes: tuple[Node, ...] = ()
    parameters: tuple[torch.Tensor, ...] = ()
    cleared: tuple[torch.Tensor, ...] = ()
    dropped: tuple[torch.Tensor, ...] = ()


class GradientsOfCall:
    """A context: parameters have symbolic gradients, and get back what they had at the end."""

    def __init__(self, tensors: Iterable[torch.Tensor], recorder: Recorder) -> None:
        self._tensors, self._recorder = list(tensors), recorder
        self._entries: dict[int, _Entry] = {}
        self._clears = False  # while zero_grad() runs, which asks whether there is a gradient
        self.guards: list[Guard] = []
        self.pinned: frozenset[int] = frozenset()  # ids of the tensors whose gradients matter
        self.on_zero_grad: Callable[[Any], object] | None = None  # gets the optimizer or module

    # -- during the capture ---------------------------------------------------------------
    def __enter__(self) -> GradientsOfCall:
        log(self.restore)
        for tensor in self._tensors:
            self.hide(tensor)
        return self

    def __exit__(self, *error: object) -> None:
        self.restore()
        forget(self.restore)
        self._entries.clear()  # an error of build() keeps this object in its frames
        self._tensors.clear()
        self.on_zero_grad = None  # guards of zero_grad() keep this object

    def restore(self) -> None:
        for entry in self._entries.values():
            if entry.tensor.grad is not entry.before:
                entry.tensor.grad = None
                if entry.before is not None:
                    entry.tensor.grad = entry.before

    def hide(self, tensor: torch.Tensor) -> None:
        """Give a tensor that the capture meets a symbolic gradient in the place of its own."""
        if not tensor.is_leaf or id(tensor) in self._entries:
            return
        entry = self._entries[id(tensor)] = _Entry(tensor, _grad_of(tensor))
        if entry.before is not None:
            if entry.before.layout is not torch.strided:
                raise CaptureError(
                    "a parameter has a sparse gradient before the call",
                    "Call zero_grad() before the step.",
                )
            entry.twin = self._recorder.lift(entry.before)[1]
            self._recorder.fakes.append(weakref.ref(entry.twin))  # build() may keep it
            _GRAD.__set__(tensor, entry.twin)

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Note in this context whether build() first reads or first sets a gradient.

        `grad` is an attribute that C code defines, so a property of torch.Tensor hides it.
        """

        def get(tensor: torch.Tensor) -> Any:
            entry = self._met(tensor)
            if entry is not None and not (entry.is_set or self._clears):
                entry.is_read = True
            return _grad_of(tensor)

        def put(tensor: torch.Tensor, value: Any) -> None:
            entry = self._met(tensor)
            if entry is not None and not (entry.is_read or entry.is_set):
                entry.is_set = self._is_as_before(entry)
                entry.is_read = not entry.is_set
            _GRAD.__set__(tensor, value)

        def delete(tensor: torch.Tensor) -> None:
            put(tensor, None)

        gradient = property(get, put, delete)
        with (
            patched_attributes([(torch.Tensor, "grad", gradient)]),
            patched(Optimizer, "zero_grad", self._clearing(_parameters_of_groups)),
            patched(torch.nn.Module, "zero_grad", self._clearing(torch.nn.Module.parameters)),
        ):
            yield

    def _met(self, tensor: torch.Tensor) -> _Entry | None:
        """Return the entry of a real leaf tensor, which build() may meet here for the first time."""
        if not capturing():
            return None
        if id(tensor) not in self._entries and type(tensor) is not FakeTensor:
            self.hide(tensor)
        return self._entries.get(id(tensor))

    def _clearing(self, parameters: Callable[[Any], Iterable[torch.Tensor]]) -> Callable[..., Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def zero_grad(owner: Any, set_to_none: bool = True) -> None:
                if not capturing() or not set_to_none:
                    original(owner, set_to_none)
                    return
                if self.on_zero_grad is not None:
                    self.on_zero_grad(owner)
                outer, self._clears = (self._clears, self._recorder.phase), True
                # zero_grad() asks for the groups of the optimizer, not for options
                self._recorder.phase = "update"
                try:
                    original(owner, set_to_none)
                    for tensor in parameters(owner):
                        if tensor.grad is None:
                            tensor.grad = None  # noted, whether there was a gradient or not
                finally:
                    self._clears, self._recorder.phase = outer

            return zero_grad

        return make

    def _is_as_before(self, entry: _Entry) -> bool:
        """Whether neither backward() nor build() has changed the gradient yet."""
        gradient = _grad_of(entry.tensor)
        if entry.twin is None:
            return gradient is None
        return gradient is entry.twin and not self._node(entry).users

    def _node(self, entry: _Entry) -> Node:
        return self._recorder.lifted[id(entry.before)][1]

    # -- after build() --------------------------------------------------------------------
    def finish(self, state: StateMap) -> LeftGradients:
        """Return what build() leaves. Then `guards` are those of the gradients that it found.

        A run reads and leaves gradients of the very tensors of the capture, so these are `pinned`.
        """
        nodes, changed, cleared, without = [], [], [], []
        pinned: set[int] = set()
        for entry in self._entries.values():
            now = entry.tensor.grad
            matters = entry.is_read or not entry.is_set and not self._is_untouched(entry, now)
            if entry.twin is None:
                if matters:
                    without.append(entry.tensor)
            elif not matters:
                self._remove_input(entry)
            is_left = now is not entry.twin or entry.is_set
            if matters or is_left:
                pinned.add(id(entry.tensor))
            if not is_left:
                continue
            self._check(entry, state)
            if now is None:
                cleared.append(entry.tensor)
            else:
                nodes.append(self._recorder._convert(now)[0])
                changed.append(entry.tensor)
        if without:
            label = "whether a parameter has a gradient before the call"
            self.guards.append(Guard(sources.Flag("grad"), tuple(without), None, label))
        self.pinned = frozenset(pinned)
        dropped = (entry.tensor for entry in self._entries.values() if entry.is_set)
        return LeftGradients(tuple(nodes), tuple(changed), tuple(cleared), tuple(dropped))

    def names(self, state: StateMap) -> dict[int, str]:
        """Return {id of a gradient before the call: name of its parameter}, of those that are inputs."""
        names = {}
        for entry in self._entries.values():
            if entry.before is not None and id(entry.before) in self._recorder.lifted:
                self._check(entry, state)
                names[id(entry.before)] = str(state.name_of(entry.tensor))
        return names

    def _is_untouched(self, entry: _Entry, now: torch.Tensor | None) -> bool:
        return now is entry.twin and (entry.twin is None or not self._node(entry).users)

    def _remove_input(self, entry: _Entry) -> None:
        node = self._node(entry)
        if node.users or any(v[1] is node for k, v in self._recorder.lifted.items() if k != id(entry.before)):
            return
        del self._recorder.lifted[id(entry.before)]
        self._recorder.graph.erase_node(node)

    @staticmethod
    def _check(entry: _Entry, state: StateMap) -> None:
        gradient = entry.tensor.grad
        name = state.named(entry.tensor).name
        if gradient is not None and gradient.layout is not torch.strided:
            raise CaptureError(
                f"the step leaves a sparse gradient in the parameter {name!r}",
                "Use an embedding with sparse=False.",
            )


def _parameters_of_groups(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
