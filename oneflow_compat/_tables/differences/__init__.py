"""The differences between this package and OneFlow or torch: {id: row}.

A row has the public names, what OneFlow does, what this package does, the reason, and the test.

`severity` ranks the row for programs written for each library (`python -m oneflow.scan` reads it):

- "breaks": the call raises.
- "changes numbers": the call gives other values in ordinary programs.
- "cosmetic": text, layout, dtype, speed, or input that ordinary programs do not have.
- "superset": the program keeps its meaning.
"""

from typing import Any

from .custom_operators import OPS
from .data import DATA
from .eager import EAGER
from .legacy import LEGACY
from .nn import NN
from .optim import OPTIM
from .runtime import RUNTIME

_EAGER: dict[str, Any] = EAGER
_METHODS = {id: row for id, row in _EAGER.items() if row["names"][0].startswith("oneflow.Tensor")}

SECTIONS: dict[str, dict[str, Any]] = {  # headings of the page of differences
    "Tensor methods and operators": _METHODS,
    "Functions": {id: row for id, row in EAGER.items() if id not in _METHODS},
    "Modules and losses": NN,
    "Optimizers, schedules, amp, autograd": OPTIM,
    "nn.Graph, global tensors, the runtime": RUNTIME,
    "Files, data, embeddings": DATA,
    "Custom operators": OPS,
    "Job functions": LEGACY,
}
DIFFERENCES = {id: row for section in SECTIONS.values() for id, row in section.items()}
