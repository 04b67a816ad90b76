"""Names bound to our own functions and classes.

FUNCTIONS[public namespace][module of ours] = "name name public=inner ..."
"""

FUNCTIONS = {
    "oneflow": {
        "_ops.core": "device set_dialect get_dialect is_tensor",
    },
}
