"""enable and disable: the redirection of import statements."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib
import importlib.util
import pkgutil
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from .. import _env
from .dummy import DummyModule, error_msg

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable, Sequence


_REAL_SIDE = {  # libraries that always get the real torch
    "torch",
    "oneflow",
    "functorch",
    "torchgen",
    "importlib",
    "pickle",
    "pkgutil",
    "inspect",
    "pyro",  # patches torch's classes, and rejects a torch module of another name
}
_import = builtins.__import__
_resolve_name = pkgutil.resolve_name
_dialect_before = "oneflow"  # the dialect before the mock was enabled
_stack: list[Any] = []  # a _Config (enabled) or None (disabled); the last entry is in force
# files imported under the mock: name -> {True: the module that sees oneflow, False: the one that sees torch}.
# A file that is imported outside the mock, too, has both.
_sides: dict[str, dict[bool, Any]] = {}
# global names that enable() switched: (id of the globals, name) -> (the globals, torch's module, oneflow's)
_replaced: dict[tuple[int, str], tuple[dict[str, Any], Any, Any]] = {}


class MissingName(ImportError, NotImplementedError):
    """A name to import that neither library has; OneFlow raises NotImplementedError."""


class MissingModule(ModuleNotFoundError, NotImplementedError):
    """A module to import that neither library has; OneFlow raises NotImplementedError."""


class _Config:
    def __init__(
        self,
        lazy: bool | None,
        verbose: bool | None,
        extra_dict: dict[str, str] | None,
        main_pkg: str | None,
        required_dependencies: Sequence[str],
    ) -> None:
        self.lazy, self.verbose = bool(lazy), bool(verbose)
        self.names = {"torch": "oneflow", **(extra_dict or {})}
        self.only = {main_pkg, *required_dependencies} if main_pkg else None

    def target(self, name: str) -> str | None:
        """Return the module that `name` is redirected to."""
        parts = name.split(".")
        for n in range(len(parts), 0, -1):
            to = self.names.get(".".join(parts[:n]))
            if to is not None:
                return ".".join([to, *parts[n:]])
        return None

    def concerns(self, importer: str) -> bool:
        top = importer.partition(".")[0]
        return top not in _REAL_SIDE and (self.only is None or top in self.only)


class ModuleWrapper(ModuleType):
    """A module whose missing names are placeholders (lazy mode)."""

    def __init__(self, module: types.ModuleType, verbose: bool = False) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(
            _module=module, _verbose=verbose, __package__=getattr(module, "__package__", None)
        )

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._module, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return DummyModule(f"{self.__name__}.{name}", self._verbose)
        return ModuleWrapper(value, self._verbose) if isinstance(value, ModuleType) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._module, name)

    def __dir__(self) -> list[str]:
        return dir(self._module)


def _current() -> _Config | None:
    """Return the redirection in force, or None."""
    return _stack[-1] if _stack else None


def is_enabled() -> bool:
    """Whether `import torch` is redirected now."""
    return _current() is not None


def _importing_module(globals: Any) -> str:
    """Return the module that contains an import. For a plain call of __import__, and for code without a
    module name (exec, eval), return the caller's module.
    """
    name: Any = (globals or {}).get("__name__")
    frame: types.FrameType | None = sys._getframe(2)
    while name is None and frame is not None:
        name, frame = frame.f_globals.get("__name__"), frame.f_back
    return name or ""


def _mocked_import(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> Any:
    """Import like `builtins.__import__`, except that a redirected name gives the module of the mock."""
    config = _current()
    if fromlist == [] and isinstance(
        fromlist, list
    ):  # C code, as of pickle; it takes the module of this name
        return _import(name, globals, locals, fromlist, level)
    # pickle in Python passes a list or omits the globals
    is_statement = globals is not None and not isinstance(fromlist, list)
    if is_statement and not level and name in _sides:
        return _import_side(name, config is not None, globals, locals, fromlist)
    if config is None or level or not config.concerns(_importing_module(globals)):
        return _import(name, globals, locals, fromlist, level)
    target = config.target(name)
    if target is None:
        return _import(name, globals, locals, fromlist, level)
    _note_side(globals or {})
    module = _import_target(name, target, config)
    if fromlist:
        _import_items(module, target, fromlist)
        return module
    if "." not in name:
        return module
    return _top_package(name, config, globals, locals)


def _top_package(
    name: str, config: _Config, globals: dict[str, Any] | None, locals: dict[str, Any] | None
) -> ModuleType:
    """Return what `import torch.nn` binds: the top package."""
    top = name.partition(".")[0]
    top_target = config.target(top)
    package = importlib.import_module(top_target) if top_target else _import(top, globals, locals, (), 0)
    return ModuleWrapper(package, config.verbose) if config.lazy else package


def _import_target(name: str, target: Any, config: Any) -> Any:
    """Import the module that `name` is redirected to; in lazy mode, its missing names are placeholders."""
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target}.".startswith(f"{error.name}."):
            raise  # the module exists, but it imports a missing module
        if not config.lazy:
            raise MissingModule(f"{target}{error_msg} (imported as {name!r})", name=name) from None
        return DummyModule(target, config.verbose)
    if not config.lazy or isinstance(module, ModuleWrapper) or hasattr(module, "_refuse"):
        return module
    return ModuleWrapper(module, config.verbose)


def _import_items(module: types.ModuleType, package: str, names: Iterable[str]) -> None:
    """Import the names of a from-import that are not attributes of the module as submodules of `package`."""
    for name in names:
        if name != "*" and not hasattr(module, name):
            _import_item(package, name)


def _import_item(package: str, item: str) -> None:
    """Import the submodule `package.item`."""
    try:
        importlib.import_module(f"{package}.{item}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{item}":
            raise
        raise MissingName(f"{package}.{item}{error_msg}", name=package) from None


def _note_side(importer: Any) -> None:
    """Record a file that imports torch while the file is being imported. Packages are not recorded: they keep
    their first import.
    """
    name, spec = importer.get("__name__", ""), importer.get("__spec__")
    if getattr(spec, "_initializing", False) and "." not in name and "__path__" not in importer:
        _sides.setdefault(name, {})[True] = sys.modules.get(name)


def _import_side(name: str, mocked: bool, globals: Any, locals: Any, fromlist: Any) -> Any:
    """Import a file that was imported under the mock. If the mock is on, return the former module; if it is
    off, import the file again.
    """
    sides = _sides[name]
    if sides.get(not mocked) is sys.modules.get(name) is not None:
        if mocked in sides:
            sys.modules[name] = sides[mocked]
        else:
            del sys.modules[name]
    result = _import(name, globals, locals, fromlist, 0)
    sides[mocked] = sys.modules[name]
    return result


def _mocked_resolve_name(name: str) -> Any:
    """Resolve names for unittest.mock.patch("torch.cuda.is_available") as the code under test sees torch."""
    config = _current()
    is_patching = sys._getframe(1).f_globals.get("__name__") == "unittest.mock"
    target = config.target(name) if config and is_patching else None
    return _resolve_name(target or name)


class _Switch:
    """Base class of enable and disable. It takes effect immediately; as a context manager it is undone at the
    end.
    """

    def __init__(self, config: Any, depth: int) -> None:
        was = is_enabled()
        _stack.append(config)
        _hook_imports()
        self._frame_globals = sys._getframe(depth).f_globals
        self._swapped = _swap_globals(self._frame_globals, config)
        if was or config is not None:
            self._swapped |= _bind_torch(self._frame_globals, config)
        _follow_dialect(was)

    def __enter__(self) -> _Switch:
        return self

    def __exit__(self, *error: object) -> Literal[False]:
        was = is_enabled()
        _stack.pop()
        self._frame_globals.update(self._swapped)
        _follow_dialect(was)
        _hook_imports()
        return False


def _hook_imports() -> None:
    """Replace Python's import only while the mock is on, and for modules that were imported on both sides."""
    builtins.__import__ = _mocked_import if is_enabled() or _sides else _import
    pkgutil.resolve_name = _mocked_resolve_name if is_enabled() else _resolve_name


