"""class GraphInternals: private names of Graph that clients and OneFlow's own tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .job_message import program as graph_proto
from .job_message import settings as graph_job
from .multi_client_session import GetDefaultSession
from .storage import graph_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from .graph_members import GraphMembers
    from .proxy import ProxyTensor


class GraphInternals:
    """The part of Graph that OneFlow keeps private: operator lines, proxies of the state, job messages.

    `self` is the Graph.
    """

    def _operators(self: Any) -> dict[str, list[str]]:
        return (
            graph_proto.operator_lines(self.program, self._calls, self._debug.location)
            if self.program is not None
            else {}
        )

    def _shallow_repr(self: Any) -> str:
        return f"(GRAPH:{self.name}:{type(self).__name__})"

    def _ops_repr(self: Any) -> list[str]:
        """Return the OPERATOR lines of the program last run; none before the first call."""
        return [line for lines in self._operators().values() for line in lines]

    def _state(self: Any) -> Iterator[ProxyTensor]:
        """Return proxies of the parameters and buffers, module by module."""
        for block in self._blocks.values():
            for _, module in block.named_modules():
                origin = module._origin
                yield from (
                    getattr(module, n)
                    for tensors in (origin._parameters, origin._buffers)
                    for n, t in tensors.items()
                    if t is not None
                )

    _dynamic_input_graph_cache = property(lambda self: GraphCache(self, self._engine.config.cache_size))
    _c_nn_graph = property(lambda self: Variables(self))
    _debug_max_v_level = property(lambda self: max(self._debug.level, 0))
    _debug_max_py_stack_depth = property(lambda self: self._debug.depth)
    _debug_only_user_py_stack = property(lambda self: self._debug.only_user)
    _session = property(lambda self: GetDefaultSession())
    _optimization_conf_proto = property(lambda self: self._session.resource)
    _config_proto = property(lambda self: self.config.proto)
    _is_global_view = property(lambda self: graph_state.is_global(self))
    _variables_conf = property(lambda self: graph_job.variables(self))
    _graph_proto = _full_graph_proto = _compiled_graph_proto = _forward_job_proto = _full_job_proto = (
        _compiled_job_proto
    ) = property(lambda self: graph_proto.job(self))

    def _nothing_to_prepare(self) -> None:
        """Nothing is left to do: the settings are read when they are asked for."""

    _filter_states = _create_states_builder = _generate_config_proto = _nothing_to_prepare


# ------------ The private attributes of a graph that clients use: its cache of programs and its variables

__all__ = ["GraphCache"]


def checked_size(size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"the size of a graph's cache is a whole number of at least 1, found {size!r}")
    return size


class GraphCache:
    """The programs of `base_graph`, one per input signature."""

    def __init__(
        self, base_graph: GraphMembers, cache_size: int = 10, enable_graph_shared: bool = True
    ) -> None:
        self._base_graph = base_graph
        self.set_cache_size(cache_size)

    def set_cache_size(self, cache_size: int) -> None:
        """Keep programs for up to `cache_size` input signatures."""
        self._base_graph._engine.config.cache_size = checked_size(cache_size)

    def enable_shared(self, enabled: bool = True) -> None:
        """Accepted: every program of a graph shares the live weights already."""

    def get_graph(self, *args: Any, **kwargs: Any) -> GraphMembers:
        """The graph that runs these arguments: the one graph, whatever they are."""
        return self._base_graph


class Variables:
    """The parameters and buffers of a graph (OneFlow: of its runtime)."""

    def __init__(self, graph: GraphMembers) -> None:
        self._graph = graph

    def get_runtime_var_states(self) -> tuple[list[str], list[torch.Tensor]]:
        """(names, tensors), the names as in the program."""
        states = [
            (f"{prefix}.{name}", t)
            for prefix, block in self._graph._blocks.items()
            for tensors in (block._origin.named_parameters(), block._origin.named_buffers())
            for name, t in tensors
        ]
        return [name for name, _ in states], [t for _, t in states]
