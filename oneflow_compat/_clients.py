"""Two libraries that take OneFlow's tensors and modules for other classes than torch's, set right as they are imported.

einops asks the modules that are imported whose tensor it has been given; ours are torch's, so torch must answer. Its own
OneFlow backend, made for tensors that are no torch tensors, refuses the mean of bfloat16 and is not traced: it says of
every tensor that it is not its own. Checked with einops 0.6 to 0.8, whose own tests pass for its OneFlow backend too.

onediff keeps a torch module and the OneFlow module made from it in one module, and assigns the second as a plain
attribute; ours is a torch module as well, so torch would register it as a child. Checked with onediff 1.2.

Tests: tests/clients/test_torch_programs.py.
"""
import importlib.machinery
import sys


def _prefer_torch(backends):
    if hasattr(backends, "OneFlowBackend"):
        backends.OneFlowBackend.is_appropriate_type = lambda self, tensor: False


def _keep_pairs_plain(dual_module):
    kind = dual_module.DualModule
    assign = kind.__setattr__

    def __setattr__(self, name, value):
        (object.__setattr__ if name in ("_torch_module", "_oneflow_module") else assign)(self, name, value)

    kind.__setattr__ = __setattr__


_ADJUSTMENTS = {
    "einops._backends": _prefer_torch,
    "onediff.infer_compiler.backends.oneflow.dual_module": _keep_pairs_plain,
}


class _Finder:
    """Finds only these modules, as Python would, and runs the adjustment after them."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        adjust = _ADJUSTMENTS.get(fullname)
        if adjust is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                adjust(module)

            spec.loader.exec_module = exec_module
        return spec


def install():
    """For libraries imported before or after."""
    for name, adjust in _ADJUSTMENTS.items():
        if name in sys.modules:
            adjust(sys.modules[name])
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
