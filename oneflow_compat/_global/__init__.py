"""Placement and SBP: the value objects, and global tensors on one rank.

Several ranks (torch DTensor) come with their own piece of work; asking for them raises
UnsupportedError naming the row `global-multi-rank`.
"""
