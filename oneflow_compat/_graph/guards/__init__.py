"""What a program assumes, and the tests before each call that it still holds.

A `Guard` (`guard.py`) assumes that a source holds a value, and a failed test gives a `Failure`
(`failure.py`). `observe/` makes guards of what build() reads, `capture/` those of values and sizes, and
the modules here those of tensors, optimizers and memory. Imports `program/` only.
"""

# The modules that other packages import.
SEAM = (
    "adoption",
    "argument_facts",
    "call_tests",
    "conditions",
    "counters",
    "dimensions",
    "failure",
    "guard",
    "guard_set",
    "layouts",
    "memory",
    "modes",
    "observed",
    "optimizers",
    "places",
    "sources",
    "tensors",
    "torch_settings",
    "values",
)
