"""oneflow.framework.args_tree."""

from ..nn.graph.args_tree import ArgsTree, NamedArg  # noqa: F401
