"""What OneFlow's nn.Module has and torch's lacks.

MODULE[name] = (kind, "module:function", why); kind as in `_bind.add_attributes`.
"""

MODULE = {
    "to_global": ("method", "_global.module:to_global", "move every parameter and buffer to a placement"),
    "to_local": ("method", "_global.module:to_local", "every parameter and buffer becomes its local shard"),
    "to_consistent": ("method", "_global.module:to_consistent", "old name of to_global"),
}
