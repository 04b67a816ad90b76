"""flow.config.collective_boxing: how OneFlow grouped its transfers; ignored on one device."""

from ...._tables.legacy.config import COLLECTIVE_BOXING
from .._jobs import session as _session
from .._jobs.settings import setter


def _record(name: str, value: float) -> None:
    _session.default().settings[f"collective_boxing.{name}"] = value


for _name, _row in COLLECTIVE_BOXING.items():
    globals()[_name] = setter(_name, _row, "val", _record, _name)
