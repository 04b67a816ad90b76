"""A failing case as a stand-alone script, which fails when it is run as long as the libraries differ.

The script needs neither this package nor pytest. It compares what the harness compares, with the same
tolerances, and holds only the helper functions that this case uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import config, script_parts
from .backward import output_gradient
from .case import Case, DualObject, Step
from .check import holds_tensor
from .oracle import narrowest_of
from .pair import tensors_of
from .printing import SourceWriter, name_of
from .replay import Replay
from .script_imports import imports
from .script_parts import (
    GRAPH,
    HELPERS,
    MAIN,
    hand_over_source,
    imported_function,
    tensor_class,
    to_torch_source,
)
from .script_promises import PROMISES, SEEDED, promise_lines
from .verdict import narrowest, of_plain_numbers, tolerance

if TYPE_CHECKING:
    import torch

    from .pair import Pair


def script(case: Case, failure: BaseException | None = None) -> str:
    """Return a program that repeats the case on both libraries and compares them without this package."""
    parts = graph_parts(case) if getattr(failure, "mode", "eager") == "graph" else eager_parts(case, failure)
    body = "\n\n".join(part.strip("\n") + "\n" for part in parts)
    helpers = needed_helpers(case, body, failure)
    program = "\n\n".join([*helpers, body])
    return f"{comment_of(failure)}{imports(case.pair, program)}\n\n\n{program}"


def comment_of(failure: BaseException | None) -> str:
    """Return the failure as a comment; one of the test's own code cannot fail in the script, and the comment
    says so.
    """
    if failure is None:
        return ""
    lines = str(failure).strip().splitlines() or [""]
    comment = f"# {lines[0]}\n" if hasattr(failure, "check") else f"# {type(failure).__name__}: {lines[0]}\n"
    if not hasattr(failure, "check") and not hasattr(failure, "failed_step"):
        comment += "# The test's own code raised this, so the script can only repeat the calls before it.\n"
    return comment


# ---------------------------------------------------------------------- helpers
def needed_helpers(case: Case, body: str, failure: BaseException | None) -> list[str]:
    """Return the helper functions that `body` uses, directly or through another helper, in the order of
    HELPERS.
    """
    pair, options = case.pair, case.options
    rtol, atol = of_plain_numbers(options.rtol, options.atol)
    values = {
        "to_torch": to_torch_source(pair),
        "hand_over": hand_over_source(pair),
        "rtol": repr(rtol),
        "atol": repr(atol),
        "tolerances": repr(tolerances_of(case) | (getattr(failure, "tolerance", None) or {})),
        "tensor_class": tensor_class(pair),
        "gradient_function": imported_function(pair.gradient_function, "grad") or "",
        "dtypes": repr({str(r): str(c) for r, c in pair.dtypes.items()}),
    }
    sources, used = {}, body
    needed = conditions(case) | ({"plain"} if hasattr(failure, "failed_step") else set())
    if getattr(failure, "check", "").endswith("device"):
        needed.add("device")
    if getattr(failure, "check", "") == "sign of zero":
        needed.add("signs")
    for name, lines in reversed(HELPERS.items()):
        if re.search(rf"\b{name}\b", used):
            sources[name] = fill(script_parts.select(lines, needed), values)
            used += sources[name]
    return [sources[name].strip("\n") + "\n" for name in HELPERS if name in sources]


def fill(template: str, values: dict[str, str]) -> str:
    """Replace <name> by its value."""
    return re.sub(r"<(\w+)>", lambda m: values[m[1]], template)


def conditions(case: Case) -> set[str]:
    """Return the conditions under which lines of a helper are needed (see script_parts)."""
    kinds = {condition for d in compared_duals(case) for condition in kinds_of(case.pair, d._ref)} | {
        condition for d in compared_duals(case) for condition in kinds_of(case.pair, d._cand)
    }
    options = case.options
    return kinds | {
        "values" if options.check_allclose else "form",
        "check_dtype" if options.check_dtype else "exact_dtype",
        "dtypes" if case.pair.dtypes else "",
        "function" if case.pair.gradient_function else "backward",
        "same_tensors" if case.pair.same_tensors else "other_tensors",
        f"errors_{options.check_errors}",
        "" if options.check_errors == "no" else "accepts_more" if case.pair.accepts_more else "same_errors",
    }


def kinds_of(pair: Pair, x: object) -> set[str]:
    if pair.is_reference_tensor(x) or pair.is_candidate_tensor(x):
        return {"tensor", "meta"} if getattr(x, "is_meta", False) else {"tensor"}
    if isinstance(x, dict):
        return {"dict"} | {condition for e in x.values() for condition in kinds_of(pair, e)}
    if isinstance(x, (tuple, list)):
        return {"sequence"} | {condition for e in x for condition in kinds_of(pair, e)}
    if type(x).__name__ in ("dtype", "device", "layout", "memory_format"):
        return {"description"}
    return {"array"} if type(x).__module__ == "numpy" and hasattr(x, "shape") else {"plain"}


def compared_duals(case: Case) -> list[DualObject]:
    """Return the dual objects that the harness compares: inputs, results that hold tensors, and returned
    plain values.
    """
    pair = case.pair
    duals = [
        s.out
        for s in case.steps
        if s.out is not None
        and (s.action == "input" or holds_tensor(pair, s.out._ref) or holds_tensor(pair, s.out._cand))
    ]
    return duals + [d for d in case.outputs if d._step is None or not holds_tensor(pair, d._ref)]


def tolerances_of(case: Case) -> dict[str, tuple[float, float]]:
    """Return {dtype: (rtol, atol)} for the dtypes of this case."""
    pair, dtypes = case.pair, []
    for dual in compared_duals(case):
        dtypes += [t.dtype for t in tensors_of(dual._ref, pair.is_reference_tensor)]
        dtypes += [pair.as_torch(t).dtype for t in tensors_of(dual._cand, pair.is_candidate_tensor)]
    for module in case.modules:
        dtypes += [t.dtype for t in (*module._ref.parameters(), *module._ref.buffers())]
    options, tolerances, on_the_way = case.options, {}, narrowest_of(case)
    for dtype in dict.fromkeys(dtypes):
        is_float = dtype.is_floating_point or dtype.is_complex
        unit = narrowest([dtype, on_the_way]) if is_float and on_the_way is not None else None
        tolerances[str(dtype)] = tolerance(unit or dtype, options.rtol, options.atol)
    return tolerances


# ---------------------------------------------------------------------- eager against eager
def eager_parts(case: Case, failure: BaseException | None) -> list[str]:
    """Return program() and the comparison of both libraries."""
    writer = SourceWriter(case.pair)
    last = getattr(failure, "failed_step", None)
    steps = steps_with(case, last)
    is_second_order = getattr(failure, "check", "") == "second derivative"
    returned = returned_values(case, writer, last, is_second_order)
    promise, check = PROMISES.get(getattr(failure, "check", "")), getattr(failure, "check", "")
    if last is not None and promise is not None:
        before, after = promise_lines(writer, last, check)
        returned["promises"] = "promises"
    else:
        before, after = [], []
    body = []
    for step in steps:
        body += before if step is last else []
        body += writer.step(case, step).split("\n")
        body += after if step is last else []
    if any(step.random is not None for step in steps) or check in SEEDED:
        body.insert(0, f"torch.manual_seed({case.seed})")
    pairs = ", ".join(f"{name!r}: {source}" for name, source in returned.items())
    program = "\n".join(["def program(lib):", *(f"    {line}" for line in body), f"    return {{{pairs}}}\n"])
    can_raise = last is not None or getattr(failure, "check", "") in ("one side raised", "class of error")
    by_function = case.pair.gradient_function is not None
    main = main_source(returned, can_raise, check == "settings", by_function)
    if check == "second derivative":
        main = [second_order_source(case, writer)]
    return [program, *backward_source(case, writer), *main]


def steps_with(case: Case, failed: Step | None) -> list[Step]:
    """Return the steps of a case, and the one that failed before it was recorded."""
    steps = list(case.steps)
    if failed is not None and not any(step is failed for step in steps):
        steps.insert(failed.number, failed)
    return steps


def second_order_source(case: Case, writer: SourceWriter) -> str:
    """Return the end of the script that compares second derivatives."""
    weights = ", ".join(
        writer.tensor(output_gradient(case, r, i))
        for i, r in enumerate(
            distinct(t for d in case.outputs for _, t in tensor_paths("", d._ref, case.pair))
        )
    )
    return fill(script_parts.SECOND_ORDER, {"weights": weights}).strip("\n") + "\n"


def distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that require a gradient, each once."""
    found: list[torch.Tensor] = []
    for t in tensors:
        if t.requires_grad and not any(t is u for u in found):
            found.append(t)
    return found


