"""oneflow.optim: OneFlow's optimizers, as subclasses of torch's; torch's other optimizers fall through."""

from .._bind import fall_through as _ft
from .._upstream.hooks import OPTIM as _OPTIM
from .._upstream.missing import require as _require

_require(_OPTIM)

from . import lr_scheduler
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam
from .adamw import AdamW
from .ftrl import Ftrl
from .lamb import LAMB
from .lbfgs import LBFGS
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Ftrl",
    "LAMB",
    "LBFGS",
    "Optimizer",
    "RMSprop",
    "SGD",
    "lr_scheduler",
]

__getattr__, __dir__ = _ft(__name__, "torch.optim", classes=True)
