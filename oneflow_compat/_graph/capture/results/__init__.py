"""The symbolic results of operators, without running them. `fake_results.py` is the entry."""
