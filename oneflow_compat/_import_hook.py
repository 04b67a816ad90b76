"""The import hook: modules that no file of this package holds.

`import oneflow.a.b` of a path that only torch has gives the module `torch.a.b` itself, never a copy. A row of
`_tables/deep_paths.py` gives another module of ours, a package without a file, or a module of names.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from types import ModuleType
from typing import Any

from ._method import own_attribute
from ._tables.deep_paths import NAMES, PACKAGES, SAME_MODULES

ROOT = __package__  # "oneflow"
_MISSING = object()


class TableError(ImportError):
    """A row of a table is wrong: unknown target, a name bound twice, a changed signature."""


def import_target(path: str) -> Any:
    """Return the object at "module:name" (ours, relative to the package) or "torch.a.b"."""
    obj: Any
    if ":" in path:
        module, name = path.split(":")
        obj = importlib.import_module("." + module, ROOT)
    else:
        *parents, name = path.split(".")
        obj = importlib.import_module(parents[0])
        for i, part in enumerate(parents[1:], 2):
            inner = getattr(obj, part, _MISSING)
            obj = importlib.import_module(".".join(parents[:i])) if inner is _MISSING else inner
    try:
        return own_attribute(obj, name) if isinstance(obj, type) else getattr(obj, name)
    except AttributeError:
        raise TableError(f"table row names {path!r}, which does not exist") from None


def with_torch_fx_taught(value: Any) -> Any:
    """Return `value`; if it is torch.fx, first teach it to record our functions.

    No attribute of the value is read, because a deprecated name of torch warns when it is.
    """
    if value is sys.modules.get("torch.fx"):
        importlib.import_module("._fx", ROOT).teach()
    return value


# --------------------------------------------------------------------------- which module a path means
def is_row(path: str) -> bool:
    """Whether `_tables/deep_paths.py` has a row for a module."""
    return path in NAMES or path in SAME_MODULES or path in PACKAGES


def is_ours(fullname: str) -> bool:
    """Whether this package ships a module of this name."""
    if fullname in sys.modules:
        return getattr(sys.modules[fullname], "__name__", "") == fullname
    parent, _, last = fullname.rpartition(".")
    module = sys.modules.get(parent)
    if module is None or getattr(module, "__name__", "") != parent or not hasattr(module, "__path__"):
        return False
    return importlib.machinery.PathFinder.find_spec(fullname, module.__path__) is not None


def _homes(parent: str) -> list[str]:
    """Return the packages in which `import parent.name` looks for a module, in this order.

    They are the package that the path `parent` stands for, those that it names as `_modules_of`, and torch's
    package of the same path.
    """
    module = sys.modules.get(parent)
    name = getattr(module, "__name__", "")
    if name.split(".")[0] != ROOT:
        return [name] if name else []
    return [
        *([name] if name != parent else ()),
        *getattr(module, "_modules_of", ()),
        "torch" + name[len(ROOT) :],
    ]


def _findable(name: str) -> bool:
    try:  # torch.ops and some others are objects without a spec of their own
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _module_of(path: str) -> str | None:
    """Return the name of the module that a path of ours without a file means."""
    if path in SAME_MODULES:
        return f"{ROOT}.{SAME_MODULES[path]}"
    parent, _, last = path.rpartition(".")
    return next((f"{home}.{last}" for home in _homes(parent) if _findable(f"{home}.{last}")), None)


# --------------------------------------------------------------------------- the finder
class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find and make the modules that no file of this package holds."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in NAMES or fullname in PACKAGES:
            origin = f"{ROOT}._tables.deep_paths"
            return importlib.machinery.ModuleSpec(
                fullname, self, origin=origin, is_package=fullname in PACKAGES
            )
        if not fullname.startswith(ROOT + ".") or is_ours(fullname):
            return None
        module_name = _module_of(fullname)
        if module_name is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=module_name)
        spec.loader_state = module_name
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None  # an ordinary module, which exec_module() fills or replaces

    def get_code(self, fullname: str) -> Any:
        """Return the code that `python -m` runs: that of the module which the path means."""
        spec = self.find_spec(fullname)
        if spec is None or spec.loader_state is None:
            return compile("", f"<{fullname}>", "exec")
        target: Any = importlib.util.find_spec(spec.loader_state)
        return target.loader.get_code(spec.loader_state)

    def exec_module(self, module: types.ModuleType) -> None:
        spec: Any = module.__spec__
        if spec.loader_state is not None:
            meant = with_torch_fx_taught(importlib.import_module(spec.loader_state))
            sys.modules[spec.name] = meant
            _keep_other_object(spec.name, meant)
        elif spec.name in PACKAGES:
            module.__doc__ = PACKAGES[spec.name]
            vars(module)["__getattr__"] = functools.partial(_submodule, spec.name)
        else:
            module.__doc__ = f"{spec.name}: names that lie elsewhere in oneflow."
            for name, _, path in (row.partition("=") for row in NAMES[spec.name].split()):
                setattr(module, name, _public_object(path or name))


def _keep_other_object(path: str, module: ModuleType) -> None:
    """Keep an object of a package that has the name of a submodule, such as torch.multiprocessing.spawn.

    The import system binds the module `path` in its parent when this returns. torch has imported that module
    before, and has its own object under the name.
    """
    parent_name, _, name = path.rpartition(".")
    parent = sys.modules[parent_name]
    torchs = sys.modules.get("torch" + parent_name[len(ROOT) :])
    if torchs is None or vars(torchs).get(name, module) is module:
        return
    plain_class = type(parent)

    def __setattr__(self: ModuleType, attr: str, value: object) -> None:
        if attr == name and value is module:
            self.__class__ = plain_class
        else:
            plain_class.__setattr__(self, attr, value)

    parent.__class__ = type(plain_class.__name__, (plain_class,), {"__setattr__": __setattr__})


def _submodule(package: str, name: str) -> ModuleType:
    """Return a module of a package without a file."""
    if not is_row(f"{package}.{name}"):
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(f"{package}.{name}")


def _public_object(path: str) -> Any:
    """Return the object at a path from `oneflow`, at "module:name", or of another package ("torch.a.b")."""
    if ":" in path or path.split(".")[0] in ("torch", "oneflow_autotest", "builtins"):
        return import_target(path)
    return functools.reduce(getattr, path.split("."), sys.modules[ROOT])


def install_import_hook() -> None:
    """Add the finder to sys.meta_path, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
