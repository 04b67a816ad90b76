"""Data only. `_bind.py` is the one reader."""
