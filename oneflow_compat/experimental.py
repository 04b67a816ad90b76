"""oneflow.experimental of 0.4 and 0.5, where the eager API began: `import oneflow.experimental as flow`."""

import sys

from .compatible.single_client import experimental

sys.modules[__name__] = experimental
