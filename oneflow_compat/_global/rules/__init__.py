"""Operators on global tensors of several ranks that DTensor lacks or computes differently."""
