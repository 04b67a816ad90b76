"""What the launcher told this process."""

import os


def HasAllMultiClientEnvVars() -> bool:
    """True: one process is its own world; several get their variables from the launcher."""
    wanted = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")
    return all(v in os.environ for v in wanted) or not any(v in os.environ for v in wanted[2:])
