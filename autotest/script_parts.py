"""The fixed parts of a printed script: helper functions, and the sections of its end.

A line of a helper that starts with `[a|b]` is needed only if one of these conditions holds (see
script.conditions). <name> is a placeholder that script.fill replaces.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pair import Pair

# A helper comes after the helpers that it uses.
HELPERS = {
    "unpack": """
def unpack(text, dtype, shape):
    import base64
    import zlib

    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype=dtype).reshape(shape).copy()
""",
    "hand_over": '''
<hand_over>

def hand_over(lib, t):
    """Return the torch tensor, or the other library's tensor with its values."""
    if lib is torch:
        return t
[function]    if given and t.requires_grad:
[function]        return given.pop(0)
    made = to_candidate(t.detach())
[backward]    return made.requires_grad_(True) if t.requires_grad else made
[function]    return made
''',
    "gradients_by_function": '''
<gradient_function>
given = []  # what the gradient function passes to the program, instead of the inputs


def gradients_by_function(lib, result, gradients):
    """Return the gradients of the leaves: of torch by backward(), otherwise by the function of bind()."""
    outputs, leaves = result["outputs"], list(result["leaves"].values())
    if lib is torch:
        torch.autograd.backward(outputs, [g.to(o.dtype) for g, o in zip(gradients, outputs)])
        return [leaf.grad for leaf in leaves]

    def outputs_of(*inputs):
        given[:] = inputs
        return program(lib)["outputs"]

    return list(grad(outputs_of, leaves, gradients))
''',
    "everywhere": '''
def everywhere(lib, x):
    """Return a global copy on every CPU rank; of torch, x itself."""
    if lib is torch:
        return x
    placement, sbp = flow.placement.all("cpu"), flow.sbp.broadcast
    if not isinstance(x, torch.Tensor):
        return x.to_global(placement=placement, sbp=[sbp])
    return x.detach().to_global(placement=placement, sbp=sbp).detach().requires_grad_(x.requires_grad)
''',
    "with_strides": '''
def with_strides(t, strides, offset):
    """Return a copy with these strides; along a stride of 0 it repeats the first element."""
    size = 1 + offset + sum((n - 1) * s for n, s in zip(t.shape, strides))
    first, shape = t.detach(), t.shape
    for dim, stride in enumerate(strides):
        first = first if stride else first.narrow(dim, 0, 1)
    memory = first.new_zeros(size)
    memory.as_strided(first.shape, strides, offset).copy_(first)
    return memory.as_strided(shape, strides, offset).requires_grad_(t.requires_grad)
''',
    "settings": '''
def settings():
    """Return the settings of the process."""
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_inference_mode_enabled(),
        torch.get_default_device(),
        f"NumPy's random stream at {hash((np.random.get_state()[1].tobytes(), np.random.get_state()[2])):x}",
    )
''',
    "restore": """
def restore(before):
    torch.set_grad_enabled(before[0])
    torch.set_default_dtype(before[1])
    torch.set_num_threads(before[2])
    torch.use_deterministic_algorithms(before[3])
    torch.set_default_device(None)
    np.random.seed(94061)  # not a seed that a library may set
""",
    "tensors_of": """
def tensors_of(x):
    if isinstance(x, <tensor_class>):
        return [x]
    x = list(x.values()) if isinstance(x, dict) else x
    return [t for e in x for t in tensors_of(e)] if isinstance(x, (tuple, list)) else []
""",
    "run_backward": """
def run_backward(lib, outputs, gradients):
    outputs = [t for i, t in enumerate(outputs) if t.requires_grad and not any(t is u for u in outputs[:i])]
    gradients = [g.to(device=t.device, dtype=t.dtype) for g, t in zip(gradients, outputs)]
    lib.autograd.backward(outputs, gradients)
""",
    "kind_of": '''
def kind_of(x):
    """Return what a result is, besides its values."""
    if isinstance(x, torch.Tensor):
        return "tensor", getattr(x, "_is_param", False), x.is_inference(), str(x.layout)
    if isinstance(x, (tuple, list)):
        fields = getattr(x, "_fields", None) or getattr(x, "n_fields", None)
        return "list" if isinstance(x, list) else "tuple", fields, [kind_of(e) for e in x]
    return ["dict", *map(kind_of, x.values())] if isinstance(x, dict) else None
''',
    "module_facts": '''
def module_facts(module):
    """Return the names of a module's tensors with shape, dtype and requires_grad, and what a copy shares."""
    import copy

    facts = []
    for tensors in (module.state_dict(), dict(module.named_parameters()), dict(module.named_buffers())):
        facts.append([(name, t.shape, t.dtype, t.requires_grad) for name, t in tensors.items()])
    mine, copied = module.state_dict(), copy.deepcopy(module).state_dict()
    facts.append([mine[name].data_ptr() == copied[name].data_ptr() for name in mine if mine[name].numel()])
    return facts
