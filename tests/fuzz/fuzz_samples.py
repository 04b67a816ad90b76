"""All samples of torch's operator table in training steps, eager against nn.Graph:
python tests/fuzz/fuzz_samples.py --backend inductor --seeds 0:700 --group 16

A seed is an operator of torch.testing's op_db. Each of its samples runs forward, backward and an update, with
contiguous and with strided tensors, with a weighted and with a plain sum as the loss, and in place where
torch has such a method. --group N compiles N cases in one graph; a case that differs there is repeated alone.
A case that differs is judged by float64: it is rounding if the graph is about as near to it as eager. The
exit status is 1 if any case is wrong.
"""

import argparse
import collections
import contextlib
import functools
import importlib
import random
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
from fuzz import in_child
from grouping import programs_keep_their_constants
from torch import nn
from torch.testing._internal import common_methods_invocations as samples_of_torch
from torch.utils import _pytree as pytree

import oneflow as flow
from oneflow_autotest.summary import Progress

# That import forbids torch.backends.cudnn.enabled = ... in the whole process.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
# The sampler seeds every sample alike, so that equal samples would hide a wrong one.
samples_of_torch.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

LEFT_OUT = {
    "the result is not initialized": (
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"
    ),
    "compiles a CUDA kernel": (
        "jiterator_unary jiterator_binary jiterator_binary_return_by_ref jiterator_2inputs_2outputs"
        " jiterator_4inputs_with_extra_args"
    ),
    "the sign or the basis of the result is arbitrary": (
        "linalg.eig linalg.eigh linalg.svd svd svd_lowrank pca_lowrank linalg.qr qr geqrf"
    ),
}
LEFT_OUT_NAMES = frozenset(name for names in LEFT_OUT.values() for name in names.split())
ALONE = "takes random numbers"
LAYOUTS = ("contiguous", "strided")
REDUCTIONS = ("weighted", "sum")
TOLERANCE = 1e-4  # relative to the largest element of a float32 result
AS_NEAR = 20  # how many times farther from float64 than eager a rounding error may be


@dataclass(frozen=True)
class Case:
    """One sample of an operator in one layout, with one kind of loss."""

    operator: int
    sample: int
    layout: str
    reduction: str
    in_place: bool

    def __str__(self):
        op = samples_of_torch.op_db[self.operator]
        how = f"{self.layout}, {self.reduction}{', in place' if self.in_place else ''}"
        return f"{op.full_name} sample {self.sample} ({how})"


@functools.lru_cache(maxsize=32)
def samples(operator):
    """The float32 samples of an operator, the same in every call."""
    op = samples_of_torch.op_db[operator]
    if torch.float32 not in op.supported_dtypes("cpu") or op.name in LEFT_OUT_NAMES:
        return []
    for set_seed in (torch.manual_seed, random.seed, np.random.seed):
        set_seed(operator)
    return list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))


def cases(operator):
    op = samples_of_torch.op_db[operator]
    for i, sample in enumerate(samples(operator)):
        can_write = op.inplace_variant is not None and not sample.broadcasts_input
        for in_place in (False, True) if can_write else (False,):
            for layout in LAYOUTS:
                for reduction in REDUCTIONS:
                    yield Case(operator, i, layout, reduction, in_place)


def strided(t):
    """The values in memory that is transposed, or has gaps."""
    if t.dim() > 1:
        return t.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)
    memory = t.new_zeros(2 * t.numel() + 1)
    return memory[1::2].view(t.shape).copy_(t)


