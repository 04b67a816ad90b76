"""torch's functions under OneFlow's argument names.

RENAMES[public namespace][name] = (torch path, parameters)
The parameters are OneFlow's, in order; `of=torch` where torch calls one otherwise, `name:default`
where the default is not torch's to tell. torch takes those after a `|` by name only; OneFlow's callers
may give them by position.
"""

RENAMES = {
    "oneflow": {
        "cat": ("torch.cat", "inputs=tensors dim:0"),
        "concat": ("torch.concat", "inputs=tensors dim:0"),
        "stack": ("torch.stack", "inputs=tensors dim:0"),
        "broadcast_to": ("torch.broadcast_to", "input shape=size"),
        "lerp": ("torch.lerp", "start=input end weight"),
        "swapaxes": ("torch.swapaxes", "input dim0=axis0 dim1=axis1"),
        "from_dlpack": ("torch.from_dlpack", "obj=ext_tensor"),
        "set_rng_state": ("torch.set_rng_state", "state=new_state"),
        "gather": ("torch.gather", "input dim index | sparse_grad:False"),
        "index_add": ("torch.index_add", "input dim index source | alpha:1"),
        "nonzero": ("torch.nonzero", "input | as_tuple:False"),
        "zero_": ("torch.zero_", "self=input"),
        "numel": ("torch.numel", "input"),
    },
}
