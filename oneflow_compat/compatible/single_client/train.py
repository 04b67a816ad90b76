"""flow.train: the older API to save and load."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

from . import checkpoint
from ._jobs import session as _session

if TYPE_CHECKING:
    from typing import Any


class CheckPoint:
    """init(), save(path) and load(path) of all variables of the session."""

    def init(self) -> None:
        checkpoint.init()

    def save(self, path: Any) -> None:
        checkpoint.save(path)

    def load(self, path: Any) -> None:
        """Read a snapshot. Variables it lacks keep their values."""
        _session.load_variables(checkpoint.get(path))


class SimpleCheckPointManager:
    """Numbered snapshots in one folder: `save()` adds one, `initialize_or_restore()` loads the newest."""

    def __init__(self, root_path: Any, prefix: str = "snapshot_") -> None:
        self._root, self._prefix, self._checkpoint = root_path, prefix, CheckPoint()

    def list_checkpoints(self) -> Any:
        if not os.path.isdir(self._root):
            return []
        done = [
            n
            for n in os.listdir(self._root)
            if n.startswith(self._prefix) and os.path.isfile(os.path.join(self._root, n, "snapshot_done"))
        ]
        return sorted(done)

    def latest_checkpoint(self) -> Any:
        names = self.list_checkpoints()
        return names[-1] if names else None

    def initialize_or_restore(self) -> None:
        name = self.latest_checkpoint()
        if name is None:
            self._checkpoint.init()
        else:
            self._checkpoint.load(os.path.join(self._root, name))

    def save(self) -> None:
        stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S_%f")
        self._checkpoint.save(os.path.join(self._root, self._prefix + stamp))
