"""The private attributes of a graph that clients use: its cache of programs and its variables."""

from __future__ import annotations

__all__ = ["GraphCache"]


def checked_size(size):
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"the size of a graph's cache is a whole number of at least 1, found {size!r}")
    return size


class GraphCache:
    """The programs of `base_graph`, one per input signature."""

    def __init__(self, base_graph, cache_size=10, enable_graph_shared=True):
        self._base_graph = base_graph
        self.set_cache_size(cache_size)

    def set_cache_size(self, cache_size):
        """Keep programs for up to `cache_size` input signatures."""
        self._base_graph._engine.config.cache_size = checked_size(cache_size)

    def enable_shared(self, enabled=True):
        """Accepted: every program of a graph shares the live weights already."""

    def get_graph(self, *args, **kwargs):
        """The graph that runs these arguments: the one graph, whatever they are."""
        return self._base_graph


class Variables:
    """The parameters and buffers of a graph (OneFlow: of its runtime)."""

    def __init__(self, graph):
        self._graph = graph

    def get_runtime_var_states(self):
        """(names, tensors), the names as in the program."""
        states = [
            (f"{prefix}.{name}", t)
            for prefix, block in self._graph._blocks.items()
            for tensors in (block._origin.named_parameters(), block._origin.named_buffers())
            for name, t in tensors
        ]
        return [name for name, _ in states], [t for _, t in states]
