"""Which calls a row of the table of differences concerns, and the edit that makes both libraries agree.

A row without rules concerns every use of its names. A row with rules concerns the calls that match one of
them. The argument positions and defaults in a rule are those of the library that the program was written for.
"""

import ast
from dataclasses import dataclass
from typing import Any, Union


# --------------------------------------------------------------------------- edits
@dataclass(frozen=True)
class AddKeyword:
    """Add `keyword=value` after the last argument."""

    keyword: str
    value: str


@dataclass(frozen=True)
class NameArgument:
    """Write the positional argument `index` as `keyword=...`."""

    index: int
    keyword: str


@dataclass(frozen=True)
class ReplaceArgument:
    """Write `keyword=value` instead of the positional argument `index`."""

    index: int
    keyword: str
    value: str


Edit = Union[AddKeyword, NameArgument, ReplaceArgument]


# --------------------------------------------------------------------------- rules
def _is_open(call: ast.Call) -> bool:
    """Whether the call passes arguments that the source does not list (*args, **kwargs)."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def _argument(call: ast.Call, keyword: str, index: int | None) -> ast.expr | None:
    for argument in call.keywords:
        if argument.arg == keyword:
            return argument.value
    if (
        index is not None
        and len(call.args) > index
        and not any(isinstance(a, ast.Starred) for a in call.args[: index + 1])
    ):
        return call.args[index]
    return None


@dataclass(frozen=True)
class Omitted:
    """The call leaves an argument to its default, and the defaults differ.

    `default` is the default of the program's library.
    """

    keyword: str
    index: int
    default: str = ""

    def matches(self, call: ast.Call | None) -> bool:
        return call is None or _argument(call, self.keyword, self.index) is None

    def edits(self, call: ast.Call) -> list[Edit]:
        return [AddKeyword(self.keyword, self.default)] if self.default and not _is_open(call) else []


@dataclass(frozen=True)
class Passed:
    """The call passes an argument that is not one of the harmless literals."""

    keyword: str
    index: int | None = None
    harmless: tuple[Any, ...] = ()

    def matches(self, call: ast.Call | None) -> bool:
        value = None if call is None else _argument(call, self.keyword, self.index)
        return value is not None and not (isinstance(value, ast.Constant) and value.value in self.harmless)

    def edits(self, call: ast.Call) -> list[Edit]:
        return []


@dataclass(frozen=True)
class Positional:
    """The call passes arguments by position from `start` on, and the libraries order them differently."""

    start: int
    keywords: tuple[str, ...]

    def matches(self, call: ast.Call | None) -> bool:
        return call is not None and len(call.args) > self.start

    def edits(self, call: ast.Call) -> list[Edit]:
        surplus = len(call.args) - self.start
        if surplus > len(self.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
            return []
        return [NameArgument(self.start + i, keyword) for i, keyword in enumerate(self.keywords[:surplus])]


@dataclass(frozen=True)
class NumberAsFlag:
    """The call passes 0 or 1 by position for a flag."""

    index: int
    keyword: str

    def matches(self, call: ast.Call | None) -> bool:
        value = call.args[self.index] if call is not None and len(call.args) > self.index else None
        return isinstance(value, ast.Constant) and type(value.value) is int

    def edits(self, call: ast.Call) -> list[Edit]:
        if len(call.args) != self.index + 1 or _is_open(call):
            return []
        constant = call.args[self.index]
        assert isinstance(constant, ast.Constant)  # matches() checked this
        return [ReplaceArgument(self.index, self.keyword, str(bool(constant.value)))]


@dataclass(frozen=True)
class FlagByPosition:
    """The call passes True or False by position."""

    index: int

    def matches(self, call: ast.Call | None) -> bool:
        value = call.args[self.index] if call is not None and len(call.args) > self.index else None
        return isinstance(value, ast.Constant) and type(value.value) is bool

    def edits(self, call: ast.Call) -> list[Edit]:
        return []


@dataclass(frozen=True)
class ValuesOfVariables:
    """The call creates a tensor from non-literal values without a dtype."""

    def matches(self, call: ast.Call | None) -> bool:
        if call is None or not call.args or _argument(call, "dtype", None) is not None:
            return False
        return not all(
            isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load))
            for node in ast.walk(call.args[0])
        )

    def edits(self, call: ast.Call) -> list[Edit]:
        return []


@dataclass(frozen=True)
class Called:
    """The name is called."""

    def matches(self, call: ast.Call | None) -> bool:
        return call is not None

    def edits(self, call: ast.Call) -> list[Edit]:
        return []


@dataclass(frozen=True)
class Never:
    """The row concerns another name of the same library only, or depends on facts that the source does not
    show.
    """

    def matches(self, call: ast.Call | None) -> bool:
        return False

    def edits(self, call: ast.Call) -> list[Edit]:
        return []


Rule = Union[Omitted, Passed, Positional, NumberAsFlag, FlagByPosition, ValuesOfVariables, Called, Never]

_REDUCTIONS = ("sum", "mean", "prod", "logsumexp", "all", "any")

# {library of the program: {id of a row: rules, or {last part of a name: rules}}}
RULES: dict[str, dict[str, tuple[Rule, ...] | dict[str, tuple[Rule, ...]]]] = {
    "oneflow": {
        "argument-kinds": {name: (NumberAsFlag(2, "keepdim"),) for name in _REDUCTIONS},
        "hot-methods": {"size": (Passed("idx"),), "to": (Passed("other"),), "Size": (Passed("iterable"),)},
        "std-false": (FlagByPosition(1),),
        "linspace-int": (Passed("dtype"),),
        "instancenorm-running": (Passed("track_running_stats", 4, (False,)),),
        "inplace-activations": {
            **dict.fromkeys(
                ("ELU", "SELU", "SiLU", "Mish", "Hardswish", "ReLU6", "Hardtanh"),
                (Passed("inplace", None, (False,)),),
            ),
        },
        "norm-matrix": {
            "norm": (Never(),)
        },  # the row concerns the method in OneFlow programs; see METHODS_ONLY
        "real-imag-attributes": (Called(),),
        "sgd-maximize": (Passed("maximize", 6, (False,)),),
        "categorical-logits": (Passed("logits", 1, (None,)),),
        "graph-sparse-rows": (Passed("is_sparse", None, (False,)),),
        "legacy-train-step-lbn": (Passed("train_step_lbn"),),
        "legacy-assign-shape": (Passed("validate_shape", None, (True, None)),),
    },
    "torch": {
        "adamw-default-wd": (Omitted("weight_decay", 4, "0.01"),),
        "adagrad-default-lr": (Omitted("lr", 1, "0.01"),),
        "lbfgs-default-lr": (Omitted("lr", 1, "1"),),
        "sgd-dampening": (Passed("dampening", 3, (0,)),),
        "zero-grad-default": (Omitted("set_to_none", 0, "True"),),
        "lr-polynomial": (Positional(1, ("total_iters", "power")), Omitted("total_iters", 1, "5")),
        "rmsnorm-eps": (Omitted("eps", 1),),
        "isclose-positional": (Positional(2, ("rtol", "atol", "equal_nan")),),
        "norm-matrix": {"norm": (Passed("p", 1, ("fro", 2, None)),)},
        "pool-order": (Positional(5, ("ceil_mode", "return_indices")),),
        "autograd-args": (Positional(5, ("only_inputs", "allow_unused", "is_grads_batched")),),
        "clip-grad-norm-positions": (Positional(3, ("error_if_nonfinite", "foreach")),),
        "np-float64-scalar": (ValuesOfVariables(),),
        "autocast-cpu": (Omitted("dtype", 1),),
    },
}

# Rows that concern tensor methods in a program of that library, although they list a function too.
METHODS_ONLY = frozenset({("oneflow", "norm-matrix")})


def rules_of(library: str, id: str, name: str) -> tuple[Rule, ...] | None:
    """Return the rules of a row for one name, or None if the row concerns every use of the name."""
    if (library, id) in METHODS_ONLY and ".Tensor." in name:
        return None
    rules = RULES[library].get(id)
    if isinstance(rules, dict):
        return rules.get(name.rpartition(".")[2], (Never(),))
    return rules
