"""The program of a case once more on the reference, in float64: the value that both sides round.

The oracle runs only if two results differ in a bit. Casts to a narrower dtype round as they do in the case,
so the oracle starts where the kernels start. Four further runs move each input by half a unit in its last
place, and each sum by half a unit of its terms. Their distance shows how much of an error the program itself
makes of a rounded input, and of another order of summation.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .backward import on_device
from .case import Case, DualObject, Step
from .pair import tensors_of
from .replay import NotReplayable, Replay
from .verdict import Truth, narrowest

if TYPE_CHECKING:
    import torch

CASTS = {"to", "type", "half", "bfloat16", "float", "double", "type_as"}
PERTURBED_RUNS = 4


class Oracle:
    """The float64 runs of one case, each made when it is first asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @functools.cached_property
    def runs(self) -> list[WideReplay] | None:
        if self.case.options.rtol is not None or self.case.options.atol is not None:
            return None  # the test says how far apart the sides may be
        return self._forward(rounds_sums=True) or self._forward(rounds_sums=False)

    @functools.cached_property
    def runs_with_gradients(self) -> list[WideReplay] | None:
        if self.runs is None or self._backward(self.runs):
            return self.runs
        runs = self._forward(rounds_sums=False)
        return runs if runs is not None and self._backward(runs) else None

    def _forward(self, rounds_sums: bool) -> list[WideReplay] | None:
        """Return the runs after their forward pass, or None if one raises."""
        pair = self.case.pair
        state = pair.random_state()
        try:
            replays = [WideReplay(self.case, index, rounds_sums) for index in range(1 + PERTURBED_RUNS)]
            for replay in replays:
                replay.forward()
        except Exception:  # a dtype, an operator or an effect that has no float64 form
            return None
        finally:
            pair.rewind(state)
        return replays

    def _backward(self, runs: list[WideReplay]) -> bool:
        """Run backward in each run, and return whether none raises."""
        try:
            for replay in runs:
                replay.run_backward()
        except Exception:
            return False
        return True

    # ------------------------------------------------------------------ one value
    def result(self, dual: DualObject) -> Truth:
        return lambda: self._each(self.runs, lambda replay: replay.value_of(dual))

    def gradient(self, dual: DualObject) -> Truth:
        return lambda: self._each(self.runs_with_gradients, lambda replay: replay.value_of(dual).grad)

    def parameter(self, module: DualObject, name: str, gradient: bool = False) -> Truth:
        def read(replay: WideReplay) -> Any:
            owner = replay.modules[id(module._cand)]
            tensor = dict(owner.named_parameters()).get(name)
            tensor = dict(owner.named_buffers())[name] if tensor is None else tensor
            return tensor.grad if gradient else tensor

        return lambda: self._each(self.runs_with_gradients if gradient else self.runs, read)

    def _each(
        self, runs: list[WideReplay] | None, read: Callable[[WideReplay], Any]
    ) -> tuple[Any, ...] | None:
        try:
            return None if runs is None else tuple(read(replay) for replay in runs)
        except Exception:
            return None


