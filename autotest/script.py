"""A case as text: one line per step, and a whole stand-alone script."""
from __future__ import annotations

import numpy as np

from .tolerance import of_plain_numbers

INLINE_OPS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}
PREFIX_OPS = {"neg": "-", "pos": "+", "invert": "~"}


def name_of(case, dual) -> str:
    """x0 for an input, m1 for a module, v2 for another result, by the number of the step; otherwise what it is."""
    step = dual._step
    if step is None:
        return dual._path or repr(dual._ref)[:60]
    if step.kind == "input":
        return f"x{step.number}"
    return f"{'m' if isinstance(dual._ref, dual._pair.reference_module) else 'v'}{step.number}"


def text(x) -> str:
    """An argument as source text, `lib` standing for either library."""
    if hasattr(type(x), "__dual__"):
        return dual_text(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        x = tuple(x)
    if isinstance(x, tuple):
        return "(" + ", ".join(text(e) for e in x) + ("," if len(x) == 1 else "") + ")"
    if isinstance(x, list):
        return "[" + ", ".join(text(e) for e in x) + "]"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in x.items()) + "}"
    if isinstance(x, slice):
        return f"slice({text(x.start)}, {text(x.stop)}, {text(x.step)})"
    if isinstance(x, float) and (x != x or x in (float("inf"), float("-inf"))):
        return f"float('{x}')"
    if isinstance(x, np.ndarray):
        return f"np.array({x.tolist()}, dtype=np.{x.dtype})"
    kind = type(x).__module__ + "." + type(x).__name__
    if kind == "torch.dtype":
        return "lib." + str(x).rpartition(".")[2]
    if kind in ("torch.device", "torch.Size"):
        return f"lib.device({str(x)!r})" if kind.endswith("device") else text(tuple(x))
    if kind.startswith("torch.") and hasattr(x, "detach"):
        return tensor_text(x)
    return repr(x)


def dual_text(d) -> str:
    if d._step is not None:
        return name_of(None, d)
    if d._owner is not None:
        return f"{dual_text(d._owner)}.{d._path}"
    if isinstance(d._ref, (int, float, bool, str, tuple)):
        return text(d._ref)
    if type(d._ref).__name__ == "dtype":
        return text(d._ref)
    return f"lib.{d._path}" if d._path else "lib"


def call_text(target, resolved) -> str:
    args, kwargs = resolved
    if hasattr(type(target), "__dual__") and not target._path.count(".") and callable(target._ref):
        op = op_text(target._path, [text(a) for a in args]) if target._owner is None and target._step is None and not kwargs else None
        if op:
            return op
    parts = [text(a) for a in args] + [f"{k}={text(v)}" for k, v in kwargs.items()]
    return f"{dual_text(target)}({', '.join(parts)})"


def op_text(name, operands):
    """An operator with its operands, or None for another name."""
    if name in INLINE_OPS and len(operands) == 2:
        return f"{operands[0]} {INLINE_OPS[name]} {operands[1]}"
    if name in PREFIX_OPS and len(operands) == 1:
        return PREFIX_OPS[name] + operands[0]
    if name == "getitem" and len(operands) == 2:
        return f"{operands[0]}[{operands[1]}]"
    if name == "setitem" and len(operands) == 3:
        return f"{operands[0]}[{operands[1]}] = {operands[2]}"
    return None


def step_text(case, step) -> str:
    """The step as one line (a module's weights come as a second one)."""
    left = name_of(case, step.out) if step.out is not None else ""
    if step.kind == "input":
        return f"{left} = {tensor_text(step.value, requires_grad=step.out._ref.requires_grad)}"
    if step.kind == "get":
        return f"{left} = {dual_text(step.target)}.{step.args[0]}"
    if step.kind == "set":
        return f"{dual_text(step.target)}.{step.args[0]} = {text(step.args[1])}"
    if step.kind in ("enter", "exit"):
        return f"{dual_text(step.target)}.__{step.kind}__({'None, None, None' if step.kind == 'exit' else ''})"
    if step.kind == "op":
        return op_line(left, step)
    line = f"{left} = {call_text(step.target, (step.args, step.kwargs))}"
    if case is not None and id(step.out._cand) in case.module_start and any(step.out is m for m in case.modules):
        state = ", ".join(f"{k!r}: {tensor_text(v)}" for k, v in case.module_start[id(step.out._cand)][1].items())
        line += f"\n{left}.load_state_dict({{{state}}}, strict=False)"
    return line


def op_line(left, step):
    name, operands = step.target._path, [text(a) for a in step.args]
    if name == "setitem":
        return op_text(name, operands)
    if name == "delitem":
        return f"del {operands[0]}[{operands[1]}]"
    if name[1:] in INLINE_OPS and name not in INLINE_OPS:
        return f"{left} = operator.{name}({', '.join(operands)})"
    return f"{left} = {op_text(name, operands) or f'{name}({chr(44).join(operands)})'}"


LITERAL_LIMIT = 2000  # elements; beyond it a tensor is written as packed bytes


