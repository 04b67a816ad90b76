"""Deep path of sbp.split."""

from ..sbp import split as split_sbp
