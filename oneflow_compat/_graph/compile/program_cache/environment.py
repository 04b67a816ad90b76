"""The environment of a compiled region: versions, the processor, and settings."""

import functools
import hashlib
import os
import platform
import sys
import sysconfig
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch

from ...._kernels import _ext
from ....version import __version__
from .region_record import NotCacheable

# variables that decide neither the generated code nor the flags of the compiler
_HARMLESS = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_WORKER_START")
_COMPILER = ("CXX", "CXXFLAGS", "CPPFLAGS", "CFLAGS", "ATEN_CPU_CAPABILITY")
_NAMES = ("vendor_id", "model name", "CPU implementer", "CPU part")  # lines of /proc/cpuinfo


def environment() -> dict[str, Any]:
    """Return {name of a fact: value}. A binary serves a process with the same values."""
    return {
        **versions(),
        **processor(),
        "threads": torch.get_num_threads(),
        "settings": _torch_settings(),
        "variables": {k: v for k, v in sorted(os.environ.items()) if _is_setting(k)},
        "inductor": _changed_options(),
    }


@functools.cache
def versions() -> dict[str, Any]:
    return {
        "oneflow": f"{__version__} {_code_checksum()}",
        "kernels": _ext.load() == "loaded",
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "python": sysconfig.get_config_var("EXT_SUFFIX"),
    }


@functools.cache
def processor() -> dict[str, Any]:
    """Return the processor's name, and its instruction sets, because g++ compiles for exactly these."""
    try:
        with open("/proc/cpuinfo") as file:
            core = file.read(1 << 14).split("\n\n")[0]
    except OSError:
        core = ""
    lines = dict(line.split(":", 1) for line in core.splitlines() if ":" in line)
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    sets = "/".join(lines.get(name, "") for name in ("flags", "Features"))
    digest = hashlib.sha256(sets.encode()).hexdigest()[:16]
    return {
        "machine": f"{sys.platform} {platform.machine()}",
        "processor": "/".join(filter(None, map(lines.get, _NAMES))) or platform.processor(),
        "instructions": f"{torch.backends.cpu.get_cpu_capability()} {digest}",
    }


@functools.cache
def _code_checksum() -> str:
    """Return a checksum of the code of this package that decides what is compiled."""
    package, digest = Path(__file__).resolve().parents[3], hashlib.sha256()
    for folder in ("_graph/compile", "_graph/program", "_kernels"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _torch_settings() -> list[str | bool]:
    return [
        torch.get_default_dtype().__str__(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.mkldnn.is_available(),
        torch.backends.mkl.is_available(),
    ]


def _is_setting(name: str) -> bool:
    if name.startswith("TORCHINDUCTOR_"):
        return name not in _HARMLESS
    return name in _COMPILER or name == "ONEFLOW_GRAPH_BLOCKS"


def _changed_options() -> dict[str, Any]:
    """Return the options of torch's inductor that the user has changed. Inductor is not imported for it."""
    config = sys.modules.get("torch._inductor.config")
    if config is None:
        return {}
    from torch.utils._config_module import _UNSET_SENTINEL  # inductor's config has imported it

    changed = {}
    for name, entry in config._config.items():
        if _override_of(entry) is not _UNSET_SENTINEL and entry.alias is None:
            value = getattr(config, name)
            if callable(value):
                raise NotCacheable(f"inductor's option {name} is a function")
            if value != _unchanged(entry, _UNSET_SENTINEL):
                changed[name] = repr(value)
    return changed


def _override_of(entry: Any) -> Any:
    """Return the value that was assigned to an option.

    torch 2.13 keeps it in a context variable, 2.11 does not.
    """
    override = entry.user_override
    return override.get() if isinstance(override, ContextVar) else override


def _unchanged(entry: Any, unset: Any) -> Any:
    """Return the value of an option without an assignment: an environment variable's, or the default."""
    values = (entry.env_value_force, entry.env_value_default, entry.default)
    return next((value for value in values if value is not unset), None)
