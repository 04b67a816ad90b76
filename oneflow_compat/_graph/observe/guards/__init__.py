"""Guards of Python values, and the tests that run before each call. `python_guards.py` is the entry."""
