"""Graphs in these tests run on the aten backend unless they choose one: instant start, the reference numbers."""
import os

os.environ.setdefault("ONEFLOW_GRAPH_BACKEND", "aten")
