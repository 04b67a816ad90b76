"""The fake tensors of a graph, computed again only where inductor's passes changed them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

Storages = dict[int, Any]  # address of a storage -> the first node of a graph whose value has it


@contextlib.contextmanager
def updates_of_changed_nodes() -> Iterator[None]:
    """Let inductor's updates look at changed nodes, and at what follows from a new value.

    Inductor (2.13) collects the arguments of every node before it looks whether the node changed. A node
    without valid arguments is left as it is. Torch 2.11 looks first.

    A changed node gets a new fake tensor, with memory of its own. Inductor takes that as another value if a
    view of the old one exists, and computes again whatever is computed from it. The memory matters only to
    know which values are views of one another. If the node still makes memory, it keeps its value.
    """
    from torch._inductor import fx_utils

    updater: Any = fx_utils.FakeTensorUpdater
    update: Any = updater.incremental_update
    arguments_of: Any = fx_utils.get_fake_args_kwargs

    def update_changed(self: Any) -> Any:
        if not _has_no_subgraphs(self):
            return update(self)
        before = {node: node.meta.get("val") for node in self.gm.graph.nodes}
        hash_node = self.hash_node
        unchanged: Any = None  # the node that update() looks at, if its target and arguments are as before

        def note(node: Any) -> Any:
            nonlocal unchanged
            hashed = hash_node(node)
            unchanged = node if hashed in self.processed_hashes else None
            return hashed

        def arguments_if_changed(node: Any, *args: Any) -> Any:
            nonlocal unchanged
            is_unchanged, unchanged = node is unchanged, None
            if is_unchanged and all(n.meta.get("val") is before[n] for n in node.all_input_nodes):
                return False, (), {}
            return arguments_of(node, *args)

        with (
            mock.patch.object(self, "hash_node", note),
            mock.patch.object(fx_utils, "get_fake_args_kwargs", arguments_if_changed),
            _new_memory_is_equal(_makers(self.gm.graph)),
        ):
            return update(self)

    with mock.patch.object(updater, "incremental_update", update_changed):
        yield


@contextlib.contextmanager
def propagation_of_changes(gm: GraphModule) -> Iterator[None]:
    """Let inductor compute the fake tensors that differ from those that `gm` has now.

    Inductor computes all of them again after its first passes.
    """
    from torch._inductor import compile_fx, fx_utils
    from torch._inductor.virtualized import V

    propagate: Any = compile_fx.fake_tensor_prop
    if _comparison() is None or not all(map(_has_plain_value, gm.graph.nodes)):
        yield
        return
    updater: Any = fx_utils.FakeTensorUpdater(gm)

    def propagate_changes(module: GraphModule, examples: Sequence[Any], *args: Any) -> Any:
        if module is not gm or not _has_no_subgraphs(updater):
            return propagate(module, examples, *args)
        updater.incremental_update()
        return V.fake_mode

    with mock.patch.object(compile_fx, "fake_tensor_prop", propagate_changes):
        yield


def _has_no_subgraphs(updater: Any) -> bool:
    return _comparison() is not None and not updater.subgraph_updaters


def _comparison() -> Any:
    """Return inductor's comparison of two fake tensors, or None in torch 2.11, whose updates differ."""
    from torch._inductor import fx_utils

    return getattr(fx_utils, "_is_fake_tensor_same", None)


def _has_plain_value(node: Node) -> bool:
    """Whether updates can compare the value of a node. Those of inductor fail for sparse tensors."""
    if node.op not in ("placeholder", "call_function") or not node.users:
        return True
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return value is not None and all(t.layout == torch.strided for t in tensors)


def _makers(graph: Graph) -> Storages:
    makers: Storages = {}
    for node in graph.nodes:
        for value in _tensors(node.meta.get("val")):
            makers.setdefault(_storage(value), node)
    return makers


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for part in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(part, torch.Tensor) and torch._C._has_storage(part):
            yield part


def _storage(value: torch.Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


@contextlib.contextmanager
def _new_memory_is_equal(makers: Storages) -> Iterator[None]:
    """Let inductor take two fake tensors as the same if their node made the memory of both.

    `makers`: the first node with each memory before the update.
    """
    from torch._inductor import fx_utils

    is_same = _comparison()

    def is_same_or_new(new: Any, old: Any, storages: Any, *, node: Any = None, **options: Any) -> bool:
        if is_same(new, old, storages, node=node, **options):
            return True
        return (
            node is not None
            and isinstance(new, torch.Tensor)
            and isinstance(old, torch.Tensor)
            and new.dtype == old.dtype
            and makers.get(_storage(old)) is node
            and _storage(new) not in storages
            and _storage(new) not in makers
            and is_same(new, old, storages, **(options | {"check_storage": False}))
        )

    with mock.patch.object(fx_utils, "_is_fake_tensor_same", is_same_or_new):
        yield