class WideReplay(Replay):
    """The steps of a case on the reference, each tensor in float64.

    index: 0 for the recorded inputs, otherwise the seed that moves them by half a unit in the last place.
    rounds_sums: such a run also moves sums.
    """

    def __init__(self, case: Case, index: int, rounds_sums: bool = False, side: str = "_ref") -> None:
        super().__init__(case, side)
        if any(step.random is not None and not self.makes_module(step) for step in case.steps):
            raise NotReplayable("random numbers of another dtype are other numbers")
        self.rng = np.random.default_rng(index) if index else None
        self.narrowest = narrowest_of(case, with_inputs=False)
        self.rounding = self._rounding(index) if rounds_sums else contextlib.nullcontext()
        self.modules = self.fresh_modules()
        self.env: dict[int, Any] = {}
        self.is_cast = False  # a cast rounds to the dtype that it names; other dtypes become float64

    def makes_module(self, step: Step) -> bool:
        """Whether the random numbers of a step are first values of a module, which fresh_modules() copies."""
        return step.out is not None and self.is_module(step.out)

    def forward(self) -> None:
        self.env = {s.number: self._wide_input(s) for s in self.inputs}
        for key, dual in self.made.items():
            self.env[dual._step.number] = self.modules[key]
        with self.rounding:
            self.run_steps(self.env, self.value_of)

    def run_backward(self) -> None:
        import torch

        outputs: list[Any] = []
        for dual in self.case.outputs:
            wide = tensors_of(self.value_of(dual), self.pair.is_reference_tensor)
            for t, r in zip(wide, tensors_of(dual._ref, self.pair.is_reference_tensor)):
                if r.requires_grad and not any(t is seen for seen in outputs):
                    outputs.append(t)
        if not self.case.output_gradients:
            return
        if len(outputs) != len(self.case.output_gradients):
            raise NotReplayable("other outputs require a gradient")
        gradients = [on_device(g, t) for g, t in zip(self.case.output_gradients, outputs)]
        with self.rounding:
            torch.autograd.backward(outputs, gradients)

    def _rounding(self, index: int) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the sums of a perturbed run are moved."""
        import torch

        from .rounded_sums import RoundedSums  # imports torch, which this package does when a test runs

        if not index or self.narrowest is None:
            return contextlib.nullcontext()
        return RoundedSums(torch.finfo(self.narrowest).eps, index - 1)

    def value_of(self, dual: DualObject) -> Any:
        return self.value(self.env, self.modules, dual)

    def fresh_modules(self) -> dict[int, Any]:
        modules = super().fresh_modules()
        for module in modules.values():
            widen_module(module)
            for t in (*module.parameters(), *module.buffers()):
                t.detach().copy_(self._moved(t.detach()))
        return modules

    def _wide_input(self, step: Step) -> torch.Tensor:
        tensor = self._moved(widened(step.value.detach().clone()))
        return tensor.requires_grad_(True) if step.requires_grad else tensor

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor with each float moved by at most half a unit in the last place."""
        import torch

        if (
            self.rng is None
            or self.narrowest is None
            or not (tensor.is_floating_point() or tensor.is_complex())
        ):
            return tensor
        signs = torch.from_numpy(self.rng.choice([-0.5, 0.5], size=tuple(tensor.shape)))
        return tensor + tensor * signs * torch.finfo(self.narrowest).eps

    def run(self, step: Step, value: Callable[[DualObject], Any]) -> Any:
        name = step.target._path.rpartition(".")[2] if step.action in ("call", "op") else ""
        if name not in CASTS:
            return super().run(step, value)
        owner = getattr(step.target, "_owner", None)
        self.is_cast = True
        try:
            result = super().run(step, value)
        finally:
            self.is_cast = False
        if owner is None or not self.is_tensor(result) or not self.is_tensor(owner._ref):
            return widened(result)
        source = value(owner)
        if owner._ref.dtype == step.out._ref.dtype or result.shape != source.shape:
            return source
        return _rounded(source, widened(result))

    def value(self, env: dict[int, Any], modules: dict[int, Any], dual: DualObject) -> Any:
        return self._wide_value(super().value(env, modules, dual))

    def resolve(self, x: Any, value: Callable[[DualObject], Any]) -> Any:
        return self._wide_value(super().resolve(x, value))

    def _wide_value(self, x: Any) -> Any:
        return wide_dtype(x) if type(x).__name__ == "dtype" and not self.is_cast else x


def _rounded(source: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """Return the rounded values, with the gradient of an identity."""
    if not source.is_floating_point() or not rounded.is_floating_point():
        return rounded
    moved = source + (rounded - source).detach()
    return moved.where(source.isfinite(), source)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    import torch

    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widened(x: Any) -> Any:
    """Return a tensor in float64, an integer tensor unchanged, and a module with float64 tensors."""
    if hasattr(x, "named_parameters"):
        return widen_module(x)
    return x.to(wide_dtype(x.dtype)) if hasattr(x, "dtype") and hasattr(x, "to") else x


def widen_module(module: Any) -> Any:
    return module._apply(lambda t: t.to(wide_dtype(t.dtype)))


def narrowest_of(case: Case, with_inputs: bool = True) -> torch.dtype | None:
    """Return the float dtype with the fewest bits among the tensors of a case.

    The values of an input are exact, so only its gradient is rounded to its dtype.
    """
    duals = [s.out for s in case.steps if s.out is not None and (with_inputs or s.action != "input")]
    dtypes = [t.dtype for d in duals for t in tensors_of(d._ref, case.pair.is_reference_tensor)]
    dtypes += [t.dtype for m in case.modules for t in m._ref.parameters()]
    return narrowest(dtypes)
