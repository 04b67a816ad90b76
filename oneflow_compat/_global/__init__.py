"""Placement and SBP, and the tensors that have them.

`tensor.py` has the global tensors of one rank and the methods of all. On several ranks, `mesh.py` translates
to torch, `shards.py` has the arithmetic of shards, `global_dtensor.py` the class, `reading.py` its reads, and
`rules/` its operators. `dtensor.py` puts them together.
`zero.py` shards optimizer state, `stored_shards.py` parameters.
"""
