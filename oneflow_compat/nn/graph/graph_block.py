"""GraphModule, GraphTensor: the graph's view of a module or tensor, where its settings live."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING

from . import scopes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ..._global.placement import placement as Placement
    from .graph_members import GraphMembers


class _Stage:
    """Scope and pipeline stage, shared by both views."""

    name_prefix: str
    name: str
    _stage_id: int | None = None
    _stage_placement: Placement | None = None
    _activation_checkpointing: bool | None = None
    _scope: scopes.Scope | None = None

    @property
    def scope(self) -> scopes.Scope:
        """The scope of this block (a `Scope` of `oneflow.nn.graph.scopes`).

        It is inside the scope that is current when it is first asked for.
        """
        if self._scope is None:
            self._scope = scopes.Scope(
                scopes.current_scope(),
                f"{self.name_prefix}{self.name}",
                checkpointing=self._activation_checkpointing or None,
                pipeline_stage_id_hint=self._stage_id,
            )
        return self._scope

    @property
    def prev_scope(self) -> scopes.Scope | None:
        """The scope around this block's."""
        return self.scope.parent

    def scope_context(self) -> AbstractContextManager[None]:
        """Make this block's scope the current one."""
        return scopes.ScopeContext(self.scope)

    @property
    def stage_id(self) -> int | None:
        return self._stage_id

    @stage_id.setter
    def stage_id(self, value: int | None) -> None:
        _checked_stage(value)
        self._stage_id, self._scope = value, None

    @property
    def stage_placement(self) -> Placement | None:
        return self._stage_placement

    def set_stage(self, stage_id: int | None = None, placement: Placement | None = None) -> None:
        """Put this block on a stage of a pipeline.

        With several ranks, global tensors among the inputs of a module move to `placement`. If the graph also
        has micro batches, the stages run in the order of `config.pipeline_schedule`. On one rank a stage has
        no effect.

        ValueError unless the stage is a whole number from 0 on.
        """
        _checked_stage(stage_id)
        self._stage_id, self._stage_placement, self._scope = stage_id, placement, None


def _checked_stage(stage_id: object) -> None:
    if stage_id is not None and (
        isinstance(stage_id, bool) or not isinstance(stage_id, numbers.Integral) or stage_id < 0
    ):
        raise ValueError(f"a pipeline stage is a whole number from 0 on, found {stage_id!r}")


class GraphModule(_Stage):
    """Settings of a module inside a graph: `self.m.to(nn.graph.GraphModule)`, also `self.m.config`."""

    def __init__(
        self,
        prefix: str = "",
        name: str = "",
        belonged_graph: GraphMembers | None = None,
        belonged_proxy: object = None,
    ) -> None:
        self.name_prefix = prefix
        self.name = name
        self._belonged_graph = belonged_graph
        self._belonged_proxy = belonged_proxy

    def __repr__(self) -> str:
        return f"(GraphModule:{self.name_prefix}{self.name}()): ()"

    @property
    def type(self) -> str:
        """Kind of block: "MODULE"."""
        return "MODULE"

    _debug = property(lambda self: bool(self._belonged_graph._debug))
    _debug_max_v_level = property(lambda self: self._belonged_graph._debug_max_v_level)
    _debug_max_py_stack_depth = property(lambda self: self._belonged_graph._debug_max_py_stack_depth)

    def debug(
        self,
        v_level: int = 0,
        *,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        """Print details of the graph this block belongs to, as Graph.debug does."""
        assert self._belonged_graph is not None, "a block without a graph prints nothing"
        self._belonged_graph.debug(
            v_level,
            ranks=ranks,
            max_py_stack_depth=max_py_stack_depth,
            only_user_py_stack=only_user_py_stack,
            op_repr_with_py_stack=op_repr_with_py_stack,
        )

    @property
    def activation_checkpointing(self) -> bool:
        """True: what the module computes is computed again in backward instead of kept.

        Set before the first call.
        """
        return bool(self._activation_checkpointing)

    @activation_checkpointing.setter
    def activation_checkpointing(self, value: bool | None = False) -> None:
        if value not in (True, False, None):
            raise TypeError(f"activation_checkpointing is True or False, found {value!r}")
        if (
            value == self._activation_checkpointing
            or self._belonged_graph is not None
            and self._belonged_graph._fixed(f"activation_checkpointing of {self.name_prefix}{self.name}")
        ):
            return
        self._activation_checkpointing, self._scope = value, None


class GraphTensor(_Stage):
    """Settings of a parameter or buffer inside a graph."""

    def __init__(
        self,
        prefix: str = "",
        name: str = "",
        belonged_graph: GraphMembers | None = None,
        belonged_proxy: object = None,
        tensor_graph_type: str | None = None,
    ) -> None:
        self.name_prefix = prefix
        self.name = name
        self._belonged_graph = belonged_graph
        self._belonged_proxy = belonged_proxy
        self.type = tensor_graph_type
