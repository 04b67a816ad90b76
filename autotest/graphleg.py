"""The program of a case once more, as one graph of the candidate (`nn.Graph`)."""
from __future__ import annotations


def graph_script(case) -> str:
    return ""


def check_graph(case):
    pass
