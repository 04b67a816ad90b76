"""Readers and decoders inside nn.Graph's build().

Readers and decoders are not tensor operators, so build() sees placeholders for their results. Each tensor at
the end of a chain becomes one operator of the program, `oneflow_data.pull`, which runs the chain for the next
batch. The first run uses the batch that the capture read. If the program of a capture never runs, the next
caller of a stage gets what the capture read: another capture, or a call in eager mode.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from .._active import STATE, capturing, outside_capture
from .._errors import difference_hint
from .._global.tensor import make_global, memory_of
from .buffers import _Batch

# a site lives as long as its stage
_sites: weakref.WeakValueDictionary[int, Site] = weakref.WeakValueDictionary()
# Nodes that each stage gave to captures. A refused capture would undo an attribute of the stage.
_nodes: weakref.WeakKeyDictionary[Stage, list[Node]] = weakref.WeakKeyDictionary()
_site_ids = itertools.count()


class Reading:
    """What one capture read."""

    used = False  # whether its program has run


_readings: weakref.WeakKeyDictionary[Any, Reading] = weakref.WeakKeyDictionary()  # {recorder: its reading}


class Link:
    """Output `index` of a stage (None: its result)."""

    def __init__(self, node: Node, index: int | None = None) -> None:
        self.node, self.index = node, index

    def at(self, tick: int) -> Any:
        value = self.node.at(tick)
        return value if self.index is None else value[self.index]


class Node:
    """A stage and the links to its arguments. It runs once per tick."""

    def __init__(self, stage: Stage, args: list[Any], kwargs: dict[str, Any], reading: Reading) -> None:
        self.stage, self.args, self.kwargs, self.reading = weakref.ref(stage), args, kwargs, reading
        self.tick, self.value = -1, None
        self.values_of_args: tuple[list[Any], dict[str, Any]] = [], {}
        self.sites: list[Site] = []

    def at(self, tick: int) -> Any:
        if self.tick != tick:
            get = lambda a: a.at(tick) if isinstance(a, Link) else a
            self.values_of_args = list(map(get, self.args)), {k: get(v) for k, v in self.kwargs.items()}
            stage = self.stage()
            assert stage is not None, "a program that reads keeps its modules"
            self.value = next_value(stage, *self.values_of_args, self.reading)
            self.tick = tick
        return self.value

    def gives_up(self, reading: Reading | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether its program has not run, and what it read for these arguments is for `reading`."""
        if self.tick != 0 or self.reading.used or self.reading is reading:
            return False
        mine, named = self.values_of_args
        return (
            len(mine) == len(args)
            and all(map(operator.is_, mine, args))
            and named.keys() == kwargs.keys()
            and all(named[name] is kwargs[name] for name in named)
        )

    def take(self) -> Any:
        """Give what it read to another; a run of its own program would read anew."""
        value, self.tick, self.value, self.values_of_args = self.value, -1, None, ([], {})
        return value


class Site:
    """One operator in a program. It counts its own calls."""

    def __init__(self, link: Link, example: torch.Tensor) -> None:
        example = memory_of(example)
        self.link, self.shape, self.dtype, self.tick = link, example.shape, example.dtype, 0
        self.device = example.device

    def pull(self) -> torch.Tensor:
        self.link.node.reading.used = True
        tick, self.tick = self.tick, self.tick + 1
        return memory_of(self.link.at(tick))

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)


class Promised(_Batch):
    """The result of a stage when the program runs: a batch of records or images."""

    def __init__(self, link: Link, example: _Batch) -> None:
        self.link, self.shape, self.dtype = link, example.shape, example.dtype
        self.source = getattr(example, "source", None)

    cells = property(lambda self: self._not_here())

    def _not_here(self) -> NoReturn:
        raise RuntimeError(
            "inside nn.Graph.build() records and images have no values; give them to OFRecord decoders and"
            " nn.image modules"
        )


def _operators() -> Any:
    """Return the operator; define it at the first use."""
    space = torch.ops.oneflow_data
    if not hasattr(space, "pull"):
        pull = torch.library.custom_op(
            "oneflow_data::pull",
            lambda turn, site: _sites[site].pull().detach(),
            mutates_args=(),
            schema="(Tensor turn, int site) -> Tensor",
        )
        pull.register_fake(lambda turn, site: _sites[site].empty())
    return space.pull


_turn = None  # an input of the program, so that no pass folds the operator to a constant


def call_in_graph(stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the outputs of a stage called inside build()."""

    def link(value: Any) -> Any:
        if isinstance(value, Promised):
            return value.link
        if isinstance(value, torch.Tensor):
            value_link = getattr(value, "_of_link", None)
            if value_link is None:
                raise NotImplementedError(
                    f"{type(stage).__name__} inside nn.Graph.build(): it takes what a reader, decoder or"
                    " CoinFlip gave, unchanged; found another tensor"
                    f" {difference_hint('reader-in-graph')}. Call it in the training loop instead."
                )
            return value_link
        return value

    reading = _readings.setdefault(STATE.recorder, Reading())
    node = Node(stage, [link(a) for a in args], {k: link(v) for k, v in kwargs.items()}, reading)
    _nodes.setdefault(stage, []).append(node)
    with outside_capture():
        example = node.at(0)
    if isinstance(example, (tuple, list)):
        return type(example)(_promise(Link(node, i), e) for i, e in enumerate(example))
    return _promise(Link(node), example)


def _promise(link: Link, example: Any) -> Any:
    global _turn
    if isinstance(example, _Batch):
        return Promised(link, example)
    if not isinstance(example, torch.Tensor):
        return example
    if _turn is None:
        with outside_capture():
            _turn = torch.zeros(1)
    site_id, site = next(_site_ids), Site(link, example)
    _sites[site_id] = site
    link.node.sites.append(site)
    out = _operators()(_turn, site_id)
    placement = getattr(example, "_of_placement", None)
    if placement is not None:
        out = make_global(out, placement, getattr(example, "_of_sbp", None), shape=example.shape)
    out._of_link = link
    return out


class Stage(torch.nn.Module):
    """Base of the modules that read, decode and change records and images."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if capturing():
            return call_in_graph(self, args, kwargs)
        return next_value(self, args, kwargs, None)


def next_value(stage: Stage, args: Sequence[Any], kwargs: Mapping[str, Any], reading: Reading | None) -> Any:
    """Return what a capture whose program did not run has read for these arguments, or the next result.

    `reading`: of the capture that asks.
    """
    for node in _nodes.get(stage, ()):
        if node.gives_up(reading, args, kwargs):
            return node.take()
    return torch.nn.Module.__call__(stage, *args, **kwargs)
