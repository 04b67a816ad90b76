"""oneflow.utils.vision.datasets: flowvision.datasets."""

from . import hand_over

__getattr__, __dir__ = hand_over(__name__, "flowvision.datasets")
