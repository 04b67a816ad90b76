"""flow.distributed: ranks of this process."""

from ..._processes import get_local_rank, get_rank, get_world_size

__all__ = ["get_local_rank", "get_rank", "get_world_size", "is_multi_client"]


def is_multi_client() -> bool:
    """False: job functions are single-client."""
    return False
