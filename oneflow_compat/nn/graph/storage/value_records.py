"""Python values as dicts of tensors: graph.state_dict() holds nothing else, as in OneFlow.

    record = {"json": uint8 tensor with the text, "0": first tensor of the value, "1": ...}

Text may come from a stranger's file, so reading it makes only numbers, texts, None, lists, tuples, dicts and
Counters.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


_PLAIN = (type(None), bool, int, float, str)


class NotRecordable(TypeError):
    """The value holds an object other than numbers, texts, containers and tensors."""


def record(value: Any) -> dict[str, torch.Tensor]:
    """Return the dict of tensors for a value."""
    tensors: list[torch.Tensor] = []
    encoded = json.dumps(_encode(value, tensors))
    return {
        "json": torch.frombuffer(bytearray(encoded.encode()), dtype=torch.uint8),
        **{str(i): t for i, t in enumerate(tensors)},
    }


def is_record(entries: Mapping[str, Any]) -> bool:
    """Return True if a dict of a state dict is a record. States of earlier releases hold the values
    themselves.
    """
    encoded = entries.get("json")
    return getattr(encoded, "dtype", None) in (torch.uint8, "uint8") and getattr(encoded, "ndim", None) == 1


def value_of(entries: Mapping[str, Any]) -> Any:
    """Return the value of a record; raise ValueError if the record is damaged."""
    try:
        encoded = bytes(torch.as_tensor(entries["json"]).cpu().tolist()).decode()
        return _decode(json.loads(encoded), entries)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the record cannot be read ({type(error).__name__}: {error}); it is no record that state_dict()"
            " made"
        ) from None


def _encode(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(value, _PLAIN):
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a NumPy scalar
        return value.item()
    if isinstance(value, (list, tuple)):
        parts = [_encode(v, tensors) for v in value]
        return parts if isinstance(value, list) else {"tuple": parts}
    if isinstance(value, dict):
        return {
            "Counter" if isinstance(value, Counter) else "dict": [
                [_encode(k, tensors), _encode(v, tensors)] for k, v in value.items()
            ]
        }
    raise NotRecordable(type(value).__name__)


def _decode(value: Any, entries: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_decode(v, entries) for v in value]
    if not isinstance(value, dict):
        return value
    [(tag, content)] = value.items()
    if tag == "tensor":
        return torch.as_tensor(entries[content]).clone()
    if tag == "tuple":
        return tuple(_decode(v, entries) for v in content)
    if tag in ("dict", "Counter"):
        return (Counter if tag == "Counter" else dict)(
            {_decode(k, entries): _decode(v, entries) for k, v in content}
        )
    raise ValueError(f"unknown kind {tag!r}")
