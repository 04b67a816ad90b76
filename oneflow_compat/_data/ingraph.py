"""Readers and decoders inside nn.Graph's build().

They are no tensor operators, so build() sees descriptions of what they will give; each tensor at the end
of a chain is one operator of the program, `oneflow_data.pull`, which runs the chain for the batch whose
turn it is. The batch read while capturing is the one the first call gets.
"""

from __future__ import annotations

import itertools
import weakref

import torch

from .._active import capturing, outside_capture
from .._errors import difference_hint
from .._global.tensor import make_global, memory_of
from .buffers import _Batch

_sites: weakref.WeakValueDictionary[int, Site] = (
    weakref.WeakValueDictionary()
)  # kept alive by the stage they belong to
_numbers = itertools.count()


class Link:
    """Output `index` of a stage (None: the whole)."""

    def __init__(self, node, index=None):
        self.node, self.index = node, index

    def at(self, tick):
        value = self.node.at(tick)
        return value if self.index is None else value[self.index]


class Node:
    """A stage and where its arguments come from; it runs once per tick."""

    def __init__(self, stage, args, kwargs):
        self.stage, self.args, self.kwargs, self.tick, self.value, self.sites = (
            stage,
            args,
            kwargs,
            -1,
            None,
            [],
        )

    def at(self, tick):
        if self.tick != tick:
            get = lambda a: a.at(tick) if isinstance(a, Link) else a
            self.value = self.stage(*map(get, self.args), **{k: get(v) for k, v in self.kwargs.items()})
            self.tick = tick
        return self.value


class Site:
    """One operator in a program: counts its own calls."""

    def __init__(self, link, example):
        example = memory_of(example)
        self.link, self.shape, self.dtype, self.tick = link, example.shape, example.dtype, 0
        self.device = example.device

    def pull(self):
        tick, self.tick = self.tick, self.tick + 1
        return memory_of(self.link.at(tick))


class Promised(_Batch):
    """What a stage will give when the program runs: a batch of records or images."""

    def __init__(self, link, example):
        self.link, self.shape, self.dtype, self.source = (
            link,
            example.shape,
            example.dtype,
            getattr(example, "source", None),
        )

    cells = property(lambda self: self._not_here())

    def _not_here(self):
        raise RuntimeError(
            "inside nn.Graph.build() records and images have no values; give them to OFRecord decoders and"
            " nn.image modules"
        )


def _operators():
    """The operator, defined at first use."""
    space = torch.ops.oneflow_data
    if not hasattr(space, "pull"):
        pull = torch.library.custom_op(
            "oneflow_data::pull",
            lambda turn, site: _sites[site].pull().detach(),
            mutates_args=(),
            schema="(Tensor turn, int site) -> Tensor",
        )
        pull.register_fake(
            lambda turn, site: torch.empty(
                _sites[site].shape, dtype=_sites[site].dtype, device=_sites[site].device
            )
        )
    return space.pull


_turn = None  # an input of the program, so that no pass takes the operator for a constant


def call_in_graph(stage, args, kwargs):
    """The outputs of a stage called inside build()."""

    def link(value):
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

    node = Node(stage, [link(a) for a in args], {k: link(v) for k, v in kwargs.items()})
    stage.__dict__.setdefault("_graph_nodes", []).append(node)
    with outside_capture():
        example = node.at(0)
    if isinstance(example, (tuple, list)):
        return type(example)(_promise(Link(node, i), e) for i, e in enumerate(example))
    return _promise(Link(node), example)


def _promise(link, example):
    global _turn
    if isinstance(example, _Batch):
        return Promised(link, example)
    if not isinstance(example, torch.Tensor):
        return example
    if _turn is None:
        with outside_capture():
            _turn = torch.zeros(1)
    where = getattr(example, "_of_placement", None), getattr(example, "_of_sbp", None)
    site_number, site = next(_numbers), Site(link, example)
    _sites[site_number] = site
    link.node.sites.append(site)
    out = _operators()(_turn, site_number)
    if where[0] is not None:
        out = make_global(out, *where, shape=example.shape)
    out._of_link = link
    return out


class Stage(torch.nn.Module):
    """Base of the modules that read, decode and change records and images."""

    def __call__(self, *args, **kwargs):
        if capturing():
            return call_in_graph(self, args, kwargs)
        return super().__call__(*args, **kwargs)
