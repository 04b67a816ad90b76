"""Adjustments for four libraries that expect the classes of OneFlow's tensors and modules to differ from
torch's, and for torch.compile. They are applied when the library is imported.

einops asks each imported framework whether a tensor belongs to it. Our tensors are torch tensors, so einops
must use its torch backend. Its OneFlow backend was written for other tensors: it refuses the mean of bfloat16
and is not traced. The adjustment makes that backend decline every tensor. Checked with einops 0.6 to 0.8,
whose tests of the OneFlow backend pass too. einops also keeps a table of the backends by the class of a
tensor. In build() of a graph, a tensor is torch's FakeTensor. einops gets the backend of a plain tensor for
it, so that the graph need not warn of the class.

onediff stores a torch module and the OneFlow module converted from it in one module, and assigns the second
as a plain attribute. Our modules are torch modules, so torch would register it as a child. Checked with
onediff 1.2.

onefx does not trace into modules whose class comes from oneflow.nn; our classes come from torch.nn. It looks
up the functions to record in the dicts of OneFlow's modules, but our modules contain a name only after its
first use. Checked with onefx 0.0.3.

flowflops removes its counters from a model but leaves its counting hooks, because OneFlow returned no hook
handle. It then builds a graph of the model. OneFlow runs no hooks in a graph. This package runs them, and
they would fail there. Checked with flowflops 0.0.1.

torch.compile looks up attributes of a class in its dict, where torch.Tensor has a `Method` for some methods.
It must find torch's own method, which the attribute of the class is.

Tests: tests/clients/test_torch_programs.py, tests/core/test_tensor_table.py.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from typing import Any

import torch

from .._method import plain_method


def _prefer_torch(backends: Any) -> None:
    if hasattr(backends, "OneFlowBackend"):
        backends.OneFlowBackend.is_appropriate_type = lambda self, tensor: False
    original = getattr(backends, "get_backend", None)
    if original is None:
        return
    example = torch.empty(0, device="cpu")

    @functools.wraps(original)
    def get_backend(tensor: Any) -> Any:
        return original(example if type(tensor).__name__ == "FakeTensor" else tensor)

    for name, module in list(sys.modules.items()):  # some have imported it
        if name.partition(".")[0] == "einops" and getattr(module, "get_backend", None) is original:
            module.get_backend = get_backend  # type: ignore[attr-defined]


def _keep_pairs_plain(dual_module: Any) -> None:
    dual_class = dual_module.DualModule
    assign = dual_class.__setattr__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        (object.__setattr__ if name in ("_torch_module", "_oneflow_module") else assign)(self, name, value)

    dual_class.__setattr__ = __setattr__


def _trace_as_leaves(symbolic_trace: Any) -> None:
    is_leaf = symbolic_trace.Tracer.is_leaf_module

    def is_leaf_module(self: Any, m: Any, module_qualified_name: str) -> bool:
        ours = m.__module__.startswith(("torch.nn.", "torch.ao.nn.")) and not isinstance(
            m, torch.nn.Sequential
        )
        return ours or is_leaf(self, m, module_qualified_name)

    symbolic_trace.Tracer.is_leaf_module = is_leaf_module
    for module in symbolic_trace._oneflow_default_wrapped_packages:
        for name in dir(module):
            getattr(module, name, None)  # stores the name in the module's dict


def _take_hooks_away(flow_engine: Any) -> None:
    count = flow_engine.get_eager_flops

    def get_eager_flops(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = [(m._forward_hooks, m._forward_hooks.copy()) for m in model.modules()]
        try:
            return count(model, *args, **kwargs)
        finally:
            for hooks, kept in before:
                hooks.clear()
                hooks.update(kept)

    flow_engine.get_eager_flops = get_eager_flops


def _find_methods_of_classes(user_defined: Any) -> None:
    class_variable = user_defined.UserDefinedClassVariable
    look_up = getattr(class_variable, "lookup_cls_mro_attr", None)
    if look_up is not None:  # torch 2.13
        class_variable.lookup_cls_mro_attr = lambda self, name: plain_method(look_up(self, name))


def _find_methods_of_tensors(variables: Any) -> None:
    attributes = getattr(variables, "all_tensor_attrs", {})
    attributes.update({name: plain_method(value) for name, value in attributes.items()})


_ADJUSTMENTS = {
    "torch._dynamo.variables.user_defined": _find_methods_of_classes,
    "torch._dynamo.variables.tensor": _find_methods_of_tensors,
    "einops._backends": _prefer_torch,
    "onediff.infer_compiler.backends.oneflow.dual_module": _keep_pairs_plain,
    "onefx._symbolic_trace": _trace_as_leaves,
    "flowflops.flow_engine": _take_hooks_away,
}


class _Finder:
    """Find only these modules, with Python's finders, and run the adjustment after their import."""

    @staticmethod
    def find_spec(
        fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        adjust = _ADJUSTMENTS.get(fullname)
        if adjust is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                adjust(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Adjust the libraries, whether they are imported before or after this call."""
    for name, adjust in _ADJUSTMENTS.items():
        if name in sys.modules:
            adjust(sys.modules[name])
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
