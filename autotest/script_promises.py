"""The lines of a printed script that compare what a call promises beyond its values (see contract.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .printing import name_of

if TYPE_CHECKING:
    from .case import Step
    from .printing import SourceWriter

# check of the contract: the expression that both libraries must agree on
PROMISES = {
    "identity": "[[t is a for a in arguments] for t in tensors_of(last)]",
    "inputs written": "[t._version != v for t, v in zip(arguments, versions)]",
    "gradient": "[(t.requires_grad, t.is_leaf) for t in tensors_of(last)]",
    "kind of result": "kind_of(last)",
    "aliasing": "[[t.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in arguments]"
    " for t in tensors_of(last)]",
    "strides": "[[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in tensors_of(last)]",
    "module": "module_facts(last)",
    "initial values": "{k: v.tolist() for k, v in last.state_dict().items()}",
    "random stream": "torch.get_rng_state().tolist()",
    "second call": "[(bool((t == u).logical_or(t != t).all()), t.data_ptr() == u.data_ptr())"
    " for t, u in zip(tensors_of(last), tensors_of(again))]",
}


SEEDED = ("random stream", "second call", "initial values")


def promise_lines(writer: SourceWriter, step: Step, check: str) -> tuple[list[str], list[str]]:
    """Return the lines before and after the failing step, which keep what this check compares."""
    if check == "module" and is_module(step.target):
        return hook_lines(writer.value(step.target))
    before, promise = [], PROMISES[check]
    if "arguments" in promise:
        owner = getattr(step.target, "_owner", None)
        operands = [writer.value(a) for a in (owner, *step.args, *step.kwargs.values()) if is_shown(a)]
        before.append(f"arguments = tensors_of([{', '.join(operands)}])")
    if "versions" in promise:
        before.append("versions = [t._version for t in arguments]")
    after = [f"promises = {promise}"]
    if check == "second call":
        before.append("state = torch.get_rng_state()")
        call = writer.step(None, step).removeprefix("last = ")
        after = ["torch.set_rng_state(state)", f"again = {call}", *after]
    if step.out is not None:  # a module that was compared after its step
        after.insert(0, f"last = {name_of(step.out)}")
    return before, after


def is_module(x: Any) -> bool:
    module = getattr(x, "_ref", None)
    return hasattr(module, "named_parameters") and not isinstance(module, type)


def hook_lines(module: str) -> tuple[list[str], list[str]]:
    """Return the lines around a module's first forward: whether its hooks run, and what its copy shares."""
    before = ["fired = []", f"handle = {module}.register_forward_hook(lambda *_: fired.append(None))"]
    return before, ["handle.remove()", f"promises = len(fired), module_facts({module})"]


def is_shown(x: Any) -> bool:
    """Whether an argument may hold tensors."""
    return hasattr(type(x), "__dual__") or isinstance(x, (tuple, list, dict))
