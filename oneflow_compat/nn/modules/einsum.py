"""Deep path of oneflow.einsum."""
from ... import einsum as einsum_op

__all__ = ["einsum_op"]
