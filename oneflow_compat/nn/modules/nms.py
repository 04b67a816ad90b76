"""Deep path of oneflow.nms."""
from ... import nms as nms_op

__all__ = ["nms_op"]
