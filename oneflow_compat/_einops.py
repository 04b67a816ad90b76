"""einops asks the modules that are imported whose tensor it has been given; ours are torch's, so torch must answer.

Its own OneFlow backend, made for tensors that are no torch tensors, refuses the mean of bfloat16 and is not traced. It is
looked for under a module name; another name takes it out of the choice. Checked with einops 0.6 to 0.8;
test: tests/clients/test_torch_programs.py.
"""
import importlib.machinery
import sys

_MODULE = "einops._backends"


def _prefer_torch(backends):
    if hasattr(backends, "OneFlowBackend"):
        backends.OneFlowBackend.framework_name = "oneflow with tensors of its own"


class _Finder:
    """Finds only einops._backends, as Python would, and runs `_prefer_torch` after it."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                _prefer_torch(module)

            spec.loader.exec_module = exec_module
        return spec


def install():
    """For an einops imported before or after."""
    if _MODULE in sys.modules:
        _prefer_torch(sys.modules[_MODULE])
    elif _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
