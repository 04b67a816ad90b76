"""oneflow.utils.vision.transforms: flowvision.transforms."""

from .. import hand_over

__getattr__, __dir__ = hand_over(__name__, "flowvision.transforms")
