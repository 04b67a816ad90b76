"""api_attrs_and_type: {setter of a runtime knob: (its field of the session's resource config, its type)}.

A field is a name, or a chain of names: ["collective_boxing_conf", "enable_fusion"]. The values are
those of the knobs, which are remembered without effect (`_knobs`); `resource()` reads them.
"""

import importlib
import types
from collections.abc import Callable, Sequence
from typing import Any

from ... import _knobs
from ..._tables.knobs import KNOBS

_FIELDS = {
    "backends.cudnn.set_reserved_mem_mbytes": "reserved_device_mem_mbyte",
    "backends.cudnn.enable_fused_normalization_add_relu": [
        "cudnn_conf",
        "enable_cudnn_fused_normalization_add_relu",
    ],
    "backends.cudnn.enable_conv_heuristic_search_algo": ["cudnn_conf", "cudnn_conv_heuristic_search_algo"],
    "boxing.enable_fusion": ["collective_boxing_conf", "enable_fusion"],
    "boxing.nccl.enable_use_compute_stream": "nccl_use_compute_stream",
    "boxing.nccl.disable_group_boxing_by_dst_parallel": "disable_group_boxing_by_dst_parallel",
    "boxing.nccl.set_stream_num": ["collective_boxing_conf", "nccl_num_streams"],
    "boxing.nccl.set_fusion_threshold_mbytes": ["collective_boxing_conf", "nccl_fusion_threshold_mb"],
    "boxing.nccl.enable_use_buffer_to_fuse_all_reduce": [
        "collective_boxing_conf",
        "nccl_fusion_all_reduce_use_buffer",
    ],
    "boxing.nccl.allow_fuse_all_reduce": ["collective_boxing_conf", "nccl_fusion_all_reduce"],
    "boxing.nccl.allow_fuse_reduce_scatter": ["collective_boxing_conf", "nccl_fusion_reduce_scatter"],
    "boxing.nccl.allow_fuse_all_gather": ["collective_boxing_conf", "nccl_fusion_all_gather"],
    "boxing.nccl.allow_fuse_reduce": ["collective_boxing_conf", "nccl_fusion_reduce"],
    "boxing.nccl.allow_fuse_broadcast": ["collective_boxing_conf", "nccl_fusion_broadcast"],
    "boxing.nccl.set_fusion_max_ops_num": ["collective_boxing_conf", "nccl_fusion_max_ops"],
    "boxing.nccl.enable_all_to_all": ["collective_boxing_conf", "nccl_enable_all_to_all"],
    "boxing.nccl.allow_fuse_mixed_ops": ["collective_boxing_conf", "nccl_enable_mixed_fusion"],
}


def _setter(path: str) -> Callable[[Any], None]:
    module, _, name = path.rpartition(".")
    setter: Callable[[Any], None] = getattr(importlib.import_module(f"....{module}", __name__), name)
    return setter


api_attrs_and_type = {_setter(path): (field, KNOBS[path][1]) for path, field in _FIELDS.items()}


def resource() -> types.SimpleNamespace:
    """The current values by field: resource().collective_boxing_conf.enable_fusion."""
    out = types.SimpleNamespace()
    for path, field in _FIELDS.items():
        *owners, last = [field] if isinstance(field, str) else field
        owner = out
        for name in owners:
            owner.__dict__.setdefault(name, types.SimpleNamespace())
            owner = getattr(owner, name)
        setattr(owner, last, _knobs.read(path))
    return out


def set_resource(values: object) -> None:
    """Set each knob whose field `values` has.

    `values` is an object with all or some of the attributes of `resource()`.
    """
    for path, field in _FIELDS.items():
        try:
            value = get_nested_attribute(values, field)
        except AttributeError:
            continue
        _setter(path)(value)


# --------------------------------------------------------------------------- oneflow.framework.attr_util
def get_nested_attribute(owning_object: object, attrs_chain: str | Sequence[str]) -> Any:
    """The value at the end of a chain of attribute names.

    ["a", "b"] gives owning_object.a.b, and "a" gives owning_object.a.
    """
    for name in [attrs_chain] if isinstance(attrs_chain, str) else attrs_chain:
        owning_object = getattr(owning_object, name)
    return owning_object


def SetProtoMessageAttribute(message: object, attr_name: str, value: object) -> None:
    """message.attr_name = value."""
    setattr(message, attr_name, value)