@atexit.register
def _end() -> None:
    """Give Python its own import statement back: objects that die at exit import modules, too."""
    builtins.__import__, pkgutil.resolve_name = _import, _resolve_name


class enable(_Switch):
    """Redirect `import torch` to oneflow, from now on or for a `with` block.

    lazy: a missing name becomes a placeholder that raises when used; verbose: print each placeholder.
    extra_dict: more redirections, {"module": "other module"}. main_pkg: redirect only imports
    inside this package (and `required_dependencies`). mock_version: text for torch.__version__.
    Global names of the caller that hold torch or one of its modules are switched as well. A caller without
    a global name `torch` gets one.
    With ONEFLOW_DISABLE_MOCK_TORCH=1 nothing is redirected.

    TypeError unless `extra_dict` maps module names to module names.
    """

    def __init__(
        self,
        lazy: bool | None = None,
        verbose: bool | None = None,
        extra_dict: dict[str, str] | None = None,
        *,
        main_pkg: str | None = None,
        mock_version: str | None = None,
        required_dependencies: Sequence[str] = [],
        _from_cli: bool = False,
    ) -> None:
        if extra_dict is not None and not isinstance(extra_dict, dict):
            raise TypeError(
                "mock_torch.enable: extra_dict maps module names to module names, found"
                f" {type(extra_dict).__name__}"
            )
        off = _env.is_set("ONEFLOW_DISABLE_MOCK_TORCH")
        super().__init__(
            None if off else _Config(lazy, verbose, extra_dict, main_pkg, required_dependencies), 2
        )
        if isinstance(mock_version, str):
            import oneflow

            version = type(oneflow.__version__)(mock_version)  # the class compares versions with tuples
            oneflow.__version__ = oneflow.version.__version__ = version


