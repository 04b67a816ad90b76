"""oneflow.nn.modules.moving_average_min_max_observer: the path under which OneFlow's pickles name
MovingAverageMinMaxObserver.
"""

from .quantization import MovingAverageMinMaxObserver

__all__ = ["MovingAverageMinMaxObserver"]
