"""Record the results of the programs of graph_programs.py with OneFlow 0.9.0 into graph.json.

REAL_ONEFLOW_PYTHON tests/golden/record_graph.py
"""

import json
import os

import graph_programs

import oneflow as flow

recorded = {}
for name, program in graph_programs.PROGRAMS.items():
    try:
        recorded[name] = {"result": program(flow)}
    except Exception as error:
        recorded[name] = {"raises": type(error).__name__}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph.json"), "w") as file:
    file.write(
        "{"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in recorded.items())
        + "}\n"
    )
