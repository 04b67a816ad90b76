"""Process-wide state that a test must leave as it was: settings of torch and Python, patched functions, open
modes.
"""

import builtins
import gc
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

import numpy
import torch
import torch.nn.modules.module as module_hooks
import torch.optim.optimizer as optimizer_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch
from torch.utils._config_module import _UNSET_SENTINEL

import oneflow as flow
from oneflow import _active, _lazy_mode
from oneflow.utils.global_view import current_global_mode


@dataclass(frozen=True)
class Setting:
    """One piece of process-wide state, and how to put an earlier value back."""

    name: str
    read: Callable[[], object]
    restore: Callable[..., object]


def restore_items(current: dict, earlier: Mapping) -> None:
    """Make a dictionary equal to an earlier copy of it."""
    for key in current.keys() - earlier.keys():
        del current[key]
    current.update({key: value for key, value in earlier.items() if current.get(key, ...) is not value})


def dictionary(name: str, current: dict) -> Setting:
    """A dictionary whose items stay the same."""
    return Setting(name, current.copy, lambda earlier: restore_items(current, earlier))


# Variables that pytest, torch's compiler, OpenCV and OpenMP set for themselves.
SET_BY_LIBRARIES = (
    "PYTEST_",
    "TORCHINDUCTOR_",
    "_TORCHINDUCTOR_",
    "TRITON_",
    "LD_LIBRARY_PATH",
    "QT_",
    "KMP_",
)


