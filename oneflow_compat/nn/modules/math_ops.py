"""Deep paths of functions of oneflow."""
from ... import addmm, addmm as addmm_op, asin as arcsin_op, asin as asin_op, asinh as arcsinh_op, asinh as asinh_op, atan as arctan_op, atan as atan_op, fmod as fmod_op

__all__ = ["addmm", "addmm_op", "arcsin_op", "arcsinh_op", "arctan_op", "asin_op", "asinh_op", "atan_op", "fmod_op"]
