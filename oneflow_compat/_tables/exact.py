"""Objects that `oneflow.set_dialect("oneflow-0.9")` replaces: {name: "module:function"}. Each function takes
the current object and returns its replacement.
"""

_O, _F, _R = "_exact.operators:", "_exact.functions:", "_exact.random:"

TENSOR = {
    **{f"__{name}__": _O + "plain" for name in "add radd mul rmul eq ne lt le gt ge".split()},
    "__sub__": _O + "sub",
    "__rsub__": _O + "rsub",
    "__truediv__": _O + "div",
    "__rtruediv__": _O + "rdiv",
    "__floordiv__": _O + "floordiv",
    "__rfloordiv__": _O + "rfloordiv",
    "__mod__": _O + "mod",
    "__rmod__": _O + "rmod",
    "__pow__": _O + "pow",
    "__and__": _O + "logical_and",
    "__or__": _O + "logical_or",
    "__xor__": _O + "logical_xor",
    **{f"__{name}__": _O + "rebinding" for name in "ifloordiv imod ipow iand ior ixor".split()},
    "__neg__": _O + "to_float",
    "neg": _O + "to_float",
    "sign": _O + "to_float",
    "square": _O + "to_float",
    "pow": _O + "pow",
    "norm": _O + "norm",
    "allclose": _O + "tolerances",
    "isclose": _O + "tolerances",
    "uniform_": _R + "uniform_",
    "normal_": _R + "normal_",
    "trunc_normal_": _R + "trunc_normal_",
}

FUNCTIONS = {
    **{
        f"oneflow.{name}": _F + "binary"
        for name in "add sub mul maximum minimum eq ne lt le gt ge fmod".split()
    },
    **{f"oneflow.{name}": _F + "to_float" for name in "neg negative sign square".split()},
    **{f"oneflow.{name}": _F + "int32_indices" for name in "argsort sort argwhere unique".split()},
    **{f"oneflow.{name}": _F + "gives_bool" for name in "any all".split()},
    **{f"oneflow.{name}": _F + "clamp" for name in "clamp clip".split()},
    "oneflow.floor_divide": _F + "floor_divide",
    "oneflow.pow": _F + "pow",
    "oneflow.topk": _F + "topk",
    "oneflow.prod": _F + "keeps_dtype",
    "oneflow.where": _F + "where",
    "oneflow.quantile": _F + "quantile",
    "oneflow.nn.functional.normalize": _F + "normalize",
    "oneflow.nn.functional.dropout": _R + "dropout",
    "oneflow.nn.modules.dropout.dropout": _R + "dropout",
    "oneflow.nn.init.trunc_normal_": _R + "trunc_normal_",
    **{f"oneflow.{name}": _R + name for name in "rand randn normal randint randperm bernoulli".split()},
}
