"""flow.experimental.scope."""

from __future__ import annotations

from .._context import scope as _open

_IGNORED = {
    "pipeline_stage_id_hint": "no pipeline on one device",
    "ssp_num_stages": "no pipeline on one device",
    "ssp_stage_id": "no pipeline on one device",
    "quantization_aware_training": "fake quantization is written out with flow.quantization.*",
    "checkpointing": "activations are kept; use nn.Graph's activation checkpointing to save memory",
}


def config(**kwargs):
    """Settings of the enclosed part.

    All of them are ignored, for the reasons in `_IGNORED`; unknown ones are an error.
    """
    for name in kwargs:
        if name not in _IGNORED:
            raise ValueError(f"scope.config: unknown setting {name!r}; there are {', '.join(_IGNORED)}")
    return _open("config", kwargs)
