"""The differences between this package and OneFlow or torch: {id: row}.

A row has the public names, what OneFlow does, what this package does, the reason, and the test.

`severity` ranks the row for programs written for each library (`python -m oneflow.scan` reads it):

- "breaks": the call raises.
- "changes numbers": the call gives other values in ordinary programs.
- "cosmetic": text, layout, dtype, speed, or input that ordinary programs do not have.
- "superset": the program keeps its meaning.
"""

from .custom_operators import OPS
from .data import DATA
from .eager import EAGER
from .legacy import LEGACY
from .nn import NN
from .optim import OPTIM
from .runtime import RUNTIME

DIFFERENCES = {**DATA, **EAGER, **NN, **OPS, **LEGACY, **OPTIM, **RUNTIME}
