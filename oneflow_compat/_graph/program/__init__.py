"""A captured program: its graph, what each input stands for, its passes, and how it prints.

Imports torch only.
"""

# The modules that other packages import.
SEAM = (
    "captured",
    "checks",
    "codegen",
    "graph_records",
    "html_report",
    "live_numbers",
    "locations",
    "memory",
    "nested_state",
    "node_editing",
    "object_layouts",
    "object_trees",
    "operators",
    "passes",
    "passes.cleanup",
    "passes.patterns",
    "program",
    "python_values",
    "pytree",
    "random_functions",
    "recurrent_layer",
    "shared_calls",
    "shared_containers",
    "symbol_environment",
    "symbolic",
    "tensor_info",
    "writes",
)