class CaseModule(nn.Module):
    """A sample whose floating tensors are parameters and whose other tensors are buffers."""

    def __init__(self, case, dtype=torch.float32):
        super().__init__()
        self.case, op = case, samples_of_torch.op_db[case.operator]
        self.function = op.inplace_variant if case.in_place else op.op
        sample = samples(case.operator)[case.sample]
        self.leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        for i, t in enumerate(self.leaves):
            if not isinstance(t, torch.Tensor) or t.layout is not torch.strided:
                continue
            value = t.detach().to(dtype) if t.is_floating_point() else t.detach()
            value = (
                strided(value)
                if case.layout == "strided"
                else value.clone(memory_format=torch.contiguous_format)
            )
            if t.requires_grad and t.is_leaf:
                self.register_parameter(f"tensor{i}", nn.Parameter(value))
            else:
                self.register_buffer(f"tensor{i}", value)

    def forward(self):
        """The results, after backward of their sum."""
        leaves = [getattr(self, f"tensor{i}", t) for i, t in enumerate(self.leaves)]
        x, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        if self.case.in_place:
            x = x.clone()
        outputs = pytree.tree_leaves(self.function(x, *args, **kwargs))
        outputs = [t for t in outputs if isinstance(t, torch.Tensor) and t.layout is torch.strided]
        terms = [self.reduced(t) for t in outputs if t.requires_grad and t.numel()]
        if terms:
            sum(terms).backward()
        return outputs

    def reduced(self, t):
        t = torch.view_as_real(t) if t.is_complex() else t
        if self.case.reduction == "sum":
            return t.sum()
        return (t * torch.arange(t.numel()).view(t.shape).cos()).sum()

    def optimizer(self):
        trained = list(self.parameters())
        return torch.optim.SGD(trained, lr=1.0) if trained else None

    def values(self, outputs):
        """Results and state after the update, as copies."""
        named = {**{f"result {k}": t for k, t in enumerate(outputs)}, **dict(self.state_dict())}
        return {name: t.detach().clone() for name, t in named.items()}


class CasesGraph(flow.nn.Graph):
    def __init__(self, modules, backend):
        super().__init__()
        self.cases = nn.ModuleList(modules)
        self.config.set_backend(backend)
        for optimizer in filter(None, (m.optimizer() for m in modules)):
            self.add_optimizer(optimizer)

    def build(self, _):
        return [m() for m in self.cases]


def eager(case, dtype=torch.float32):
    """The values of a step in eager; None if torch refuses the sample, its layout or its gradient, or if a
    trained tensor gets none.
    """
    try:
        module = CaseModule(case, dtype)
        optimizer = module.optimizer()
        torch.manual_seed(0)
        outputs = module()
        if optimizer is not None:
            optimizer.step()
    except Exception:
        return None
    if optimizer is not None and all(p.grad is None for p in module.parameters()):
        return None
    return {**module.values(outputs), "random state": torch.get_rng_state()}


def is_random(values):
    return not torch.equal(values["random state"], torch.manual_seed(0).get_state())


def verdicts(group, backend):
    """(what differs, or "") of each case that eager runs; or why there is no graph. A case that takes random
    numbers needs a graph of its own, because it starts from a random state.
    """
    expected = {case: values for case in group if (values := eager(case)) is not None}
    said = {case: ALONE for case, values in expected.items() if len(group) > 1 and is_random(values)}
    expected = {case: values for case, values in expected.items() if case not in said}
    if not expected:
        return said
    modules = [CaseModule(case) for case in expected]
    apart = programs_keep_their_constants() if len(modules) > 1 else contextlib.nullcontext()
    try:
        with apart:
            torch.manual_seed(0)
            outputs = CasesGraph(modules, backend)(torch.zeros(1))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    for (case, values), module, out in zip(expected.items(), modules, outputs):
        state = {"random state": torch.get_rng_state()} if len(modules) == 1 else {}
        values = {name: v for name, v in values.items() if state or name != "random state"}
        said[case] = difference(case, values, {**module.values(out), **state}, backend)
    return said


