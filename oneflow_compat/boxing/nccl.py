"""oneflow.boxing.nccl: knobs of collective fusion; remembered, without effect."""

from .. import _knobs

globals().update(_knobs.setters("boxing.nccl"))
