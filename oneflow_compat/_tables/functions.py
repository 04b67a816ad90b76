"""Names bound to our own functions and classes.

FUNCTIONS[public namespace][module of ours] = "name name public=inner ..."
"""

FUNCTIONS = {
    "oneflow": {
        "_ops.serialization": "save load",
        "_ops.core": "device set_dialect get_dialect is_tensor",
        "_ops.creation": (
            "zeros ones empty full eye arange linspace logspace zeros_like ones_like full_like empty_like empty_strided hann_window "
            "rand randn randint randint_like randn_like randperm normal tensor as_tensor new_empty new_zeros new_ones new_full "
            "from_numpy frombuffer"),
    },
}
