"""What the context of OneFlow's autograd.Function has and torch's lacks.

CONTEXT[name] = (kind, "module:function", why); kind as in `_torch_attributes.add_attributes`.
"""

CONTEXT = {
    "_is_data_valid": (
        "method",
        "autograd.autograd_function:is_data_valid",
        "false once backward() has freed the saved tensors",
    ),
}
