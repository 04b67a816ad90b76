"""oneflow.nn.graph: class Graph, its config and its blocks. The engine is `oneflow._graph`."""
from .graph import Graph
from .graph_block import GraphModule, GraphTensor
from .proxy import Proxy

Block = Proxy

__all__ = ["Block", "Graph", "GraphModule", "GraphTensor", "Proxy"]
