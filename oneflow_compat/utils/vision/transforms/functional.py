"""oneflow.utils.vision.transforms.functional: flowvision.transforms.functional."""

from .. import hand_over

__getattr__, __dir__ = hand_over(__name__, "flowvision.transforms.functional")