def tensor_text(t, requires_grad=False) -> str:
    t = t.detach().cpu()
    dtype = str(t.dtype).rpartition(".")[2]
    extra = ", requires_grad=True" if requires_grad else ""
    if t.numel() == 0:
        return f"lib.zeros({tuple(t.shape)}, dtype=lib.{dtype}{extra})"
    if t.numel() > LITERAL_LIMIT:
        import base64
        import zlib

        array = t.float().numpy() if dtype == "bfloat16" else t.numpy()
        packed = base64.b85encode(zlib.compress(array.tobytes())).decode()
        return f"lib.tensor(unpack({packed!r}, {str(array.dtype)!r}, {tuple(t.shape)}), dtype=lib.{dtype}{extra})"
    return f"lib.tensor({_numbers(t.tolist(), dtype)}, dtype=lib.{dtype}{extra})"


def _numbers(x, dtype="float64") -> str:
    """Nested lists of numbers, each in the fewest digits that give it back in this dtype."""
    if isinstance(x, list):
        return "[" + ", ".join(_numbers(e, dtype) for e in x) + "]"
    if isinstance(x, float):
        if x != x or x in (float("inf"), float("-inf")):
            return f"float('{x}')"
        short = str(np.dtype(dtype).type(x)) if dtype in ("float16", "float32") else repr(x)
        return short.removesuffix(".0") if "e" not in short else short
    return repr(x)


HEAD = '''import operator

import numpy as np
import torch
import {candidate} as flow


def unpack(text, dtype, shape):
    import base64
    import zlib

    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype=dtype).reshape(shape).copy()


def program(lib):
{body}
    return {outs}, {leaves}

'''

COMPARE = '''
def backward(lib, outs, gradients):
    for out, gradient in zip(outs, gradients):
        if gradient is not None:
            out.backward(lib.tensor(gradient, dtype=out.dtype), retain_graph=True)


def array(t):
    t = getattr(t, "to_local", lambda: t)() if getattr(t, "is_global", False) else t
    t = t.detach().cpu()
    return (t.float() if "bfloat16" in str(t.dtype) else t).numpy()


def compare(what, a, b):
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b), f"{{what}}: {{len(a)}} and {{len(b)}} results"
        for i, (x, y) in enumerate(zip(a, b)):
            compare(f"{{what}}[{{i}}]", x, y)
    elif hasattr(a, "detach"):
        assert a.shape == b.shape, f"{{what}}: shape {{tuple(a.shape)}} and {{tuple(b.shape)}}"
        print(what, str(a.dtype), str(b.dtype), "\\n", array(a), "\\n", array(b))
        np.testing.assert_allclose(array(b), array(a), rtol={rtol!r}, atol={atol!r}, err_msg=what)
    else:
        assert a == b, f"{{what}}: {{a!r}} and {{b!r}}"


gradients = {gradients}
'''


def script(case, failure=None) -> str:
    """A program that repeats the case on both libraries and compares them, without this package."""
    from .graphleg import graph_script

    lines = [f"    {line}" for step in case.steps for line in step_text(case, step).split("\n")]
    outs = [d for d in case.outputs if d._step is not None] or [
        s.out for s in case.steps if s.out is not None and s.kind != "input" and case.pair.is_reference_tensor(s.out._ref)][-1:]
    leaves = [s.out for s in case.steps if s.kind == "input" and s.out._ref.requires_grad]
    parameters = [f"*{name_of(case, m)}.parameters()" for m in case.modules]
    names = ", ".join(name_of(case, d) for d in outs)
    flat = f"[{', '.join([name_of(case, d) for d in leaves] + parameters)}]"
    text_ = HEAD.format(candidate=_module_name(case), body="\n".join(lines) or "    pass", outs=f"[{names}]", leaves=flat)
    rtol, atol = of_plain_numbers(case.options.rtol, case.options.atol)
    text_ += COMPARE.format(rtol=rtol, atol=atol, gradients=_gradients(case, outs))
    if getattr(failure, "leg", "eager") == "graph":
        return text_ + graph_script(case)
    return text_ + '''a, leaves_a = program(torch)
b, leaves_b = program(flow)
for i, (x, y) in enumerate(zip(a, b)):
    compare(f"output {i}", x, y)
backward(torch, a, gradients)
backward(flow, b, gradients)
for i, (x, y) in enumerate(zip(leaves_a, leaves_b)):
    if x.grad is not None:
        compare(f"gradient {i}", x.grad, y.grad)
print("no difference")
'''


def _gradients(case, outs):
    """The drawn output gradients, in the order of `outs`, None where an output has none."""
    given, found = list(getattr(case, "output_gradients", [])), []
    for d in outs:
        needs = case.options.auto_backward and getattr(d._ref, "requires_grad", False) and given
        found.append(_gradient(given.pop(0)) if needs else "None")
    return "[" + ", ".join(found) + "]"


def _module_name(case):
    return getattr(case.pair.candidate, "__name__", None) or case.pair.names[1]


def _gradient(t):
    return _numbers(t.cpu().tolist(), str(t.dtype).rpartition(".")[2])