def difference(case, expected, actual, backend):
    for name, e in expected.items():
        f = actual.get(name)
        if f is None or (e.shape, e.dtype) != (f.shape, f.dtype):
            return (
                f"{name}: {tuple(e.shape)} {e.dtype} in eager,"
                f" {f if f is None else (tuple(f.shape), f.dtype)} in the graph"
            )
        if torch.equal(e, f):
            continue
        limit = 0.0 if backend == "aten" or not (e.is_floating_point() or e.is_complex()) else TOLERANCE
        error = distance(e, f)
        if error > limit:
            exact = eager(case, torch.float64) if limit else None
            if exact is not None and distance(exact[name], f) <= AS_NEAR * distance(exact[name], e):
                continue
            return (
                f"{name}: {error:.3g} apart, {e.flatten()[:4].tolist()} in eager,"
                f" {f.flatten()[:4].tolist()} in the graph"
            )
    return ""


def distance(a, b):
    """The largest difference relative to the largest finite element; infinite if nan or infinities differ."""
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (a, b))
    a, b = a.double(), b.double()
    finite = a.isfinite()
    if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(finite, b.isfinite()):
        return float("inf")
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return float("inf")
    if not finite.any():
        return 0.0
    return ((a[finite] - b[finite]).abs().max() / a[finite].abs().max().clamp(min=1)).item()


class Run:
    def __init__(self, backend, limit):
        self.backend, self.limit = backend, limit
        self.outcomes, self.wrong, self.refused = collections.Counter(), [], collections.Counter()

    def check(self, group):
        return in_child(lambda: verdicts(group, self.backend), self.limit * (1 + len(group) / 8))

    def compare(self, group):
        said = self.check(group)
        if isinstance(said, str) and len(group) > 1:
            half = len(group) // 2
            self.compare(group[:half])
            self.compare(group[half:])
        elif isinstance(said, str):
            crashed = said.startswith(("crash", "slow"))
            self.count("wrong" if crashed else "refused", group[0], said)
        else:
            self.outcomes["not run"] += len(group) - len(said)
            for case, different in said.items():
                self.judge(case, different, len(group))

    def judge(self, case, different, size):
        if not different:
            self.outcomes["equal"] += 1
            return
        alone = self.check([case]) if size > 1 else {case: different}
        if isinstance(alone, str):
            self.count("refused", case, alone)
        elif alone.get(case):
            self.count("wrong", case, alone[case])
        elif different == ALONE:
            self.outcomes["equal"] += 1
        else:
            self.count("wrong", case, f"in a group of {size} only: {different}")

    def count(self, outcome, case, said):
        self.outcomes[outcome] += 1
        print(f"{outcome}: {case}: {said}")
        print(
            f"    repeat: python tests/fuzz/fuzz_samples.py --seeds {case.operator}:{case.operator + 1}"
            f" --backend {self.backend}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", default=f"0:{len(samples_of_torch.op_db)}", help="first:end of the operators"
    )
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--group", type=int, default=16, help="cases of one graph")
    parser.add_argument(
        "--most", type=int, help="at most this many samples of an operator, chosen by its seed"
    )
    parser.add_argument("--limit", type=float, default=240, help="seconds a graph may take")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", ".*the compiled program is wrong")  # a refusal is a difference
    torch.set_num_threads(1)
    first, end = map(int, args.seeds.split(":"))
    run, waiting, deadline = Run(args.backend, args.limit), [], time.monotonic() + args.seconds
    if args.backend != "aten":  # imported once, not in every child
        importlib.import_module("torch._inductor.compile_fx")
    progress = Progress("fuzz_samples", "operators", end - first, 10)
    for operator in range(first, min(end, len(samples_of_torch.op_db))):
        if time.monotonic() > deadline:
            print(f"stopped: continue with --seeds {operator}:{end}")
            break
        chosen = list(cases(operator))
        if args.most is not None:
            chosen = random.Random(operator).sample(chosen, min(args.most, len(chosen)))
        waiting += chosen
        while len(waiting) >= args.group:
            run.compare(waiting[: args.group])
            waiting = waiting[args.group :]
        progress.add()
    if waiting:
        run.compare(waiting)
    total = sum(run.outcomes.values())
    print(f"{total} cases: " + ", ".join(f"{count} {name}" for name, count in sorted(run.outcomes.items())))
    return 1 if run.outcomes["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
