"""Names that OneFlow 0.5 itself called deprecated."""

from .. import scope
from . import nn


def variable_scope(*args, **kwargs):
    """Old name of scope.namespace."""
    return scope.namespace(*args, **kwargs)


def init_worker(scp_binary=True, use_uuid=True, ssh_port=22):
    """Nothing to start: there are no remote workers."""


def delete_worker(ssh_port=22):
    """Nothing to delete: there are no remote workers."""


def delete_worker_by_bootstrap(ssh_port=22):
    """Nothing to delete: there are no remote workers."""


def delete_worker_of_multi_process(run_dir):
    """Nothing to delete: there are no worker processes."""
