"""flow.math of the job-function API: rows of `_tables/legacy/math.py`."""

from ..._tables.legacy.math import MATH as _MATH
from ._functions.rows import lazy as _lazy

__getattr__, __dir__ = _lazy(__name__, _MATH, __package__)
