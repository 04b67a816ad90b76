"""Checking one case after its program has run: every result, every gradient, every buffer."""
from __future__ import annotations

import numpy as np

from . import source
from .compare import compare_gradients, compare_values
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError


def flatten_outputs(result):
    """The dual objects a test returned: one, or any nesting of sequences and dicts."""
    if result is None:
        return []
    if hasattr(type(result), "__dual__"):
        return [result]
    if isinstance(result, dict):
        return [d for v in result.values() for d in flatten_outputs(v)]
    if isinstance(result, (list, tuple)):
        return [d for v in result for d in flatten_outputs(v)]
    return []


def tensors_of(x, is_tensor):
    """The tensors in x, through sequences and dicts, in order."""
    if is_tensor(x):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return [t for e in x for t in tensors_of(e, is_tensor)]
    return []


def run_backward(case):
    """Backward from every output that requires a gradient, with the same drawn gradients on both sides."""
    pair = case.pair
    refs, cands, gradients = [], [], []
    for out in case.outputs:
        rs, cs = tensors_of(out._ref, pair.is_reference_tensor), tensors_of(out._cand, pair.is_candidate_tensor)
        for i, (r, c) in enumerate(zip(rs, cs)):
            if not r.requires_grad:
                continue
            if not c.requires_grad:
                raise Mismatch("gradient", f"output {describe(case, out)} requires a gradient in {pair.names[0]} and not in {pair.names[1]}")
            if any(r is seen for seen in refs):
                continue
            refs.append(r)
            cands.append(c)
            gradients.append(output_gradient(case, r, len(gradients)))
    if not refs:
        return
    case.output_gradients = gradients
    refused = None
    try:
        pair.reference.autograd.backward(refs, [on_device(g, r) for g, r in zip(gradients, refs)])
    except Exception as e:
        refused = e
    try:
        backward_candidate(pair, cands, gradients)
    except Exception as e:
        if refused is not None:
            raise BothDoNotSupportError(refused, e) from None
        raise Mismatch("one side raised", f"{pair.names[0]} runs backward(), {pair.names[1]} raised {type(e).__name__}: {e}") from e
    if refused is not None:
        if pair.accepts_more:
            raise PyTorchDoesNotSupportError(refused)
        raise Mismatch("one side raised", f"{pair.names[0]} raised {type(refused).__name__} in backward(): {refused}\n{pair.names[1]} runs it") from refused


def backward_candidate(pair, cands, gradients):
    given = []
    for g, c in zip(gradients, cands):
        g = pair.to_candidate(g, requires_grad=False)
        if getattr(c, "is_global", False):
            g = g.to_global(placement=c.placement, sbp=[pair.candidate.sbp.broadcast] * len(c.sbp))
        elif hasattr(g, "to"):
            g = g.to(c.device)
        given.append(g.to(c.dtype))
    autograd = getattr(pair.candidate, "autograd", None)
    if len(cands) == 1 or not hasattr(autograd, "backward"):
        for c, g in zip(cands, given):
            c.backward(g)
    else:
        autograd.backward(cands, given)


def on_device(gradient, like):
    return gradient.to(device=like.device, dtype=like.dtype)


def output_gradient(case, r, number):
    """Uniform in [0, 1) by the seed of the case; ones in the simplest case or where the test asks for a plain sum."""
    import torch

    shape = tuple(r.shape)
    if not case.options.check_grad_use_random_data or case.seed < source.SIMPLE:
        return torch.ones(shape, dtype=r.dtype)
    rng = np.random.default_rng((case.seed, number))
    values = rng.uniform(0, 1, size=shape)
    if r.is_complex():
        values = values + 1j * rng.uniform(0, 1, size=shape)
    return torch.from_numpy(np.asarray(values)).to(r.dtype)


def describe(case, dual):
    from .script import name_of

    return name_of(case, dual)


def check_results(case, upto=None):
    """Every tensor the program made, in program order, so that the earliest difference is the one reported."""
    pair, options = case.pair, case.options
    values = options.check_allclose
    for step in case.steps[:upto]:
        out = step.out
        if out is None or step.kind == "input":
            if out is not None and values:
                compare_values(pair, out._ref, out._cand, describe(case, out), options)
            continue
        if holds_tensor(pair, out._ref) or holds_tensor(pair, out._cand):
            compare_values(pair, out._ref, out._cand, describe(case, out), options, check_values=values)


def holds_tensor(pair, x):
    if pair.is_reference_tensor(x) or pair.is_candidate_tensor(x):
        return True
    return isinstance(x, (tuple, list)) and any(holds_tensor(pair, e) for e in x)


def check_outputs(case):
    """What the test returned, numbers and other plain values included."""
    for out in case.outputs:
        if not holds_tensor(case.pair, out._ref) or out._step is None:
            compare_values(case.pair, out._ref, out._cand, describe(case, out), case.options, check_values=case.options.check_allclose)


def taken_by_hand(case):
    """Tensors that have a gradient on the candidate's side only, where the test never called backward of a dual object: it used `x.oneflow`."""
    if any(step.kind == "call" and step.target._path.rpartition(".")[2] in ("backward", "grad") for step in case.steps):
        return set()
    outs = [step.out for step in case.steps if step.out is not None and case.pair.is_reference_tensor(step.out._ref) and step.out._ref.is_leaf]
    return {id(out._ref) for out in outs if out._ref.grad is None and getattr(out._cand, "grad", None) is not None}


def check_gradients(case, seen):
    pair, options = case.pair, case.options
    for step in case.steps:
        out = step.out
        if out is not None and pair.is_reference_tensor(out._ref) and id(out._ref) not in seen:
            seen.add(id(out._ref))
            if out._ref.is_leaf or out._ref.retains_grad:
                compare_gradients(pair, out._ref, out._cand, describe(case, out), options, check_values=options.check_allclose)


def check_modules(case):
    """Parameters, their gradients, and buffers (the running statistics that a forward changes)."""
    pair, options = case.pair, case.options
    for module in case.modules:
        theirs = dict(module._cand.named_parameters())
        for name, r in module._ref.named_parameters():
            if name not in theirs:
                continue  # warned about when the module was made
            what = f"parameter {name} of {describe(case, module)}"
            compare_gradients(pair, r, theirs[name], what, options, check_values=options.check_allclose)
            compare_values(pair, r, theirs[name], what, options, check_values=options.check_allclose)
    for module in case.modules:
        theirs = dict(module._cand.named_buffers())
        for name, r in module._ref.named_buffers():
            if name in theirs:
                try:
                    compare_values(pair, r, theirs[name], f"buffer {name} of {describe(case, module)}", options, check_values=options.check_allclose)
                except Mismatch as e:
                    raise Mismatch("buffers", str(e)) from None


def check(case):
    """All checks of the two eager sides, in order."""
    check_results(case)
    check_outputs(case)
    by_hand = taken_by_hand(case)
    if case.options.auto_backward:
        run_backward(case)
    check_gradients(case, by_hand)
    check_modules(case)