''',
    "to_torch": '''
[other_tensors]<to_torch>

def to_torch(t):
    """Return a tensor of either library as a torch tensor."""
    if isinstance(t, torch.Tensor):
        t = t.detach()
        return t.full_tensor() if hasattr(t, "full_tensor") else t
[other_tensors]    return torch.from_numpy(np.array(to_numpy(t)))
''',
    "TOLERANCES": """
TOLERANCES = <tolerances>  # dtype: (rtol, atol)
""",
    "compare_numbers": '''
def compare_numbers(what, a, b):
    """Assert |a - b| <= atol + rtol * |b| for two torch tensors of one shape."""
[meta]    if a.is_meta:  # without values
[meta]        return
    a, b = a.cpu(), b.cpu()
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    rtol, atol = TOLERANCES.get(str(a.dtype), (<rtol>, <atol>))
    dtype = torch.promote_types(a.dtype, b.dtype)
    dtype = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    x, y = a.to(dtype), b.to(dtype)
    if a.dtype == torch.bool:
        equal = torch.equal(x, y)
    else:
        equal = torch.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    assert equal, f"{what} differs (rtol={rtol}, atol={atol})\\n{a}\\n{b}"
[signs]    if x.is_floating_point():
[signs]        other = (x == 0) & (y == 0) & (torch.signbit(x) != torch.signbit(y))
[signs]        assert not other.any(), f"{what}: zeros with another sign\\n{a}\\n{b}"
''',
    "compare_tensors": """
def compare_tensors(what, a, b):
    assert tuple(a.shape) == tuple(b.shape), f"{what}: shape {tuple(a.shape)} and {tuple(b.shape)}"
    a, b = to_torch(a), to_torch(b)
[dtypes]    b = b.to(a.dtype) if <dtypes>.get(str(a.dtype)) == str(b.dtype) else b
[check_dtype]    assert a.dtype == b.dtype, f"{what}: {a.dtype} and {b.dtype}"
[exact_dtype]    inexact = [t.is_floating_point() or t.is_complex() for t in (a, b)]
[exact_dtype]    assert a.dtype == b.dtype or all(inexact), f"{what}: {a.dtype} and {b.dtype}"
[device]    assert a.device.type == b.device.type, f"{what} is on {a.device} and on {b.device}"
[values]    compare_numbers(what, a, b)
""",
    "compare_descriptions": '''
def compare_descriptions(what, a, b):
    """Compare dtypes, devices, layouts or memory formats by name."""
    if type(a).__name__ == "device":
        equal = type(b).__name__ == "device" and (a.type, a.index or 0) == (b.type, b.index or 0)
    else:
        same_class = type(a).__name__ == type(b).__name__
        equal = same_class and str(a).rpartition(".")[2] == str(b).rpartition(".")[2]
    assert equal, f"{what}: {a} and {b}"
''',
    "compare_plain": """
def compare_plain(what, a, b):
    if not isinstance(a, (bool, int, float, complex, str, type(None))):
        return
    for kind in (bool, str, type(None)):
        assert isinstance(a, kind) == isinstance(b, kind), f"{what}: {a!r} and {b!r}"
[values]    if isinstance(a, (float, complex)) or isinstance(b, (float, complex)):
[values]        equal = a == b or (a != a and b != b) or abs(a - b) <= <atol> + <rtol> * abs(a)
[values]    else:
[values]        equal = a == b
[values]    assert equal, f"{what}: {a!r} and {b!r}"
""",
    "compare": '''
def compare(what, a, b):
    """Compare one result of the two libraries."""
    if isinstance(a, torch.Tensor) or isinstance(b, <tensor_class>):
        both = isinstance(a, torch.Tensor) and isinstance(b, <tensor_class>)
        assert both, f"{what}: {type(a)} and {type(b)}"
        return compare_tensors(what, a, b)
