"""Runs the captured operators as they are, in order: instant start, the reference for the others."""
from __future__ import annotations

import torch

from ..codegen import compile_program
from .blocks import in_blocks


def compile(program, config, name="aten"):
    """A function over the slot values. Autograd is off while it runs."""
    function = compile_program(in_blocks(program, config.skip))
    guard = torch._C._AutoDispatchBelowAutograd

    def run(*values):
        keep = guard()  # operators skip autograd until this dies
        try:
            return function(*values)
        finally:
            del keep  # a traceback of an error would keep it

    run.source = function.__source__
    run.inner = function
    return run
