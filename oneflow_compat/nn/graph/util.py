"""Deep path of the argument tree."""
from ...framework.args_tree import ArgsTree, NamedArg

__all__ = ["ArgsTree", "NamedArg"]
