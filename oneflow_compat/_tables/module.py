"""What OneFlow's nn.Module has and torch's lacks.

MODULE[name] = (kind, "module:function", why); kind as in `_torch_attributes.add_attributes`.
"""

MODULE = {
    "to_global": ("method", "_global.module:to_global", "move every parameter and buffer to a placement"),
    "to_local": ("method", "_global.module:to_local", "every parameter and buffer becomes its local shard"),
    "to_consistent": ("method", "_global.module:to_consistent", "old name of to_global"),
    "make_contiguous_params_group": (
        "method",
        "nn.module_methods:make_contiguous_params_group",
        "parameters packed into shared buffers",
    ),
    "to_memory_format": ("method", "nn.module_methods:to_memory_format", "layout of the parameters"),
    "load_state_dict": (
        "replace",
        "nn.module_methods:load_state_dict",
        "numpy arrays as values, which torch refuses",
    ),
}