class disable(_Switch):
    """Let `import torch` yield the real torch again, from now on or for a `with` block."""

    def __init__(self) -> None:
        super().__init__(None, 2)


def _swap_globals(names: dict[str, Any], config: Any) -> dict[str, Any]:
    """Switch the caller's torch modules to oneflow's (or back). Return the former values."""
    swap = _torch_name if config is None else _oneflow_module
    before = {}
    for key, value in list(names.items()):
        if not isinstance(value, ModuleType) or key.startswith("__"):
            continue
        new = swap(names, key, value, config)
        if new is not None and new is not value:
            before[key] = value
            names[key] = new
            if config is not None:
                _replaced[id(names), key] = names, value, new
    return before


def _bind_torch(names: dict[str, Any], config: Any) -> dict[str, Any]:
    """Bind the global name `torch` of a caller that has none, as OneFlow 0.9 does. Return its later value."""
    owner = names.get("__name__", "").partition(".")[0]
    if "torch" in names or owner in _REAL_SIDE or config is not None and not config.concerns(owner):
        return {}
    torch_module = importlib.import_module("torch")
    module = torch_module if config is None else _oneflow_module(names, "torch", torch_module, config)
    if module is None:
        return {}
    names["torch"] = module
    if config is not None:
        _replaced[id(names), "torch"] = names, torch_module, module
    return {"torch": torch_module}


def _oneflow_module(names: dict[str, Any], key: Any, value: Any, config: Any) -> Any:
    """Return the value of the name `key` while `config` is in force; None leaves it unchanged."""
    to = config.target(value.__name__) if value.__name__.partition(".")[0] == "torch" else None
    if to is None:
        return None
    with contextlib.suppress(ImportError):
        module = importlib.import_module(to)
        return ModuleWrapper(module, config.verbose) if config.lazy else module
    return None


def _torch_name(names: dict[str, Any], key: Any, value: Any, config: Any) -> Any:
    """Return the torch module that enable() replaced under the name `key`, or that an import would give."""
    _, torch_module, oneflow_module = _replaced.get((id(names), key), (None, None, None))
    if value is oneflow_module:
        return torch_module
    if value.__name__.partition(".")[0] == "oneflow" and key.partition("_")[0] == "torch":
        with contextlib.suppress(ImportError):
            return importlib.import_module("torch" + value.__name__[len("oneflow") :])
    return None


def _follow_dialect(was_enabled: bool) -> None:
    """Use torch's dialect while the mock is on, and the previous dialect when it is off."""
    global _dialect_before
    import oneflow

    if is_enabled() and not was_enabled:
        _dialect_before = oneflow.get_dialect()
    if is_enabled() or was_enabled:
        dialect = "torch" if is_enabled() else _dialect_before
        if oneflow.get_dialect() != dialect:
            oneflow.set_dialect(dialect)


class OneflowImporter:
    """The redirection as an importer object: `find_spec` finds the module that a torch name is redirected
    to.
    """

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the import spec of a module that this importer serves, else None."""
        config = _current()
        to = config.target(fullname) if config else None
        return importlib.util.find_spec(to) if to else None

    def find_module(self, fullname: str, path: Any = None) -> Any:
        """Return this importer if it serves the module, else None. This is the protocol before Python 3.4."""
        return self if self.find_spec(fullname) else None

    def create_module(self, spec: Any) -> types.ModuleType:
        """Return the oneflow module that replaces a torch module."""
        return importlib.import_module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing, because the module has already run."""

    enable = property(lambda self: is_enabled())
    delete_list: list[str] = []  # OneFlow: modules removed from sys.modules; none here


_importer = OneflowImporter()