def leaf_sources(case: Case) -> list[str]:
    """Return the sources of the inputs and parameters that second derivatives are taken of."""
    leaves = [f"x{s.number}" for s in case.steps if s.action == "input" and s.requires_grad]
    return leaves + [
        f"{name_of(m)}.{n}" for m in case.modules for n, p in m._ref.named_parameters() if p.requires_grad
    ]


def returned_values(
    case: Case, writer: SourceWriter, failed: Step | None, is_second_order: bool = False
) -> dict[str, str]:
    """Return {key: source} of what program() returns; a key that nobody compares is left out."""
    compared = compared_values(case, writer, failed)
    returned = {"results": "{" + ", ".join(f"{k!r}: {v}" for k, v in compared.items()) + "}"}
    if is_second_order:
        outputs = ", ".join(writer.dual(d) for d in case.outputs)
        returned["outputs"] = f"tensors_of([{outputs}])"
        returned["inputs"] = f"[{', '.join(leaf_sources(case))}]"
        return returned
    if differentiable_outputs(case):
        returned["outputs"] = "[" + ", ".join(source for source, _ in differentiable_outputs(case)) + "]"
    if wrongly_differentiable := wrongly_differentiable_outputs(case):
        returned["constants"] = "[" + ", ".join(wrongly_differentiable) + "]"
    if leaves := [name_of(d) for d in case.duals_with_gradient if _needs_gradient(d)]:
        returned["leaves"] = "{" + ", ".join(f"{n!r}: {n}" for n in leaves) + "}"
    if case.modules:
        returned["modules"] = "{" + ", ".join(f"{name_of(m)!r}: {name_of(m)}" for m in case.modules) + "}"
    return returned


