"""The child process of background.py: compiles the region that its parent describes on stdin.

The binary goes into the program cache. The exit code is 0 if it is there; otherwise the last line on stderr
says why not.
"""

import ast
import json
import os
import signal
import sys
import threading
from typing import Any

import torch

from ..config import Config
from . import program_cache
from .inductor.compiler import compile_region, subject_of
from .inductor.lstm import is_layer
from .notices import Announcement
from .program_cache.region_record import decode_guards, module_of, region_of_nodes
from .program_cache.store import default_store
from .proof import proof_of_call, records
from .proof.transfer import read_inputs

_NICE = 5  # the training loop goes first


def main() -> None:
    document = json.load(sys.stdin)
    os.nice(_NICE)
    threading.Thread(target=_end_with_parent, args=(document["parent"],), daemon=True).start()
    _apply(document["environment"])
    region, infos, options = module_of(document["record"])
    request = program_cache.request_for(region, infos, options)
    requested = program_cache.Request(document["record"], document["environment"])
    if request is None or request.keys != requested.keys:
        sys.exit(f"the child process differs from its parent: {_differences(request, requested)}")
    with Announcement(document["name"], 0) as notice:
        compile_region(region, infos, options, notice, request)
    store = default_store()
    if store is None or program_cache.find(request, store) is None:
        sys.exit("inductor made no library that the program cache can keep")
    if "proof" in document:
        _prove(request, document["name"], options, document["proof"])


def _prove(
    request: program_cache.Request, name: str, options: dict[str, Any], document: dict[str, Any]
) -> None:
    """Compare the binary with the captured operators, on the inputs of a call, and keep the proof."""
    region = region_of_nodes(document["captured"])
    region.guards = decode_guards(request.record["guards"])
    function: Any = program_cache.load(request)
    inputs = read_inputs(document["inputs"], document["layouts"])
    reads_gradient_mode = any(is_layer(n.target) for n in region.graph.nodes)
    guard = torch._C._AutoDispatchBelowAutograd()  # the same guard as in call_wrapper.runner
    with torch.set_grad_enabled(reads_gradient_mode):
        subject = subject_of(name, region, Config(backend_options=options))
        _, proof = proof_of_call(function, subject, inputs)
    del guard
    records.keep(function.library, proof)


def _end_with_parent(read_end: int) -> None:
    """Kill this process and its compilers when the parent is gone, whose end of the pipe closes then."""
    os.read(read_end, 1)
    os.killpg(0, signal.SIGKILL)


def _apply(environment: dict[str, Any]) -> None:
    """Take over the settings of the parent."""
    dtype, precision, deterministic, mkldnn, *_ = environment["settings"]
    torch.set_num_threads(environment["threads"])
    torch.set_default_dtype(getattr(torch, dtype.removeprefix("torch.")))
    torch.set_float32_matmul_precision(precision)
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.mkldnn.enabled = mkldnn
    if environment["inductor"]:
        from torch._inductor import config

        for name, value in environment["inductor"].items():
            setattr(config, name, ast.literal_eval(value))


def _differences(request: program_cache.Request | None, requested: program_cache.Request) -> str:
    if request is None:
        return "the region cannot be kept"
    names = [k for k, v in requested.environment.items() if request.environment.get(k) != v]
    return ", ".join(names) or "the region"
