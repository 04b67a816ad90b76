"""Compilers of other packages, for inference programs: openvino, torch_tensorrt, torch_xla.

They take an exported program whose weights are inputs, so a changed weight is seen; each is imported only here.
"""
from __future__ import annotations

import torch

from ..._errors import OneFlowError
from .regions import split


def compile(program, config, name):
    """A function over the slot values."""
    if program.training:
        raise OneFlowError(f"graph backend {name!r} compiles inference graphs only; program {program.name} trains. Use the backend 'inductor' or 'aten'")
    module, inputs, outputs, _ = split(program)
    position = {node: i for i, node in enumerate(program.placeholders)}
    places = [position[n] for n in inputs]
    infos = [n.meta["tensor"] for n in inputs]
    returned = program.output_node.args[0]
    region = _COMPILERS[name](module, infos, config.backend_options)
    index = {node: i for i, node in enumerate(outputs)}

    def run(*values):
        with torch.no_grad():
            results = region([values[i] for i in places])
        return tuple(results[index[n]] if n in index else values[position[n]] for n in returned)

    return run


class _Flat(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = module

    def forward(self, *values):
        return tuple(self.inner(*values))


def _exported(module, infos):
    examples = tuple(torch.zeros(i.shape, dtype=i.dtype, device=i.device) for i in infos)
    with torch.no_grad():
        return torch.export.export(_Flat(module), examples), examples


def _openvino(module, infos, options):
    import openvino

    exported, examples = _exported(module, infos)
    model = openvino.convert_model(exported, example_input=examples)
    compiled = openvino.Core().compile_model(model, options.get("device", "CPU"), options.get("config", {}))

    def call(values):
        found = compiled([v.detach().contiguous().numpy() for v in values])
        return [torch.from_numpy(found[i].copy()) for i in range(len(compiled.outputs))]

    return call


def _tensorrt(module, infos, options):
    import torch_tensorrt

    exported, examples = _exported(module, infos)
    compiled = torch_tensorrt.dynamo.compile(exported, inputs=list(examples), **options)
    return lambda values: list(compiled(*values))


def _xla(module, infos, options):
    import torch_xla.core.xla_model as xla

    device = xla.xla_device()

    def call(values):
        found = module(*(v.to(device) for v in values))
        xla.mark_step()
        return [f.to(v.device) for f, v in zip(found, [values[0]] * len(found))]

    return call


_COMPILERS = {"openvino": _openvino, "tensorrt": _tensorrt, "xla": _xla}
