"""Names that OneFlow 0.5 itself called deprecated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import scope
from . import nn

if TYPE_CHECKING:
    from typing import Any


def variable_scope(*args: Any, **kwargs: Any) -> Any:
    """Old name of scope.namespace."""
    return scope.namespace(*args, **kwargs)


def init_worker(scp_binary: bool = True, use_uuid: bool = True, ssh_port: int = 22) -> None:
    """Nothing to start: there are no remote workers."""


def delete_worker(ssh_port: int = 22) -> None:
    """Nothing to delete: there are no remote workers."""


def delete_worker_by_bootstrap(ssh_port: int = 22) -> None:
    """Nothing to delete: there are no remote workers."""


def delete_worker_of_multi_process(run_dir: Any) -> None:
    """Nothing to delete: there are no worker processes."""
