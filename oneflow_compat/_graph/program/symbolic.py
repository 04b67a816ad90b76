"""Numbers that each run computes from sizes, and branches on them."""

import re

import torch

aten = torch.ops.aten

_BRANCH_TAKEN_OTHERWISE = (
    "a branch of build() on a size that depends on values goes another way than in this program: branch"
)
Branch = tuple[str, int, int]  # (file, line, count of earlier branches there)
SYMBOLIC_NUMBERS = {torch.SymInt, torch.SymFloat, torch.SymBool}


def is_run_value(value: object) -> bool:
    """Whether a value of the capture differs from run to run: a tensor, or a number computed from sizes."""
    return isinstance(value, torch.Tensor) or type(value) in SYMBOLIC_NUMBERS


def branch_message(index: int, location: str) -> str:
    """Return the message of the assertion that checks a branch: its index, and its line in build()."""
    return f"{_BRANCH_TAKEN_OTHERWISE} {index}: {location}"


def branch_of_message(message: str) -> int | None:
    """Return the index of the branch in a message from `branch_message`, or None for another message."""
    match = re.search(re.escape(_BRANCH_TAKEN_OTHERWISE) + r" (\d+):", message)
    return int(match[1]) if match else None


def checks_branches(graph: torch.fx.Graph) -> bool:
    """Whether a program with this graph checks the outcome of branches on sizes."""
    return any(
        n.target is aten._assert_async.msg and branch_of_message(n.args[1]) is not None for n in graph.nodes
    )


def known_size(size: int | torch.SymInt) -> int | str:
    """Return a dimension for node.meta: its number, or the expression of an unknown size as a string."""
    if isinstance(size, int):
        return size
    value = size.node.maybe_as_int()
    return str(size.node.expr) if value is None else value
