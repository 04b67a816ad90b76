"""oneflow.nn.graph: class Graph, its config and its blocks. The engine is `oneflow._graph`."""

from ... import _bind
from .graph import Graph
from .graph_block import GraphModule, GraphTensor
from .proxy import Proxy

Block = Proxy

__all__ = ["Block", "Graph", "GraphModule", "GraphTensor", "Proxy"]

__getattr__, __dir__ = _bind.fall_through(__name__, None)
