"""Engine: finds or makes the program for the arguments, feeds it live tensors, hands back its outputs."""
from __future__ import annotations

import inspect
import time
from collections import OrderedDict

import torch
import torch.utils._pytree as pytree

from .backends import compiler_for, default_backend
from .binding import Binding
from .config import Config


class Engine:
    """See the package docstring. Not thread-safe; one call at a time."""

    def __init__(self, build, *, modules=None, tensors=None, optimizers=(), grad_scaler=None, recompute=(), config=None, name="graph"):
        self.build = build
        self.modules = {} if modules is None else modules
        self.tensors = {} if tensors is None else tensors
        self.optimizers = optimizers
        self.grad_scaler = grad_scaler
        self.recompute = recompute
        self.config = config or Config()
        self.name = name
        self.arg_names = _positional_names(build)
        self._entries: OrderedDict = OrderedDict()  # signature -> Binding
        self._last = None

    # -- public -----------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        entry = self._entries.get(signature(args, kwargs))
        if entry is None:
            entry = self._make(args, kwargs)
        elif entry is not self._last:
            self._entries.move_to_end(entry.key)
            self._last = entry
        return entry(args, kwargs)

    def compile(self, *args, **kwargs):
        """Capture and compile for these arguments without running. Returns the Program."""
        entry = self._entries.get(signature(args, kwargs)) or self._make(args, kwargs)
        return entry.program

    @property
    def program(self):
        return self._last.program if self._last is not None else None

    @property
    def programs(self):
        return [e.program for e in self._entries.values()]

    @property
    def backend(self) -> str:
        return self.config.backend or default_backend()

    def forget(self):
        """Drop every captured program; the next call captures anew."""
        self._entries.clear()
        self._last = None

    # -- making -------------------------------------------------------------------
    def _make(self, args, kwargs):
        from . import passes
        from .capture import Capture

        key = signature(args, kwargs)
        config = self.config
        backend = self.backend
        compiler = compiler_for(backend)
        start = time.perf_counter()
        capture = Capture(self, args, kwargs)
        program = capture.run()
        self._report("capture", start, program)
        program = program.with_(history=(("capture", time.perf_counter() - start, program.count()),))
        if config.check:
            program.check()
        program = passes.run(program, config, config.on_stage)
        start = time.perf_counter()
        run = compiler(program, config)
        self._report(f"compile {backend}", start, program)
        program = program.with_(history=program.history + ((f"compile {backend}", time.perf_counter() - start, program.count()),))
        entry = Binding(self, key, program, run, capture)
        self._entries[key] = entry
        while len(self._entries) > max(1, config.cache_size):
            self._entries.popitem(last=False)
        self._last = entry
        return entry

    def _report(self, stage, start, program):
        if self.config.on_stage is not None:
            self.config.on_stage(stage, time.perf_counter() - start, program)


def _positional_names(build):
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _leaf_key(leaf):
    if isinstance(leaf, torch.Tensor):
        if leaf.layout is torch.strided:
            return (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
        return (leaf.shape, leaf.layout, leaf.dtype, leaf.device, leaf.requires_grad)
    return (type(leaf), leaf)


def signature(args, kwargs):
    """What decides which program serves a call: structure, tensor metadata, values of python arguments."""
    if not kwargs:
        key = []
        for a in args:
            if isinstance(a, torch.Tensor):
                key.append((a.shape, a.stride(), a.dtype, a.device, a.requires_grad) if a.layout is torch.strided else _leaf_key(a))
            elif type(a) in (int, float, bool, str, type(None)):
                key.append((type(a), a))
            else:
                break
        else:
            return tuple(key)
    flat, spec = pytree.tree_flatten((args, kwargs))
    try:
        key = (spec, *map(_leaf_key, flat))
        hash(key)
        return key
    except TypeError:
        return (str(spec), *(_leaf_key(x) if isinstance(x, torch.Tensor) else (type(x), repr(x)) for x in flat))
