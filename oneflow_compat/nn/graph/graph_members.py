"""class GraphMembers: what the modules of this package use of a Graph, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..._graph import Program


class GraphMembers:
    """A Graph, as seen by the modules that graph.py imports. Only type checkers see this class."""

    build: Callable[..., Any]

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def program(self) -> Program | None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:  # set in __init__ of Graph, past its __setattr__
        raise NotImplementedError
