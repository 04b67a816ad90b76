"""flow.scope: where (placement), how (view) and under which names (namespace) a part of a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...nn.graph import scopes as _scopes
from ._jobs import context as _context
from ._jobs.context import scope as _open
from ._jobs.devices import Placement, torch_device

if TYPE_CHECKING:
    from typing import Any


def placement(device_tag: str, machine_device_ids: Any, hierarchy: Any = None) -> _PlacementScope:
    """Run the enclosed part on "cpu" or "gpu", machines and devices as "0:0-3" or a list of such.

    One device of this process does the work. "gpu" without a CUDA device is an error, unless the CPU was
    allowed (ONEFLOW_LEGACY_CPU=1). The object is also what default_placement_scope takes.
    """
    return _PlacementScope(device_tag, machine_device_ids, hierarchy)


class _Scope:
    """A context manager that may be entered again and again."""

    scope_name: str
    value: Any
    _entered: list[Any]

    def __enter__(self) -> Any:
        self._entered.append(_open(self.scope_name, self.value))
        self._entered[-1].__enter__()
        return self.value

    def __exit__(self, *exc: Any) -> bool | None:
        return self._entered.pop().__exit__(*exc)


class _PlacementScope(_Scope):
    def __init__(self, device_tag: str, machine_device_ids: Any, hierarchy: Any = None) -> None:
        if isinstance(machine_device_ids, str):
            machine_device_ids = (machine_device_ids,)
        elif isinstance(machine_device_ids, dict):
            machine_device_ids = tuple(f"{m}:{d}" for m, d in machine_device_ids.items())
        self.value = Placement(
            device_tag, tuple(machine_device_ids), None if hierarchy is None else tuple(hierarchy)
        )
        self._entered = []

    scope_name = "placement"
    device_tag = property(lambda self: self.value.device_tag)
    machine_device_ids = property(lambda self: list(self.value.machine_device_ids))
    parallel_num = property(lambda self: self.value.parallel_num)

    def __enter__(self) -> Any:
        if _context.trace() is not None:
            torch_device(self.value.kind)
        return super().__enter__()


class _View(_Scope):
    scope_name = "view"

    def __init__(self) -> None:
        self._entered = []
        self.value = type(self).__name__.removesuffix("_view")


class consistent_view(_View):
    """All devices hold one logical blob (the default)."""


class mirrored_view(_View):
    """Each device holds its own blob; inputs and results are lists with one array per device."""


def mirrored_view_enabled() -> bool:
    return _context.innermost("view") == "mirrored"


def consistent_view_enabled() -> bool:
    return not mirrored_view_enabled()


class namespace(_Scope):
    """Put "<name>-" in front of the variables made inside."""

    scope_name = "namespace"

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"scope.namespace takes a str, found {name!r}")
        self.value, self._entered = name, []


class CurrentScope:
    """The result of `current_scope()`: placement, view, namespaces."""

    def __init__(self) -> None:
        self.device_parallel_desc_symbol = _context.innermost("placement") or Placement("cpu", ("0:0",))
        self.is_mirrored = mirrored_view_enabled()
        self.namespaces = _context.all_open("namespace")

    def proto(self) -> Any:
        """The scope of nn.Graph's block being built as a message, as OneFlow 0.5's tests ask for it."""
        return _scopes.current_scope().proto()


def current_scope(*args: Any, **kwargs: Any) -> Any:
    return CurrentScope()
