"""Forward and backward compiled by torch's inductor as one graph; the update runs as fused in-place operators."""
from __future__ import annotations

import torch

from ..codegen import compile_program
from .regions import host_program, split


def compile(program, config, name="inductor"):
    """A function over the slot values."""
    module, inputs, outputs, late = split(program)
    if not any(n.op == "call_function" for n in module.graph.nodes):
        from . import aten

        return aten.compile(program, config)
    function = compile_region(module, [n.meta["tensor"] for n in inputs], config.backend_options)
    host = compile_program(host_program(program, inputs, outputs, late, function))
    guard = torch._C._AutoDispatchBelowAutograd

    def run(*values):
        keep = guard()  # noqa: F841  operators skip autograd until this dies
        return host(*values)

    run.inner = host
    return run


def compile_region(module, infos, options):
    """Compile an fx module of ATen operators that may write its inputs in place."""
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    with mode:
        examples = [torch.empty_strided(i.shape, i.stride, dtype=i.dtype, device=i.device) for i in infos]
    with torch.no_grad(), inductor_config.patch(options):
        return compile_fx(module, examples)
