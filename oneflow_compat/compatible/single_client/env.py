"""flow.env: machines and logging of the cluster. One process does everything here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._errors import unsupported
from ..._global.placement import placement
from ..._tables.legacy.config import ENV
from ._jobs import session as _session
from ._jobs.settings import setter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _record(name: str, value: float | Sequence[Any]) -> None:
    _session.default().settings[f"env.{name}"] = value


for _name, _row in ENV.items():
    globals()[_name] = setter(_name, _row, "val", _record, _name)


def init() -> bool:
    """Start the environment; there is nothing to start. Returns True."""
    return True


def machine(*val: Any) -> None:
    """The machines of the cluster, dicts with "addr" or addresses.

    More than one is an error: one machine is used.
    """
    machines = list(val[0]) if len(val) == 1 and isinstance(val[0], (list, tuple)) else list(val)
    if len(machines) > 1:
        raise unsupported(
            f"flow.env.machine with {len(machines)} machines",
            "legacy-one-device",
            "Jobs run in this one process.",
        )
    _record("machine", machines)


def init_bootstrap_confs(*val: Any, **kargs: Any) -> None:
    """OneFlow's start of remote workers; with one process there are none.

    More than one machine is an error.
    """
    machine(*val)


def current_resource() -> dict[str, Any]:
    """The settings made with flow.config and flow.env, as a dict."""
    return dict(_session.default().settings)


def all_device_placement(device_type: str) -> Any:
    return placement.all(device_type)
