"""A CUDA graph around the compiled forward and backward of a program: one launch per step.

Arguments are copied into fixed buffers. Parameters, buffers and free tensors are read in place, so the region
is recorded again when one of them has moved. From then on, one that the region only reads is copied as well:
build() may bind another tensor in each call. The update runs outside, because a recording would freeze its
learning rate and step counters, which are Python numbers. The generator advances as in ordinary CUDA graph
replay.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

import torch

from ..config import Config
from ..errors import ProgramError
from ..program.program import CompiledFunction, Program, roots, written_args
from ..program.random_functions import replays_random_numbers
from . import BACKENDS
from .call_wrapper import runner
from .inductor.compiler import compile_region, subject_of
from .inductor.regions import host_program, split
from .notices import Announcement
from .proof import proved

_WARM_UPS = 2


def compile(program: Program, config: Config, name: str) -> CompiledFunction:
    """Return a function over the slot values; `name` is the backend that compiles the recorded region."""
    if not any(getattr(s.device, "type", None) == "cuda" for s in program.slots):
        raise ProgramError(
            f"program {program.name}: enable_cudagraph needs CUDA tensors, all inputs are on the CPU"
        )
    if replays_random_numbers(program.graph):
        warnings.warn(
            f"graph {program.name}: enable_cudagraph is left out, its build() reads or sets the state of a"
            " random generator",
            stacklevel=6,
        )
        run: CompiledFunction = import_module(f"{__package__}.{BACKENDS[name][0]}").compile(
            program, config, name
        )
        return run
    module, inputs, outputs, late = split(program)
    slots = dict(zip(program.placeholders, program.slots))
    copied = [i for i, node in enumerate(inputs) if slots[node].role == "arg"]
    if any(getattr(slots[n].device, "type", None) != "cuda" for n in inputs):
        raise ProgramError(
            f"program {program.name}: enable_cudagraph needs every input of forward and backward on the GPU"
        )
    # a recorded generator advances in other steps
    subject = replace(subject_of(program.name, module, config), has_own_samplers=True, compile_prefix=None)
    if name == "inductor":
        with Announcement(program.name, sum(n.op == "call_function" for n in module.graph.nodes)) as notice:
            infos = [n.meta["tensor"] for n in inputs]
            region: CompiledFunction = compile_region(module, infos, config.backend_options, notice)
    else:
        region = torch.fx.GraphModule(module, module.graph).forward
    written = {root for node in module.graph.nodes for root in roots(written_args(node))}
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    movable = [i for i, node in enumerate(nodes) if slots[inputs[i]].role != "param" and node not in written]
    recorded = proved(Recorded(region, copied, movable), subject)
    return runner(lambda: host_program(program, inputs, outputs, late, recorded))


class Recorded:
    """Record the region at its first call, then replay it.

    Outputs are copies, since a replay writes the same memory.
    """

    __name__ = "recorded"  # torch.fx derives a node name from it

    def __init__(self, region: CompiledFunction, copied: list[int], movable: Sequence[int] = ()) -> None:
        """`copied` and `movable` are indices of inputs; a movable one is copied once it has moved."""
        self.region, self.copied, self.movable = region, set(copied), set(movable)
        self.graph: torch.cuda.CUDAGraph | None = None  # a CUDAGraph, after the first call
        self.addresses: dict[int, int] = {}  # of the inputs that are read in place

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        addresses = {i: v.data_ptr() for i, v in enumerate(values) if i not in self.copied}
        if self.graph is None or addresses != self.addresses:
            moved = {i for i in addresses if self.addresses.get(i, addresses[i]) != addresses[i]}
            self.copied |= moved & self.movable
            self._record(values, {i: addresses[i] for i in addresses.keys() - self.copied})
        for i in self.copied:
            self.inputs[i].copy_(values[i])
        self.graph.replay()
        return [o.clone() for o in self.outputs]

    def _record(self, values: tuple[torch.Tensor, ...], addresses: dict[int, int]) -> None:
        self.inputs = [v.clone() if i in self.copied else v for i, v in enumerate(values)]
        kept = [v.clone() for v in self.inputs]
        state = torch.cuda.get_rng_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self.region(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # other threads may pin memory during the recording
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.outputs = tuple(self.region(*self.inputs))
        for now, before in zip(self.inputs, kept):  # the warm-up changed running statistics
            now.copy_(before)
        torch.cuda.set_rng_state(state)
        self.addresses = addresses
