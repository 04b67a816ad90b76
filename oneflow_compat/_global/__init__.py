"""Placement and SBP, and the tensors that have them: `tensor.py` on one rank and the methods of all; on
several `dtensor.py`, its `operators.py`, and `zero.py`.
"""
