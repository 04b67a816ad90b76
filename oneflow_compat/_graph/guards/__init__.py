"""What a program assumes, and the tests before each call that it still holds.

A `Guard` (`sources.py`) assumes that a source holds a value, and a failed test gives a `Failure`
(`python_guards.py`). `observe/` makes guards of what build() reads, `capture/` those of values and sizes, and
the modules here those of tensors, optimizers and memory. Imports `program/` only.
"""

# The modules that other packages import.
SEAM = (
    "argument_facts",
    "call_tests",
    "conditions",
    "counters",
    "dimensions",
    "layouts",
    "memory",
    "modes",
    "optimizers",
    "places",
    "python_guards",
    "sources",
    "tensors",
    "torch_settings",
    "values",
)
