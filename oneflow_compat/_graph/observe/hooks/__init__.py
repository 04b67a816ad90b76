"""The hooks of instrumented code: each makes the guards of what was read. `reads.py` is the entry."""
