"""Planted bugs of fourteen kinds, and how many of them a test with AutoTest's defaults finds: `make
mutants`.
"""
