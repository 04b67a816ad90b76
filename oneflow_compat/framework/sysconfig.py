"""Deep path of oneflow.sysconfig."""

from ..sysconfig import *  # noqa: F401,F403
