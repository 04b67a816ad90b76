"""What OneFlow's Tensor has and torch's lacks or refuses: the whole difference of torch.Tensor.

TENSOR[name] = (kind, "module:function", why); kind as in `_bind.add_attributes`. A row only turns
an error into a result; it never changes what correct torch code gets.
"""

_G = "_global.tensor:"

TENSOR = {
    # global tensors
    "is_global": ("property", _G + "is_global", "true for a tensor with a placement"),
    "is_local": ("property", _G + "is_local", "true for an ordinary tensor"),
    "is_consistent": ("method", _G + "is_consistent", "old name of is_global, raises as in OneFlow"),
    "placement": ("property", _G + "placement", "device type and ranks of a global tensor"),
    "sbp": ("property", _G + "sbp", "rules of a global tensor"),
    "to_global": ("method", _G + "to_global", "make global, or move"),
    "to_local": ("method", _G + "to_local", "shard of this rank"),
    "to_consistent": ("method", _G + "to_consistent", "old name of to_global, raises as in OneFlow"),
    "global_to_global": ("method", _G + "global_to_global", "to_global of a global tensor"),
    "local_to_global": ("method", _G + "local_to_global", "to_global of a local tensor"),
    "global_id": ("method", _G + "global_id", "number of a global tensor"),
    "check_meta_consistency": ("method", _G + "check_meta_consistency", "agreement over ranks"),
}
