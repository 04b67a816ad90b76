"""oneflow.optim.optimizer: the base class of optimizers and the parameter groups.

`Optimizer` is torch's with what OneFlow adds: `zero_grad()` keeps zero tensors, `clip_grad()`, groups
that are `ParamGroup` objects, and checkpoints in either layout (`_layout.py`).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator, MutableMapping, Sized
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.optim.optimizer import required

from .._bind import fall_through as _ft
from .._errors import (
    EmptyParameters,
    MissingKey,
    NotAParameter,
    RefusedType,
    RefusedValue,
    asserted,
    unsupported,
)
from .._global.tensor import moved_to_placement_of
from .._ops.clip_grad import clip_grad_norm_
from .._ops.core import get_dialect
from . import _layout
from .parameters_grouping import ContiguousParamsGroup, packed_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.optim.optimizer import ParamsT


__all__ = ["Optimizer", "ParamGroup", "required"]

CLIP_KEYS = ("clip_grad_max_norm", "clip_grad_norm_type")


class _Options(MutableMapping[str, Any]):
    """A live view of a group without its parameters."""

    def __init__(self, group: ParamGroup) -> None:
        self._group = group

    def __getitem__(self, key: str) -> Any:
        if key == "params":
            raise KeyError(key)
        return self._group[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "params":
            raise KeyError("params is no option; use group.parameters")
        self._group[key] = value

    def __delitem__(self, key: str) -> None:
        if key == "params":
            raise KeyError(key)
        del self._group[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._group if key != "params")

    def __len__(self) -> int:
        return len(self._group) - ("params" in self._group)

    def __repr__(self) -> str:
        return repr(dict(self))


class ParamGroup(dict[str, Any]):
    """One parameter group: torch's dict, and OneFlow's `.parameters` and `.options`.

    `items()`, `in` and iteration are a dict's (OneFlow's object lists its private fields there).
    """

    def __init__(
        self,
        parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        default_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(default_options or {})
        self.update(parameters)

    def setdefault(self, key: str, value: Any = None) -> Any:
        return super().setdefault(key, value)

    @property
    def parameters(self) -> list[torch.Tensor]:
        return self["params"]

    @property
    def options(self) -> _Options:
        return _Options(self)

    @property
    def _options(self) -> _Options:
        return _Options(self)

    @property
    def _enable_clip_grad(self) -> bool:
        return all(self.get(key) is not None for key in CLIP_KEYS)

    @property
    def contiguous_parameters(self) -> list[torch.Tensor]:
        """The packed buffers of a group made with `contiguous_params=True`; an error without it."""
        if not self.get("contiguous_params"):
            raise AttributeError("contiguous_parameters: this group was not made with contiguous_params=True")
        return packed_data(self["params"])


def _with_lr_scale(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step`, during which the rate of a group with `lr_scale` is that many times its `lr`; schedules never
    see the product.
    """

    @functools.wraps(step)
    def scaled(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        rates = (
            []
            if self.__dict__.get("_lr_is_scaled")
            else [(g, g["lr"]) for g in self.param_groups if g.get("lr_scale") is not None]
        )
        if not rates:
            return step(self, *args, **kwargs)
        self._lr_is_scaled = True
        for group, lr in rates:
            group["lr"] = lr * group["lr_scale"]
        try:
            return step(self, *args, **kwargs)
        finally:
            del self._lr_is_scaled
            for group, lr in rates:
                group["lr"] = lr

    return scaled


class AlsoTorchs(type):
    """Metaclass: isinstance() and issubclass() of a class with `_stands_for` also accept classes that are
    only torch's.
    """

    def __instancecheck__(cls, obj: object) -> bool:
        return (
            isinstance(obj, vars(cls)["_stands_for"])
            if "_stands_for" in vars(cls)
            else super().__instancecheck__(obj)
        )

    def __subclasscheck__(cls, subclass: type) -> bool:
        return (
            issubclass(subclass, vars(cls)["_stands_for"])
            if "_stands_for" in vars(cls)
            else super().__subclasscheck__(subclass)
        )

    def __subclasses__(cls) -> list[type]:
        """Return nothing in torch's dialect, so that a program that lists torch's subclasses by name sees
        each name once.
        """
        return [] if get_dialect() == "torch" else super().__subclasses__()


class Optimizer(torch.optim.Optimizer, metaclass=AlsoTorchs):
    """Base of every optimizer: `Optimizer(parameters, options)`, or torch's `(params, defaults)`.

    A subclass written for OneFlow (`self._state[p]`, `group.parameters`) and one written for torch
    (`self.state[p]`, `group["params"]`) both work. `state_dict()` has torch's layout. A group's `lr_scale`
    multiplies its rate in step().

    TypeError without parameters.
    """

    _stands_for = torch.optim.Optimizer
    _renames: dict[str, str] = {}  # slot names: torch's -> OneFlow's, where they differ
    _option_names: tuple[str, ...] | None = None  # the options in OneFlow's own checkpoint, in its order
    _counts_steps = True  # torch keeps a step per parameter
    _keeps_zero_gradients = True  # zero_grad() leaves zeros, so the next step() updates the parameter, too

    def __init__(
        self,
        parameters: ParamsT | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        params: ParamsT | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        parameters = params if parameters is None else parameters
        options = defaults if options is None else options
        if parameters is None:
            raise TypeError(
                f"{type(self).__name__}() needs the parameters to optimise (parameters=, or torch's params=)"
            )
        self._init_as(torch.optim.Optimizer, parameters, {}, defaults=dict(options or {}))

    def _init_as(
        self,
        torch_class: type[torch.optim.Optimizer],
        params: ParamsT,
        extra_options: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        """Run torch's constructor and add `extra_options`, which torch does not have, to every group."""
        self._more_options = extra_options
        params = _parameter_list(params)
        try:
            torch_class.__init__(self, params, **kwargs)
        except (ValueError, TypeError) as error:
            raise asserted(error) from None
        self.defaults.update(extra_options)

    def _patch_step_function(self) -> None:
        """torch.compile runs step() as it is: its optimizer support knows plain dicts as groups only."""
        super()._patch_step_function()
        cls = type(self)
        if not getattr(cls.step, "_oneflow_eager", False):
            cls.step = torch._disable_dynamo(_with_lr_scale(cls.step))  # type: ignore[assignment]
            cls.step._oneflow_eager = True

    # ------------------------------------------------------------------ groups
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, a dict with "params" and options. TypeError for another object, KeyError without
        "params"."""
        if not isinstance(param_group, dict):
            raise RefusedType(
                f"add_param_group() takes a dict with 'params', got {type(param_group).__name__}"
            )
        if "params" not in param_group:
            raise MissingKey(f"a parameter group needs the key 'params'; this one has {sorted(param_group)}")
        group = ParamGroup(param_group)
        for key, value in getattr(self, "_more_options", {}).items():
            group.setdefault(key, value)
        super().add_param_group(group)
        if group.get("contiguous_params"):
            ContiguousParamsGroup([group["params"]])

    @property
    def _default_options(self) -> dict[str, Any]:
        return self.defaults

    @property
    def _state(self) -> Any:
        state: Any = self.state  # torch types its keys as tensors
        state.setdefault("step", 0)
        return state

    @property
    def support_sparse(self) -> bool:
        """Whether nn.Graph can update only the used rows of an embedding, as OneFlow defines it per class."""
        return False

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.param_groups[:] = [g if isinstance(g, ParamGroup) else ParamGroup(g) for g in self.param_groups]
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)

    # ------------------------------------------------------------------ gradients
    def zero_grad(self, set_to_none: bool = False) -> None:
        """Fill the gradients with zeros (torch's default drops them: `set_to_none=True`).

        The next step() therefore updates each parameter that had a gradient once, here or in a graph.
        """
        super().zero_grad(set_to_none=set_to_none)
        for parameter in () if set_to_none else self.__dict__.get("_gradients_in_graphs", {}).values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def clip_grad(self, error_if_nonfinite: bool = False) -> None:
        """Clip each group that has `clip_grad_max_norm` and `clip_grad_norm_type`, by the group's own norm.

        Call it between `backward()` and `step()`; `step()` alone never clips.
        """
        clipped = False
        for group in self.param_groups:
            if all(group.get(key) is not None for key in CLIP_KEYS):
                clipped = True
                clip_grad_norm_(
                    group["params"],
                    group[CLIP_KEYS[0]],
                    group[CLIP_KEYS[1]],
                    error_if_nonfinite=error_if_nonfinite,
                )
        if not clipped:
            warnings.warn(
                f"clip_grad() clipped nothing: no parameter group has both {CLIP_KEYS[0]!r} and"
                f" {CLIP_KEYS[1]!r}",
                stacklevel=2,
            )

    # ------------------------------------------------------------------ checkpoints
    def state_dict(self, layout: Literal["torch", "oneflow"] = "torch") -> dict[str, Any]:
        """The state in torch's layout, or in OneFlow's with `layout="oneflow"`.

        ValueError for another layout.
        """
        state = super().state_dict()
        if layout == "torch":
            return state
        if layout != "oneflow":
            raise ValueError(f"layout is 'torch' or 'oneflow', not {layout!r}")
        if self._option_names is None:
            raise unsupported(
                f"{type(self).__name__}.state_dict(layout='oneflow')",
                "optimizer-state-layout",
                "OneFlow 0.9.0 has no such optimizer; use the default layout.",
            )
        return _layout.to_oneflow(state, self._renames, self._option_names)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Accept both layouts, whoever wrote them."""
        if _layout.is_oneflow(state_dict):
            state_dict = _layout.from_oneflow(
                state_dict, self._renames, self.param_groups, self._counts_steps
            )
        super().load_state_dict(state_dict)
        for p, state in self.state.items():
            state.update({key: moved_to_placement_of(value, p, key) for key, value in state.items()})


def _parameter_list(params: ParamsT) -> Any:
    """The constructor's `params` as torch takes it: an exhausted iterator is one group without parameters, as
    in OneFlow.
    """
    if isinstance(params, torch.Tensor):
        return params  # torch's error explains what is wrong
    if isinstance(params, torch.nn.Module) or not isinstance(params, Iterable):
        raise RefusedType(
            f"optimizer takes an iterable of parameters, found {type(params).__name__}; pass"
            " module.parameters()"
        )
    if isinstance(params, Iterator):
        params = list(params) or [{"params": []}]
    if isinstance(params, Sized) and not len(params):
        raise EmptyParameters(
            f"optimizer got an empty parameter list, a {type(params).__name__}; pass parameters, or an"
            " iterator such as module.parameters()"
        )
    for p in params if isinstance(params, (list, tuple, str)) else ():
        if not isinstance(p, (torch.Tensor, dict, tuple)):
            raise NotAParameter(
                f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}"
            )
    return params


def flag(value: bool | None) -> bool | None:
    """OneFlow's `fused=False` as torch's None: False would also forbid torch's multi-tensor kernels."""
    return value or None


def floats(betas: Iterable[Any]) -> tuple[Any, ...]:
    """(0, 0.9) as (0.0, 0.9): torch's Adam wants two floats, or two tensors."""
    return tuple(b if isinstance(b, torch.Tensor) else float(b) for b in betas)


def check(condition: object, name: str, value: Any, requirement: str) -> None:
    if not condition:
        raise RefusedValue(f"{name}={value!r}: {requirement}")


__getattr__, __dir__ = _ft(__name__, "torch.optim.optimizer")
