"""Compilers of other packages, for inference programs: openvino, torch_tensorrt, torch_xla.

They compile the weights in. The version counter of a weight tells that it changed; the program is then
compiled again. Each package is imported only here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..._errors import OneFlowError
from ..config import Config
from ..program.codegen import compile_program
from ..program.program import CompiledFunction, Program
from .inductor.compiler import subject_of
from .inductor.regions import host_program, split
from .proof import proved
from .undo import with_undo

Compiled = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
# (module, example inputs, options of the backend) -> the function over a list of inputs
Compiler = Callable[[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]], Compiled]

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from ..program.tensor_info import TensorInfo


def compile(program: Program, config: Config, name: str) -> CompiledFunction:
    """Return a function over the slot values."""
    if program.training:
        raise OneFlowError(
            f"graph backend {name!r} compiles inference graphs only; program {program.name} trains. Use the"
            " backend 'inductor' or 'aten'"
        )
    region, inputs, outputs, late = split(program)
    subject = replace(subject_of(program.name, region, config), compile_prefix=None)
    module = torch.fx.GraphModule(region, region.graph)
    slots = dict(zip(program.placeholders, program.slots))
    infos = [n.meta["tensor"] for n in inputs]
    fixed = [i for i, node in enumerate(inputs) if slots[node].role != "arg"]
    recompiled = _Recompiled(module, infos, fixed, _COMPILERS[name], config.backend_options)
    compiled = proved(recompiled.called, subject)
    host = compile_program(with_undo(host_program(program, inputs, outputs, late, compiled)))

    def run(*values: Any) -> Sequence[Any]:
        with torch.no_grad():
            return host(*values)

    return run


class _Recompiled:
    """A compiled region that is recompiled after a weight was written or moved."""

    def __init__(
        self,
        module: GraphModule,
        infos: list[TensorInfo],
        fixed: list[int],
        compiler: Compiler,
        options: dict[str, Any],
    ) -> None:
        self.module, self.infos, self.fixed = module, infos, fixed
        self.compiler, self.options = compiler, options
        self.versions: list[tuple[int, int]] | None = None

    def called(self, *values: torch.Tensor) -> list[torch.Tensor]:
        versions = [(values[i]._version, values[i].data_ptr()) for i in self.fixed]
        if versions != self.versions:
            weights = {i: values[i].detach() for i in self.fixed}
            arguments = [info for i, info in enumerate(self.infos) if i not in weights]
            examples = tuple(_zeros(info) for info in arguments)
            self.call = self.compiler(_Fixed(self.module, weights, len(self.infos)), examples, self.options)
            self.versions = versions
        return self.call([v for i, v in enumerate(values) if i not in self.fixed])


def _zeros(info: TensorInfo) -> torch.Tensor:
    shape: Any = info.shape
    return torch.zeros(shape, dtype=info.dtype, device=info.device)


class _Fixed(torch.nn.Module):
    """The region as a module of its arguments, with the weights inside."""

    def __init__(self, module: GraphModule, weights: dict[int, torch.Tensor], count: int) -> None:
        super().__init__()
        self.inner, self.count = module, count
        for i, weight in weights.items():
            self.register_buffer(f"w{i}", weight)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = iter(args)
        values = [getattr(self, f"w{i}") if hasattr(self, f"w{i}") else next(rest) for i in range(self.count)]
        return tuple(self.inner(*values))


def _exported(module: torch.nn.Module, examples: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module, examples)


@functools.cache
def _core() -> Any:
    """Return the single OpenVINO runtime of this process, which is never released.

    OpenVINO's CPU plugin gives the thread that loads it a signal stack. If another thread unloads the plugin,
    that stack is freed but stays registered, and the next signal would end the process.
    """
    import openvino

    return openvino.Core()


def _openvino(
    module: torch.nn.Module, examples: tuple[torch.Tensor, ...], options: dict[str, Any]
) -> Compiled:
    import openvino

    model = openvino.convert_model(_exported(module, examples))
    model.reshape({i: openvino.PartialShape(list(e.shape)) for i, e in enumerate(examples)})
    compiled = _core().compile_model(
        model, options.get("device", "CPU"), {"INFERENCE_PRECISION_HINT": "f32", **options.get("config", {})}
    )

    def call(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = compiled([v.detach().contiguous().numpy() for v in values])
        return [torch.from_numpy(outputs[i].copy()) for i in range(len(compiled.outputs))]

    return call


def _tensorrt(
    module: torch.nn.Module, examples: tuple[torch.Tensor, ...], options: dict[str, Any]
) -> Compiled:
    import torch_tensorrt

    compiled = torch_tensorrt.dynamo.compile(_exported(module, examples), inputs=list(examples), **options)
    return lambda values: list(compiled(*values))


def _xla(module: torch.nn.Module, examples: tuple[torch.Tensor, ...], options: dict[str, Any]) -> Compiled:
    import torch_xla.core.xla_model as xla

    device = xla.xla_device()
    moved = module.to(device)

    def call(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        outputs = moved(*(v.to(device) for v in values))
        xla.mark_step()
        return [f.cpu() for f in outputs]

    return call


_COMPILERS = {"openvino": _openvino, "tensorrt": _tensorrt, "xla": _xla}
