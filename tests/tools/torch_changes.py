"""Compare two installed torches in what this package relies on, and print what changed.

    python tests/tools/torch_changes.py OLD NEW     two interpreters, each with a torch
    make torch-changes OLD=... NEW=...

The observer treats a function by whether it is written in Python or in C: it runs Python as instrumented
code, and guards what a C function reads. So each public function of torch, each method of its classes, and
each name of the ledger (`_upstream/hooks.py`) is described by its kind, its signature and its home. ATen
operators are described by their schemas.
"""

import argparse
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

MISSING = object()
LEDGER = Path(__file__).resolve().parents[2] / "oneflow_compat" / "_upstream" / "hooks.py"
MODULES = """
    torch torch.amp torch.autograd torch.autograd.forward_ad torch.autograd.function torch.autograd.functional
    torch.autograd.grad_mode torch.autograd.graph torch.backends.cuda torch.backends.cudnn torch.backends.mha
    torch.backends.mkldnn torch.cuda torch.cuda.amp torch.fft torch.func torch.linalg torch.masked
    torch.nested torch.nn torch.nn.functional torch.nn.init torch.nn.modules.module torch.nn.parameter
    torch.nn.utils torch.nn.utils.parametrizations torch.nn.utils.parametrize torch.nn.utils.rnn torch.optim
    torch.optim.lr_scheduler torch.optim.optimizer torch.optim.swa_utils torch.overrides torch.random
    torch.serialization torch.signal.windows torch.sparse torch.special torch.utils.checkpoint
    torch.utils.data torch.utils.dlpack torch.utils._pytree
""".split()
IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


def kind_of(value: object) -> str:
    """What a name of torch is: "Python", "C", "class", "module", "property" or "value"."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return "Python"
    if isinstance(value, IN_C) or type(value).__name__ == "builtin_function_or_method":
        return "C"
    if isinstance(value, (type, types.ModuleType, property)):
        return "property" if isinstance(value, property) else "class" if isinstance(value, type) else "module"
    return f"Python {type(value).__name__}" if callable(value) else "value"


def description_of(value: object) -> dict[str, str]:
    """The kind, the home and the signature of a name."""
    function = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
    described = {"kind": kind_of(value), "home": str(getattr(value, "__module__", None))}
    if isinstance(function, types.FunctionType):
        parameters = inspect.signature(function).parameters.values()
        signature = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)
        described["signature"] = re.sub(r" at 0x\w+", "", signature)
    return described


def functions_of_torch() -> dict[str, dict[str, str]]:
    """{path: description} of the names of MODULES, and of the methods that their classes define."""
    described: dict[str, dict[str, str]] = {}
    classes: set[type] = set()
    for module_name in MODULES:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        for name, value in sorted(vars(module).items()):
            is_old_tensor_class = (
                type(value).__name__ == "tensortype"
            )  # torch.FloatTensor, which copies Tensor
            if name.startswith("__") or isinstance(value, types.ModuleType) or is_old_tensor_class:
                continue
            described[f"{module_name}.{name}"] = description_of(value)
            if isinstance(value, type) and str(value.__module__).startswith("torch"):
                classes |= {cls for cls in value.__mro__ if cls.__module__.startswith("torch")}
    classes = {cls for cls in classes if type(cls).__name__ != "tensortype"}
    for cls in classes:
        for name, value in vars(cls).items():
            if callable(value) or isinstance(value, (staticmethod, classmethod, property)):
                described[f"{cls.__module__}.{cls.__qualname__}.{name}"] = description_of(value)
    return described


def names_of_ledger() -> dict[str, dict[str, str]]:
    """{path: description} of the names of the ledger; a name that is missing has the kind "missing"."""
    spec = importlib.util.spec_from_file_location("ledger", LEDGER)
    ledger = sys.modules["ledger"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ledger)
    described = {}
    for path in ledger.HOOKS:
        value, module = importlib.import_module("torch"), "torch"
        for name in path.split(".")[1:]:
            module = f"{module}.{name}"
            try:
                value = (
                    inspect.getattr_static(value, name) if isinstance(value, type) else getattr(value, name)
                )
            except AttributeError:
                try:
                    value = importlib.import_module(module)
                except ImportError:
                    value = MISSING
        described[path] = {"kind": "missing"} if value is MISSING else description_of(value)
    return described


def schemas() -> dict[str, dict[str, str]]:
    """{operator: its schema} of the ATen operators."""
    import torch

    all_schemas = (s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::"))
    return {
        f"{s.name}.{s.overload_name or 'default'}": {"kind": "operator", "signature": str(s)}
        for s in all_schemas
    }


def describe() -> dict[str, dict[str, dict[str, str]]]:
    import torch

    return {
        "version": {"torch": {"kind": torch.__version__}},
        "ledger": names_of_ledger(),
        "functions": functions_of_torch(),
        "operators": schemas(),
    }


def changes(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """{sort of change: lines} between two descriptions of the same names."""
    found: dict[str, list[str]] = {
        "removed": [],
        "added": [],
        "Python <-> C": [],
        "moved": [],
        "signature": [],
    }
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path, {"kind": "missing"}), new.get(path, {"kind": "missing"})
        if before == after:
            continue
        if after["kind"] == "missing":
            found["removed"].append(path)
        elif before["kind"] == "missing":
            found["added"].append(path)
        elif "value" in (before["kind"], after["kind"]):
            found["moved"].append(f"{path}: {before['kind']} -> {after['kind']}")
        elif before["kind"] != after["kind"]:
            found["Python <-> C"].append(f"{path}: {before['kind']} -> {after['kind']}")
        elif before.get("signature") != after.get("signature"):
            found["signature"].append(
                f"{path}\n      {before.get('signature')}\n      {after.get('signature')}"
            )
        else:
            found["moved"].append(f"{path}: {before.get('home')} -> {after.get('home')}")
    return {sort: lines for sort, lines in found.items() if lines}


def described_by(interpreter: str) -> dict[str, dict[str, dict[str, str]]]:
    """What an interpreter says of its torch."""
    run = subprocess.run(
        [interpreter, "-W", "ignore", __file__, "--describe"], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("interpreters", nargs="*", metavar="OLD NEW")
    parser.add_argument("--added", action="store_true", help="print what is new in NEW, too")
    parser.add_argument("--describe", action="store_true", help="print the description of this torch as JSON")
    arguments = parser.parse_args()
    if arguments.describe:
        warnings.simplefilter("ignore")
        print(json.dumps(describe()))
        return
    old, new = map(described_by, arguments.interpreters)
    print(f"torch {old['version']['torch']['kind']} -> {new['version']['torch']['kind']}")
    for part in ("ledger", "functions", "operators"):
        for sort, lines in changes(old[part], new[part]).items():
            if sort == "added" and not arguments.added:
                continue
            print(f"\n{part}, {sort}: {len(lines)}")
            print("\n".join(f"    {line}" for line in lines))


if __name__ == "__main__":
    main()
