"""oneflow.boxing: knobs of OneFlow's transfers between placements; remembered, without effect."""

from .. import _knobs
from . import nccl

globals().update(_knobs.setters("boxing"))