def compared_values(case: Case, writer: SourceWriter, failed: Step | None) -> dict[str, str]:
    """Return {key: source} of the values that the comparison of results looks at."""
    compared = {
        **{name_of(d): writer.dual(d) for d in compared_duals(case) if d._step is not None},
        **{f"output {i}": writer.dual(d) for i, d in enumerate(case.outputs) if d._step is None},
    }
    if failed is not None and (
        failed.action not in ("set", "enter", "exit") and failed.target._path not in ("setitem", "delitem")
    ):
        compared["last"] = "last"
    return compared


def _needs_gradient(dual: DualObject) -> bool:
    return dual._ref.requires_grad or getattr(dual._cand, "requires_grad", False)


def differentiable_outputs(case: Case) -> list[tuple[str, torch.Tensor]]:
    """Return (source, reference tensor) of the outputs that the harness's backward starts from."""
    outputs: list[tuple[str, torch.Tensor]] = []
    if case.ran_backward:
        for out in case.outputs:
            for source, r in tensor_paths(SourceWriter(case.pair).dual(out), out._ref, case.pair):
                if r.requires_grad and not any(r is seen for _, seen in outputs):
                    outputs.append((source, r))
    return outputs


def wrongly_differentiable_outputs(case: Case) -> list[str]:
    """Return the sources of the outputs that require a gradient on the candidate's side only."""
    if not case.ran_backward or not case.pair.has_gradients:
        return []
    return [
        source
        for out in case.outputs
        for (source, r), c in zip(
            tensor_paths(SourceWriter(case.pair).dual(out), out._ref, case.pair),
            tensors_of(out._cand, case.pair.is_candidate_tensor),
        )
        if c.requires_grad and not r.requires_grad
    ]


def tensor_paths(source: str, x: Any, pair: Pair) -> list[tuple[str, torch.Tensor]]:
    """Return (source, tensor) of every tensor in x."""
    if pair.is_reference_tensor(x):
        return [(source, x)]
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, (tuple, list)) else ()
    return [path for key, e in items for path in tensor_paths(f"{source}[{key!r}]", e, pair)]


def backward_source(case: Case, writer: SourceWriter) -> list[str]:
    """Return backward(), with the output gradients of the harness."""
    outputs = differentiable_outputs(case)
    if not outputs:
        return []
    gradients = [writer.tensor(output_gradient(case, r, i)) for i, (_, r) in enumerate(outputs)]
    if len(outputs) == 1:
        run = "outputs[0].backward(gradients[0])"
    elif hasattr(getattr(case.pair.candidate, "autograd", None), "backward"):
        run = "lib.autograd.backward(outputs, gradients)"
    else:
        run = (
            "torch.autograd.backward(outputs, gradients) if lib is torch else [o.backward(g) for o, g in"
            " zip(outputs, gradients)]"
        )
    is_global = any(
        getattr(t, "is_global", False)
        for d in case.outputs
        for t in tensors_of(d._cand, case.pair.is_candidate_tensor)
    )
    if case.pair.gradient_function is not None:
        body = (
            f"gradients = [{', '.join(gradients)}]\n    return gradients_by_function(lib, result, gradients)"
        )
        return [f"def backward(lib, result):\n    {body}\n"]
    prepare = "everywhere(lib, g).to(o.dtype)" if is_global else "g.to(device=o.device, dtype=o.dtype)"
    if not case.pair.same_tensors:
        prepare = "g.to(o.dtype)"
    return [
        f"def backward(lib, outputs):\n    gradients = [{', '.join(gradients)}]\n"
        f"    gradients = [{prepare} for g, o in zip(gradients, outputs)]\n    {run}\n"
    ]


