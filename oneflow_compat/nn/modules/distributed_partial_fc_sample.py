"""DistributedPariticalFCSample (sic): the sampled classes of a partial fully-connected layer."""

from __future__ import annotations

from torch import nn

from ..._ops.misc import distributed_partial_fc_sample

__all__ = ["DistributedPariticalFCSample"]


class DistributedPariticalFCSample(nn.Module):
    """forward(weight, label): (label numbered within the sample, ids of the sampled classes, their rows of
    weight).
    """

    def __init__(self, num_sample):
        super().__init__()
        self.num_sample = num_sample

    def forward(self, weight, label):
        return distributed_partial_fc_sample(weight, label, self.num_sample)
