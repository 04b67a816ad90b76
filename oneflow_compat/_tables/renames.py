"""torch's functions under OneFlow's argument names.

RENAMES[public namespace][name] = (torch path, parameters)
The parameters are OneFlow's, in order; `of=torch` where torch calls one otherwise, `name:default`
where the default is not torch's to tell.
"""

RENAMES = {
    "oneflow": {
        "cat": ("torch.cat", "inputs=tensors dim:0"),
        "concat": ("torch.concat", "inputs=tensors dim:0"),
        "stack": ("torch.stack", "inputs=tensors dim:0"),
    },
}
