"""The steps of a case as a function that runs again, on fresh inputs and copies of the modules."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from typing import Any

from .case import Case, DualObject, Step
from .pair import CandidateTensor, Module, tensors_of
from .tensors import with_strides


class NotReplayable(Exception):
    """The record does not hold the whole program."""


class Replay:
    """The steps of a case as a function of fresh inputs and module copies.

    side: "_cand" runs the candidate again, "_ref" the reference.
    """

    def __init__(self, case: Case, side: str = "_cand") -> None:
        self.case, self.pair = case, case.pair
        self.side_of: Callable[[DualObject], Any] = operator.attrgetter(side)
        self.is_candidate = is_candidate = side == "_cand"
        self.is_module_value = case.pair.is_candidate_module if is_candidate else self.is_reference_module
        self.is_tensor = case.pair.is_candidate_tensor if is_candidate else case.pair.is_reference_tensor
        self.inputs = [s for s in case.steps if s.action == "input"]
        self.made = {id(m._cand): m for m in case.modules}
        self.steps = [s for s in case.steps if self.needs_run(s)]
        self.random = [s for s in self.steps if s.random is not None]
        if len(self.random) > 1:
            raise NotReplayable("several steps draw random numbers")

    def needs_run(self, step: Step) -> bool:
        """Whether the step has to run again.

        Sizes, types and other plain results keep their recorded values.
        """
        if step.action == "input" or step.action == "op" and step.target._path in ("iter", "next"):
            return False
        if step.action in ("enter", "exit"):
            return True
        if step.action == "set":
            return self.assignment_needs_run(step)
        out = self.side_of(step.out)
        if self.is_module_value(out):
            return step.target._path in ("train", "eval") and self.forwarded_before(step)
        tensors = tensors_of(out, self.is_tensor)
        if tensors:
            # a random result without a gradient keeps its recorded values
            return step.random is None or any(t.requires_grad for t in tensors)
        return self.effect_needs_run(step)

    def assignment_needs_run(self, step: Step) -> bool:
        """Whether an assignment of an attribute has to run again; raise NotReplayable if it cannot."""
        if not self.is_module(step.target):
            return True
        if step.number < self.case.module_start.get(id(step.target._cand), (float("inf"),))[0]:
            return False  # part of the module's state at its first forward
        raise NotReplayable("a module's attribute is set after its first forward")

    def effect_needs_run(self, step: Step) -> bool:
        """Whether a step without a tensor result has an effect that has to run again."""
        if step.action == "op" and step.target._path in ("setitem", "delitem"):
            return True
        if step.action == "call" and self.side_of(step.out) is None:
            if step.target._path == "backward":
                return True
            if step.target._path.rpartition(".")[2] not in ("train", "eval", "zero_grad", "manual_seed"):
                raise NotReplayable(f"{step.target._path}() has an effect that is not recorded")
        if hasattr(self.side_of(step.out), "param_groups"):
            raise NotReplayable("an optimizer is stepped in the test")
        return False

    def is_reference_module(self, x: object) -> bool:
        return isinstance(x, self.pair.reference_module)

    def is_module(self, dual: DualObject) -> bool:
        return self.is_module_value(self.side_of(dual))

    def forwarded_before(self, step: Step) -> bool:
        owner = step.target._owner
        return (
            owner is not None
            and step.number > self.case.module_start.get(id(owner._cand), (float("inf"),))[0]
        )

    # ------------------------------------------------------------------ fresh state
    def fresh_inputs(self) -> list[CandidateTensor]:
        return [self.fresh_input(s) for s in self.inputs]

    def fresh_input(self, step: Step) -> CandidateTensor:
        if step.strides is None:
            return self.pair.to_candidate(step.value, requires_grad=bool(step.requires_grad))
        return with_strides(step.value, *step.strides).requires_grad_(bool(step.requires_grad))

    def fresh_modules(self) -> dict[int, Module]:
        # One deepcopy of all, because modules may share submodules.
        copies = copy.deepcopy({key: self.side_of(dual) for key, dual in self.made.items()})
        for key, module in copies.items():
            _, state, training = self.case.module_start.get(key, (0, None, None))
            if state is not None:
                tensors = dict(module.named_parameters()) | dict(module.named_buffers())
                for name, value in state.items():
                    if name in tensors:
                        tensors[name].detach().copy_(self.start_value(value))
                for name, submodule in module.named_modules():
                    submodule.training = training.get(name, submodule.training)
            for p in module.parameters():
                p.grad = None
        return copies

    def attribute_of(self, owner: Any, name: str) -> Any:
        if self.is_candidate:
            return getattr(owner, name)
        return self.pair.attribute_of_reference(owner, name)

    def callee(self, step: Step, value: Callable[[DualObject], Any]) -> Any:
        function = value(step.target)
        if self.is_candidate or step.action != "op":
            return function
        return self.pair.operator_of_reference(function, step.target._path)

    def start_value(self, value: CandidateTensor) -> Any:
        """Return the candidate's tensor as a tensor of the side that runs."""
        return value if self.is_tensor(value) else self.pair.as_torch(value)

    # ------------------------------------------------------------------ running
    def __call__(
        self, inputs: list[CandidateTensor], modules: dict[int, Module]
    ) -> tuple[list[CandidateTensor], list[CandidateTensor | None]]:
        """Run the program; return its outputs and the gradients of inputs and parameters."""
        env = {s.number: x for s, x in zip(self.inputs, inputs)}
        for key, dual in self.made.items():
            env[dual._step.number] = modules[key]
        value = functools.partial(self.value, env, modules)
        self.run_steps(env, value)
        outputs = [value(d) for d in self.outputs()]
        self.backward(outputs, value)
        leaves = [x for x in inputs if x.requires_grad] + [
            p for m in modules.values() for p in m.parameters()
        ]
        return [t for o in outputs for t in tensors_of(o, self.is_tensor)], [p.grad for p in leaves]

    def run_steps(self, env: dict[int, Any], value: Callable[[DualObject], Any]) -> None:
        """Run the steps in order, and put their results into `env`."""
        for step in self.steps:
            result = self.run(step, value)
            if step.out is not None:
                env[step.number] = result

    def outputs(self) -> list[DualObject]:
        """Return the test's results; if it returned none, its last tensor."""
        if self.case.outputs:
            return self.case.outputs
        return [s.out for s in self.steps if s.out is not None][-1:]

    def backward(self, outputs: list[Any], value: Callable[[DualObject], Any]) -> None:
        gradients = getattr(self.case, "output_gradients", None)
        if not gradients:
            return
        differentiable: list[CandidateTensor] = []
        for o in outputs:
            for t in tensors_of(o, self.is_tensor):
                if t.requires_grad and not any(t is seen for seen in differentiable):
                    differentiable.append(t)
        if len(differentiable) != len(gradients):
            raise NotReplayable("other outputs require a gradient")
        self.pair.run_backward(differentiable, gradients)

    def run(self, step: Step, value: Callable[[DualObject], Any]) -> Any:
        if step.action == "set":
            setattr(value(step.target), step.args[0], self.resolve(step.args[1], value))
        elif step.action in ("enter", "exit"):
            context = value(step.target)
            return context.__enter__() if step.action == "enter" else context.__exit__(None, None, None)
        elif step.action == "get":
            return self.attribute_of(value(step.target), step.args[0])
        else:
            return self.callee(step, value)(
                *self.resolve(step.args, value), **self.resolve(step.kwargs, value)
            )

    def value(self, env: dict[int, Any], modules: dict[int, Module], dual: DualObject) -> Any:
        """Return the value of a dual object in this run."""
        step = dual._step
        if step is not None:
            if step.number in env:
                return env[step.number]
            return modules.get(id(dual._cand), self.side_of(dual))
        if dual._owner is not None:
            owner = attribute = self.value(env, modules, dual._owner)
            for name in dual._path.split("."):
                attribute = self.attribute_of(attribute, name)
            return attribute if owner is not self.side_of(dual._owner) else self.side_of(dual)
        return self.side_of(dual)

    def resolve(self, x: Any, value: Callable[[DualObject], Any]) -> Any:
        if hasattr(type(x), "__dual__"):
            return value(x)
        if type(x) in (tuple, list):
            return type(x)(self.resolve(e, value) for e in x)
        if type(x) is dict:
            return {k: self.resolve(v, value) for k, v in x.items()}
        if type(x) is slice:
            return slice(*(self.resolve(e, value) for e in (x.start, x.stop, x.step)))
        return x
