"""flow.losses: name the loss of a job whose optimizer stands in its function_config."""

from __future__ import annotations

from ._context import require_trace


def add_loss(loss):
    """Add a loss; the optimizer comes from `function_config.train.*` (or a later minimize)."""
    require_trace("flow.losses.add_loss").losses.append(loss)