[sequence]    if isinstance(a, (tuple, list)):
[sequence]        assert isinstance(b, (tuple, list)) and len(a) == len(b), f"{what}: {a} and {b}"
[sequence]        return [compare(f"{what}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b))]
[dict]    if isinstance(a, dict):
[dict]        assert isinstance(b, dict) and a.keys() == b.keys(), f"{what}: {a} and {b}"
[dict]        return [compare(f"{what}[{k!r}]", a[k], b[k]) for k in a]
[description]    if type(a).__name__ in ("dtype", "device", "layout", "memory_format"):
[description]        return compare_descriptions(what, a, b)
[array]    if isinstance(a, np.ndarray):
[array]        assert np.shape(a) == np.shape(b), f"{what}: {a} and {b}"
[array]        assert np.allclose(a, b, rtol=<rtol>, atol=<atol>, equal_nan=True), f"{what}: {a} and {b}"
[array]        return
[plain]    compare_plain(what, a, b)
''',
    "compare_gradients": '''
def compare_gradients(what, a, b):
    """Compare two gradients; None and a gradient of zeros are equal."""
    if a is None or b is None:
        there = a if b is None else b
        assert there is None or not to_torch(there).count_nonzero(), f"{what}: {a} and {b}"
        return
    assert tuple(a.shape) == tuple(b.shape), f"{what}: shape {tuple(a.shape)} and {tuple(b.shape)}"
    a, b = to_torch(a), to_torch(b)
[check_dtype]    assert a.dtype == b.dtype, f"{what}: {a.dtype} and {b.dtype}"
[values]    compare_numbers(what, a, b)
''',
    "compare_modules": '''
def compare_modules(what, a, b):
    """Compare parameters, their gradients, and buffers."""
    theirs = dict(b.named_parameters())
    for name, p in a.named_parameters():
        if name in theirs:
            compare_gradients(f"the gradient of {what}.{name}", p.grad, theirs[name].grad)
            compare_tensors(f"{what}.{name}", p, theirs[name])
    theirs = dict(b.named_buffers())
    for name, t in a.named_buffers():
        if name in theirs:
            compare_tensors(f"{what}.{name}", t, theirs[name])
''',
    "attempt": '''
def attempt(function, *args):
    """Return (result, None) or (None, the error that was raised)."""
    try:
        return function(*args), None
    except Exception as error:
        return None, error
''',
    "compare_errors": '''
def compare_errors(a, b):
    """Compare what the two libraries raised; return True if one of them refuses the program."""
    if a is None and b is not None:
        raise AssertionError(f"torch accepts the program, the other library raised {b!r}") from b
[errors_class|errors_any]    if a is not None and b is None:
[accepts_more]        return True
[same_errors]        raise AssertionError(f"torch raised {a!r}, the other library accepts the program") from a
[errors_class]    related = issubclass(type(a), type(b)) or issubclass(type(b), type(a))
[errors_class]    assert related, f"torch raised {a!r}, the other library {b!r}"
    return a is not None
''',
}

TO_NUMPY = """def to_numpy(t):
    for method in ("detach", "cpu", "numpy"):
        t = getattr(t, method)() if hasattr(t, method) else t
    return t
"""

MAIN = {
    "settings": """
restore(settings())
before, left = settings(), []
for lib in (torch, flow):
    program(lib)
    left.append(settings())
    restore(before)
assert left[0] == left[1], f"the settings of the process afterwards differ: {left[0]} and {left[1]}"
""",
    "settings_after_backward": """
restore(settings())
before, left = settings(), []
for lib in (torch, flow):
    backward(lib, program(lib)["outputs"])
    left.append(settings())
    restore(before)
assert left[0] == left[1], f"the settings after backward() differ: {left[0]} and {left[1]}"
""",
    "returned": "a, b = program(torch), program(flow)",
    "raised": """
(a, error_a), (b, error_b) = attempt(program, torch), attempt(program, flow)
if compare_errors(error_a, error_b):
    print("no difference: the program is refused")
    raise SystemExit
""",
    "results": """
for name in a["results"]:
    compare(name, a["results"][name], b["results"][name])
""",
    "promises": """
assert a["promises"] == b["promises"], f"{a['promises']} and {b['promises']}"
""",
    "constants": """
assert not any(t.requires_grad for t in b["constants"]), "an output requires a gradient"
""",
    "backward": """
assert all(t.requires_grad for t in b["outputs"]), "an output does not require a gradient"
backward(torch, a["outputs"])
backward(flow, b["outputs"])
""",
    "gradients_by_function": """
for name, x, y in zip(a["leaves"], backward(torch, a), backward(flow, b)):
    compare_gradients(f"the gradient of {name}", x, y)
""",
    "backward_raised": """
assert all(t.requires_grad for t in b["outputs"]), "an output does not require a gradient"
(_, error_a), (_, error_b) = attempt(backward, torch, a["outputs"]), attempt(backward, flow, b["outputs"])
if compare_errors(error_a, error_b):
    print("no difference: backward() is refused")
    raise SystemExit
""",
    "leaves": """
for name in a["leaves"]:
    compare_gradients(f"the gradient of {name}", a["leaves"][name].grad, b["leaves"][name].grad)
""",
    "modules": """
for name in a["modules"]:
    compare_modules(name, a["modules"][name], b["modules"][name])
""",
}

SECOND_ORDER = """
def second_derivatives(lib):
    returned = program(lib)
    outputs, inputs = returned["outputs"], returned["inputs"]
    outputs = [t for i, t in enumerate(outputs) if t.requires_grad and not any(t is u for u in outputs[:i])]
    first = torch.autograd.grad(outputs, inputs, [<weights>], create_graph=True, allow_unused=True)
    total = [(g * (i + 1)).sum() for i, g in enumerate(first) if g is not None and g.requires_grad]
    return torch.autograd.grad(total, inputs, allow_unused=True) if total else [None] * len(inputs)


a, b = second_derivatives(torch), second_derivatives(flow)
for i, (x, y) in enumerate(zip(a, b)):
    compare_gradients(f"the second derivative of input {i}", x, y)
print("no difference")
"""

GRAPH = '''
class Program(flow.nn.Graph):
    """The same program as one graph."""

    def __init__(self, modules):
        super().__init__()
        if hasattr(self.config, "set_backend"):
            self.config.set_backend(<backend>)
        if hasattr(self.config, "eager_calls"):
            self.config.eager_calls(False)
        self.modules = modules
        for i, module in enumerate(modules):
            setattr(self, f"module{i}", module)

    def build(self, *inputs):
        outputs, gradients = program(flow, inputs, self.modules)
        has_gradient = [g is not None for g in gradients]
        return outputs, [g for g in gradients if g is not None], has_gradient, inputs


inputs, modules = setup(flow)
outputs, gradients = program(flow, inputs, modules)
graph_inputs, graph_modules = setup(flow)
graph_outputs, existing, has_gradient, graph_inputs = Program(graph_modules)(*graph_inputs)
existing = iter(existing)
graph_gradients = [next(existing) if has else None for has in has_gradient]
counts = f"{len(outputs)} outputs in eager, {len(graph_outputs)} in the graph"
assert len(outputs) == len(graph_outputs), counts
for i, (x, y) in enumerate(zip(outputs, graph_outputs)):
    compare_tensors(f"output {i}", x, y)
for name, x, y in zip(<leaves>, gradients, graph_gradients):
    if x is not None and y is not None:
        assert x.dtype == y.dtype, f"the gradient of {name}: {x.dtype} and {y.dtype}"
    compare_gradients(f"the gradient of {name}", x, y)
for i, (x, y) in enumerate(zip(inputs, graph_inputs)):
    compare_tensors(f"input {i} after the program", x, y)
for i, (m, n) in enumerate(zip(modules, graph_modules)):
    theirs = dict(n.named_buffers())
    for name, t in m.named_buffers():
        compare_tensors(f"buffer {name} of module {i}", t, theirs[name])
print("no difference")
'''


def select(template: str, conditions: set[str]) -> str:
    """Keep the lines whose conditions hold, without their markers."""
    lines = []
    for line in template.split("\n"):
        marker = re.match(r"\[([\w|]+)\](?=[ <])", line)
        if marker is None:
            lines.append(line)
        elif conditions & set(marker[1].split("|")):
            lines.append(line[marker.end() :])
    return "\n".join(lines)


# ---------------------------------------------------------------------- what fills the placeholders
def tensor_class(pair: Pair) -> str:
    name = "Tensor" if hasattr(pair.candidate, "Tensor") else pair.candidate_tensor.__name__
    return f"(flow.{name}, np.generic)" if pair._candidate_scalars else f"flow.{name}"


def to_torch_source(pair: Pair) -> str:
    return imported_function(pair.custom_to_numpy, "to_numpy") or TO_NUMPY


def hand_over_source(pair: Pair) -> str:
    custom = imported_function(pair.custom_to_candidate, "to_candidate")
    make = "tensor" if hasattr(pair.candidate, "tensor") else "asarray"
    return custom or f"def to_candidate(t):\n    return flow.{make}(t.cpu().numpy().copy())\n"


def imported_function(function: Callable[..., Any] | None, name: str) -> str | None:
    """Return source that defines `name` as this function of the test; None without a function."""
    if function is None:
        return None
    module, qualname = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if getattr(sys.modules.get(module), qualname, None) is function and module != "__main__":
        return f"from {module} import {qualname} as {name}\n"
    try:
        source = inspect.cleandoc(inspect.getsource(function)) if inspect.isfunction(function) else ""
    except OSError:
        source = ""
    if source.startswith("def "):
        return f"{source}\n\n\n{name} = {function.__name__}\n"
    error = f'NotImplementedError("put the {name}= function of your bind() call here")'
    return f"def {name}(x):\n    raise {error}\n"
