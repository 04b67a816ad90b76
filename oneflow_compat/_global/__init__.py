"""Placement and SBP, and the tensors that have them.

`tensor.py` has the global tensors of one rank and the methods of all. On several ranks, `mesh.py` translates
to torch, `global_dtensor.py` has the class, `rules/` its operators, and `dtensor.py` puts them together.
`zero.py` shards optimizer state.
"""
