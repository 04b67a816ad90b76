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
from torch.fx import Node

from ..config import Config
from ..errors import ProgramError
from ..program.program import CompiledFunction, Program, Slot, roots, written_args
from ..program.random_functions import replays_random_numbers
from . import BACKENDS
from .call_wrapper import runner
from .inductor.compiler import compile_region, subject_of
from .inductor.regions import Region, host_program, split
from .notices import Announcement
from .proof import proved

_WARM_UPS = 2


def compile(program: Program, config: Config, name: str) -> CompiledFunction:
    """Return a function over the slot values; `name` is the backend that compiles the recorded region."""
    if not any(_is_on_gpu(slot) for slot in program.slots):
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
    region, inputs, outputs, late = split(program)
    slot_of = dict(zip(program.placeholders, program.slots))
    slots = [slot_of[node] for node in inputs]
    if not all(map(_is_on_gpu, slots)):
        raise ProgramError(
            f"program {program.name}: enable_cudagraph needs every input of forward and backward on the GPU"
        )
    # a recorded generator advances in other steps
    subject = replace(subject_of(program.name, region, config), has_own_samplers=True, compile_prefix=None)
    compiled = _compiled_region(program.name, region, inputs, config, name)
    copied = [i for i, slot in enumerate(slots) if slot.role == "arg"]
    recorded = proved(Recorded(compiled, copied, _movable_inputs(region, slots)), subject)
    return runner(lambda: host_program(program, inputs, outputs, late, recorded))


def _is_on_gpu(slot: Slot) -> bool:
    return slot.device is not None and slot.device.type == "cuda"


def _compiled_region(
    program_name: str, region: Region, inputs: Sequence[Node], config: Config, name: str
) -> CompiledFunction:
    """Return forward and backward as one function of the inputs, as the backend `name` runs them."""
    if name != "inductor":
        forward: CompiledFunction = torch.fx.GraphModule(region, region.graph).forward
        return forward
    with Announcement(program_name, sum(n.op == "call_function" for n in region.graph.nodes)) as notice:
        infos = [n.meta["tensor"] for n in inputs]
        compiled: CompiledFunction = compile_region(region, infos, config.backend_options, notice)
    return compiled


def _movable_inputs(region: Region, slots: Sequence[Slot]) -> list[int]:
    """Return the indices of the inputs that a call may bind to other tensors.

    These are no parameters, and the region does not write them.
    """
    written = {root for node in region.graph.nodes for root in roots(written_args(node))}
    nodes = region.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(nodes) if slots[i].role != "param" and node not in written]


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
