"""The decorators of data pipes, under OneFlow's path."""

from torch.utils.data import functional_datapipe, guaranteed_datapipes_determinism, non_deterministic

__all__ = ["functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic"]
