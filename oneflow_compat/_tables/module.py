"""Attributes of OneFlow's nn.Module and of its autograd.Function context that torch lacks.

MODULE[name] and CONTEXT[name] = (kind, "module:function", why), with the kinds of
`_torch_attributes.add_attributes`.
"""

MODULE = {
    "to_global": ("method", "_global.module:to_global", "move every parameter and buffer to a placement"),
    "to_local": ("method", "_global.module:to_local", "every parameter and buffer becomes its local shard"),
    "to_consistent": ("method", "_global.module:to_consistent", "name of to_global in OneFlow 0.5 and 0.6"),
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


CONTEXT = {
    "_is_data_valid": (
        "method",
        "autograd:_is_data_valid",
        "false once backward() has freed the saved tensors",
    ),
}