def main_source(
    returned: dict[str, str], can_raise: bool, compares_settings: bool, by_function: bool
) -> list[str]:
    """Return the end of the script: run both libraries and compare."""
    sections = []
    if compares_settings:
        sections.append("settings_after_backward" if "outputs" in returned else "settings")
    sections += ["raised" if can_raise else "returned"]
    sections += ["promises"] if "promises" in returned else []
    sections.append("results")
    if "constants" in returned:
        sections.append("constants")
    if "outputs" in returned and by_function:
        sections.append("gradients_by_function")
    elif "outputs" in returned:
        sections.append("backward_raised" if can_raise else "backward")
    if not by_function:
        sections += [name for name in ("leaves", "modules") if name in returned]
    return ["\n".join(MAIN[name].strip("\n") for name in sections) + '\nprint("no difference")\n']


# ---------------------------------------------------------------------- eager against graph
def graph_parts(case: Case) -> list[str]:
    """Return the program as functions of inputs and modules, and the comparison of its eager run with its
    graph.
    """
    replay = Replay(case)
    names = [f"x{s.number}" for s in replay.inputs], [name_of(m) for m in case.modules]
    leaves = [f"x{s.number}" for s in replay.inputs if s.requires_grad]
    leaves += [f"{name_of(m)}.{n}" for m in case.modules for n, _ in m._cand.named_parameters()]
    sources = [
        "\n    ".join(lines) + "\n"
        for lines in (setup_lines(case, replay, names), program_lines(case, replay, names))
    ]
    backend = config.get("ONEFLOW_TEST_GRAPH_BACKEND")
    return [*sources, fill(GRAPH, {"backend": repr(backend), "leaves": repr(leaves)})]


def setup_lines(case: Case, replay: Replay, names: tuple[list[str], list[str]]) -> list[str]:
    """Return the lines of setup(lib), which creates the inputs and the modules named here."""
    modules = {m._step.number for m in case.modules}
    run_again = {s.number for s in (*replay.steps, *replay.inputs)}
    prepared = [
        s
        for s in case.steps
        if s.number in modules or s.number not in run_again and prepares_module(replay, s)
    ]
    writer = SourceWriter(case.pair)
    seed = [f"torch.manual_seed({case.seed})"] if replay.random else []
    lines = [line for s in (*replay.inputs, *prepared) for line in writer.step(case, s).split("\n")]
    return ["def setup(lib):", *seed, *lines, f"return [{', '.join(names[0])}], [{', '.join(names[1])}]"]


def program_lines(case: Case, replay: Replay, names: tuple[list[str], list[str]]) -> list[str]:
    """Return the lines of program(lib, inputs, modules), which runs forward and backward."""
    defined = {s.number for s in (*replay.steps, *replay.inputs)} | {m._step.number for m in case.modules}
    writer = SourceWriter(case.pair, defined)
    lines = [f"{', '.join(n)}, = {source}" for n, source in zip(names, ("inputs", "modules")) if n]
    lines += [line for s in replay.steps for line in writer.step(case, s).split("\n")]
    outputs = ", ".join(writer.dual(d) for d in replay.outputs())
    lines += [f"outputs = tensors_of([{outputs}])", *graph_backward(case, writer, names)]
    return ["def program(lib, inputs, modules):", *lines]


def prepares_module(replay: Replay, step: Step) -> bool:
    """Whether the step changes a module before its first forward, as m.eval() and m.bias = None do."""
    target = step.target
    if step.action == "set":
        return replay.is_module(target)
    owner = getattr(target, "_owner", None)
    return (
        step.action == "call"
        and owner is not None
        and replay.is_module(owner)
        and (step.out is None or replay.is_module(step.out))
    )


def graph_backward(case: Case, writer: SourceWriter, names: tuple[list[str], list[str]]) -> list[str]:
    lines = []
    if case.output_gradients:
        gradients = ", ".join(writer.tensor(g) for g in case.output_gradients)
        lines.append(f"gradients = [{gradients}]")
        lines.append("run_backward(lib, outputs, gradients)")
    lines.append(
        "leaves = [x for x in inputs if x.requires_grad] + [p for m in modules for p in m.parameters()]"
    )
    return lines + ["return outputs, [leaf.grad for leaf in leaves]"]
