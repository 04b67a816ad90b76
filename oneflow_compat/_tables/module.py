"""What OneFlow's nn.Module has and torch's lacks.

MODULE[name] = (kind, "module:function", why); kind as in `_bind.add_attributes`.
"""

MODULE = {
    "to_global": ("method", "_global.module:to_global", "move every parameter and buffer to a placement"),
    "to_local": ("method", "_global.module:to_local", "every parameter and buffer becomes its local shard"),
    "to_consistent": ("method", "_global.module:to_consistent", "old name of to_global"),
    "make_contiguous_params_group": ("method", "_ops.nn_module:make_contiguous_params_group", "parameters packed into shared buffers"),
    "to_memory_format": ("method", "_ops.nn_module:to_memory_format", "layout of the parameters"),
    "load_state_dict": ("replace", "_ops.nn_module:load_state_dict", "numpy arrays as values, which torch refuses"),
}