def environment() -> dict[str, str]:
    """The environment variables that a test may set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SET_BY_LIBRARIES)}


def restore_environment(earlier: dict[str, str]) -> None:
    for name in environment().keys() - earlier.keys():
        del os.environ[name]
    os.environ.update(earlier)


# torch replaces the first three when it loads its compiler; the mock of torch keeps the last for files
# imported under it.
REPLACED_ON_PURPOSE = {"torch.manual_seed", "Module.__init__", "Module.__setstate__", "builtins.__import__"}


def attributes(owner: object) -> Setting:
    """The functions and properties of a module or class. New names are no change: torch adds some when it
    loads a part.
    """
    return Setting(
        f"functions of {owner.__name__}", lambda: Attributes(owner), lambda earlier: earlier.restore()
    )


class Attributes:
    """The attributes of a module or class at one time; equal to another time if no function was replaced."""

    def __init__(self, owner: object):
        self.owner, self.values = owner, dict(vars(owner))

    def replaced(self, later: dict) -> dict[str, object]:
        return {
            name: value
            for name, value in self.values.items()
            if later.get(name) is not value
            and (callable(value) or isinstance(value, property))
            and f"{self.owner.__name__}.{name}" not in REPLACED_ON_PURPOSE
        }

    def __eq__(self, earlier: "Attributes") -> bool:
        """Whether no function of an earlier time was replaced."""
        return not earlier.replaced(self.values)

    def restore(self) -> None:
        for name, value in self.replaced(vars(self.owner)).items():
            setattr(self.owner, name, value)

    def __repr__(self) -> str:
        replaced = self.replaced(vars(self.owner))
        return repr({name: vars(self.owner).get(name) for name in replaced}) if replaced else "those of torch"


def search_path() -> list[str]:
    """The folders of sys.path without those of installed packages: setuptools adds its own when it is
    imported.
    """
    return [folder for folder in sys.path if "-packages" not in folder]


def restore_search_path(earlier: list[str]) -> None:
    sys.path[:] = [*earlier, *(folder for folder in sys.path if "-packages" in folder)]


def override_of(entry: object) -> object:
    """The value that was set for an option. torch 2.13 keeps it in a context variable, and torch 2.11 as it
    is.
    """
    override = entry.user_override
    return override.get() if isinstance(override, ContextVar) else override


def set_override(entry: object, value: object) -> None:
    if isinstance(entry.user_override, ContextVar):
        entry.user_override.set(value)
    else:
        entry.user_override = value


_OF_TORCH = {"aot_inductor.metadata"}  # torch notes there for which machine it compiles a package


class Overrides:
    """The values that were set in a configuration module of torch."""

    def __init__(self, module: str):
        self.module = sys.modules.get(module)
        self.options = self.module._config if self.module else {}
        self.values = {name: override_of(option) for name, option in self.options.items()}

    def changed(self, later: "Overrides") -> dict[str, object]:
        """The values that another one replaced. An option has its default value until it is set."""
        changes = {}
        for name in (
            self.values.keys() & later.values.keys()
        ) - _OF_TORCH:  # the module may be loaded in between
            value, current, default = self.values[name], later.values[name], self.options[name].default
            effective, current = (default if v is _UNSET_SENTINEL else v for v in (value, current))
            if effective is not current and effective != current:
                changes[name] = value
        return changes

    def __eq__(self, other: "Overrides") -> bool:
        return self.values == other.values or not self.changed(other)

    def restore(self) -> None:
        for name, value in self.changed(Overrides(self.module.__name__)).items():
            set_override(self.options[name], value)

    def __repr__(self) -> str:
        changes = self.changed(Overrides(self.module.__name__)) if self.module else {}
        return (
            repr({name: override_of(self.options[name]) for name in changes}) if changes else "as set before"
        )


def configuration(module: str) -> Setting:
    return Setting(module, lambda: Overrides(module), lambda earlier: earlier.restore())


def unnamed_threads() -> set[str]:
    """The threads that a test started itself; pools name theirs."""
    return {
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("Thread-") and not thread.daemon
    }


def pop_modes(pop: Callable[[], object], depth: Callable[[], int]) -> Callable[[int], None]:
    """Return a function that leaves modes until as many are active as before."""

    def restore(earlier: int) -> None:
        while depth() > earlier:
            pop()

    return restore


def set_handlers(earlier: dict[signal.Signals, object]) -> None:
    for number, handler in earlier.items():
        signal.signal(number, handler)


def set_deterministic(earlier: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(earlier[0], warn_only=earlier[1])


def autocast_state() -> tuple:
    enabled = [(torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in ("cpu", "cuda")]
    return (*enabled, torch.is_autocast_cache_enabled())


def set_autocast(earlier: tuple) -> None:
    for name, (enabled, dtype) in zip(("cpu", "cuda"), earlier, strict=False):
        torch.set_autocast_enabled(name, enabled)
        torch.set_autocast_dtype(name, dtype)
    torch.set_autocast_cache_enabled(earlier[2])


def flags(owner: object, *names: str) -> Setting:
    """Plain attributes that turn something on or off."""
    return Setting(
        f"{owner.__name__} {' '.join(names)}",
        lambda: [getattr(owner, name) for name in names],
        lambda earlier: [setattr(owner, name, value) for name, value in zip(names, earlier, strict=True)],
    )


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGPROF]
HOOKS = {
    f"{module.__name__}.{name}": hooks
    for module in (module_hooks, optimizer_hooks)
    for name, hooks in vars(module).items()
    if name.startswith("_global") and isinstance(hooks, dict)
}
SETTINGS = [
    Setting("dialect", flow.get_dialect, flow.set_dialect),
    Setting("a capture runs", _active.capturing, lambda earlier: setattr(_active.STATE, "recorder", None)),
    Setting(
        "guards of the lazy mode",
        _lazy_mode._lazy.copy,
        lambda e: _lazy_mode._lazy.__setitem__(slice(None), e),
    ),
    Setting(
        "dispatch modes",
        _python_dispatch._len_torch_dispatch_stack,
        pop_modes(_python_dispatch._pop_mode, _python_dispatch._len_torch_dispatch_stack),
    ),
    Setting("default device", torch.get_default_device, lambda earlier: torch.set_default_device(None)),
    Setting(
        "function modes",
        lambda: len(_get_current_function_mode_stack()),
        pop_modes(torch.overrides._pop_mode, torch._C._len_torch_function_stack),
    ),
    Setting("global mode", lambda: current_global_mode().is_enabled, lambda earlier: None),
    Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("inference mode", torch.is_inference_mode_enabled, lambda earlier: None),
    Setting("autocast", autocast_state, set_autocast),
    Setting("anomaly detection", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting(
        "deterministic algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        set_deterministic,
    ),
    Setting("threads of torch", torch.get_num_threads, torch.set_num_threads),
    Setting(
        "precision of float32 matmul",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    flags(torch.backends.cudnn, "enabled", "benchmark", "deterministic", "allow_tf32"),
    Setting(
        "process group",
        lambda: torch.distributed.is_available() and torch.distributed.is_initialized(),
        lambda earlier: torch.distributed.destroy_process_group(),
    ),
    *(dictionary(name, hooks) for name, hooks in HOOKS.items()),
    configuration("torch._dynamo.config"),
    configuration("torch._inductor.config"),
    *map(attributes, (torch, torch.Tensor, torch.nn.Module, torch.nn.functional, torch.optim.Optimizer)),
    *map(attributes, (torch.autograd, torch.random, torch.cuda, builtins, math)),
    Setting("sys.modules['torch']", lambda: sys.modules["torch"], lambda m: sys.modules.update(torch=m)),
    Setting("sys.path", search_path, restore_search_path),
    Setting("sys.argv", sys.argv.copy, lambda earlier: sys.argv.__setitem__(slice(None), earlier)),
    flags(sys, "excepthook", "displayhook"),
    Setting("working folder", os.getcwd, os.chdir),
    Setting("environment", environment, restore_environment),
    Setting("garbage collection", gc.isenabled, lambda earlier: gc.enable() if earlier else gc.disable()),
    Setting("numpy errors", numpy.geterr, lambda earlier: numpy.seterr(**earlier)),
    Setting(
        "timer",
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        lambda earlier: signal.setitimer(signal.ITIMER_REAL, 0),
    ),
    Setting(
        "signal handlers", lambda: {number: signal.getsignal(number) for number in SIGNALS}, set_handlers
    ),
    Setting("threads of Python", unnamed_threads, lambda earlier: None),
]


def read_state() -> list[object]:
    """Return the value of each setting."""
    return [setting.read() for setting in SETTINGS]


def describe_change(earlier: object, current: object) -> str:
    """Say what changed; of dictionaries, the changed items only."""
    if isinstance(earlier, dict) and isinstance(current, dict):
        names = [name for name in {**earlier, **current} if earlier.get(name) != current.get(name)]
        earlier, current = ({name: state.get(name) for name in names} for state in (earlier, current))
    return f"{earlier!r} before, {current!r} after"


def restore_state(earlier: list[object]) -> list[str]:
    """Put the settings back that have changed since, and describe the changes."""
    changes = []
    for setting, value in zip(SETTINGS, earlier, strict=True):
        current = setting.read()
        if current != value:
            changes.append(f"{setting.name}: {describe_change(value, current)}")
            setting.restore(value)
    return changes


def seed_generators() -> None:
    """Seed the random numbers of torch, NumPy and Python, so that a test samples the same in any order."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed would look for every kind of device
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    numpy.random.seed(0)
    random.seed(0)
