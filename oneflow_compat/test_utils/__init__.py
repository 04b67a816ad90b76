"""Helpers that OneFlow's own tests import."""
