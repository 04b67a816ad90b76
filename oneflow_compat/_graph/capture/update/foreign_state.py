"""State that an optimizer keeps under another key than a parameter, which a program cannot have."""

from collections.abc import Iterable
from typing import Any

import torch

from ...errors import CaptureError
from ..state_map import StateMap

Aside = list[tuple[torch.optim.Optimizer, dict[Any, Any]]]


def take_foreign_state(state: StateMap) -> Aside:
    """Take values under other keys than parameters out of the state of each optimizer, and return them.

    A parameter that left both the model and the optimizer may have left its state behind.
    """
    return [
        (o, {k: o.state.pop(k) for k, v in list(o.state.items()) if _is_foreign(state, k, v)})
        for o, _ in state.optimizers
    ]


def _is_foreign(state: StateMap, key: Any, value: Any) -> bool:
    return not isinstance(value, dict) or isinstance(key, torch.Tensor) and state.name_of(key) is None


def foreign_keys_of(error: KeyError | TypeError, aside: Aside) -> list[Any]:
    """Return the keys that step() may have missed when it raised the error."""
    return list(error.args[:1]) if isinstance(error, KeyError) else [k for _, kept in aside for k in kept]


def refuse_foreign_state(state: StateMap, aside: Aside, missed: Iterable[Any] = ()) -> None:
    """Raise if step() made state under other keys than parameters, or missed a key that was taken out."""
    for optimizer, kept in aside:
        foreign_keys = [
            k
            for k, v in optimizer.state.items()
            if v and not (isinstance(k, torch.Tensor) and state.name_of(k) is not None)
        ]
        for key in (*foreign_keys, *(k for k in missed if k in kept)):
            raise CaptureError(
                f"{type(optimizer).__name__} keeps state under the key"
                f" {type(key).__name__ if isinstance(key, torch.Tensor) else key!r}, which is none of its"
                " parameters",
                "A program finds optimizer state by parameter: keep it in optimizer.state[param], or step"
                " this optimizer in eager mode.",
            )
