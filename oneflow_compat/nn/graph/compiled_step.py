"""compile_step: a training step of eager mode, unchanged, as a graph."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from types import MethodType
from typing import TYPE_CHECKING, Any, overload

import torch

from ... import _graph
from ..._errors import StateError
from ..._graph import Config, capturing
from .found_state import found_modules, found_tensors
from .graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._graph import Engine


_OBJECTS = (
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.amp.GradScaler,
)
_MOST_OBJECTS = 8  # combinations of such arguments, each with programs of its own


class StepGraph(Graph):
    """The graph of a compiled step. Its modules, optimizers and schedules are those that the step uses."""

    def __init__(self, step: Callable[..., Any], objects: dict[Any, Any]) -> None:
        """`objects`: arguments of the step that the graph is made for, by position or name."""
        given = functools.partial(_given, objects) if objects else lambda step, first=0: step
        cut, numbers = _graph.CutStep(step, given), _graph.ArgumentNumbers()
        self.__dict__.update(build=given(step), _cut=cut, _argument_numbers=numbers)
        super().__init__()
        self.__dict__["_name"] = self._engine.name

    def _new_engine(self, options: Config) -> Engine:
        step = self.build
        refers_to, owner = getattr(step, "refers_to", step), getattr(step, "__self__", None)
        definition = _graph.GraphDefinition(
            self._argument_numbers.finding(self._cut.build),
            modules=lambda: found_modules(refers_to),
            tensors=lambda: found_tensors(refers_to),
            optimizers=[],
            name=getattr(step, "__name__", None) or type(step).__name__,
            owner=owner if hasattr(owner, "__dict__") else None,  # reads of slots are observed
            steps_in_build=True,
            cut=self._cut,
            argument_numbers=self._argument_numbers,
        )
        return _graph.Engine(definition, options)

    def add_optimizer(self, *args: Any, **kwargs: Any) -> None:
        """Raise StateError: the step itself steps its optimizers."""
        raise StateError(
            "add_optimizer was called for the graph of a compiled step, which steps its optimizers itself;"
            " call optimizer.step() in the step"
        )

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Raise StateError: a file has no place for the optimizers and gradients of the step."""
        raise StateError(
            "save or export was called for the graph of a compiled step, which works on the optimizers and"
            " gradients of this process; save the modules, or write the step as a class derived from nn.Graph"
        )

    export = save

    def set_grad_scaler(self, grad_scaler: Any = None) -> None:
        """Raise StateError: the step itself scales its loss."""
        raise StateError(
            "set_grad_scaler was called for the graph of a compiled step, which scales its loss itself; call"
            " scaler.scale(loss) in the step"
        )


class CompiledStep:
    """A training step that runs as a graph: `graph` is the graph, `step` the function as it was.

    A method is compiled for each object that it is called of, which keeps its compiled step as an attribute.
    """

    def __init__(
        self, step: Callable[..., Any], options: dict[str, Any], objects: dict[Any, Any] | None = None
    ) -> None:
        if not callable(step):
            raise TypeError(f"compile_step takes a function, found {type(step).__name__} {step!r}")
        self.step, self._options, self._objects = step, options, objects or {}
        self._graph: StepGraph | None = None
        # ids of modules, optimizers and the like among the arguments -> the step with these
        self._of_objects: OrderedDict[tuple[Any, ...], CompiledStep] = OrderedDict()
        functools.update_wrapper(self, step, updated=())

    @property
    def graph(self) -> StepGraph:
        """The graph, with `config`, `explain()` and `program`.

        If modules or optimizers are arguments, that of the latest ones.
        """
        if self._of_objects:
            return next(reversed(self._of_objects.values())).graph
        if self._graph is None:
            self._graph = self._new_graph()
        return self._graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if capturing():
            return (_given(self._objects, self.step) if self._objects else self.step)(*args, **kwargs)
        if any(isinstance(value, _OBJECTS) for value in (args if not kwargs else (*args, *kwargs.values()))):
            return self._with_objects(args, kwargs)
        graph = self._graph
        if graph is None:
            graph = self._graph = self._new_graph()
        return graph(*args, **kwargs)

    def _new_graph(self) -> StepGraph:
        graph = StepGraph(self.step, self._objects)
        _set_options(graph, self._options)
        return graph

    def _with_objects(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the graph of these modules, optimizers, schedules and scalers, with the other arguments."""
        objects = {k: v for k, v in (*enumerate(args), *kwargs.items()) if isinstance(v, _OBJECTS)}
        key = (len(args), *((name, id(value)) for name, value in objects.items()))
        step = self._of_objects.get(key)
        if step is None:
            step = self._of_objects[key] = CompiledStep(self.step, self._options, objects)
        self._of_objects.move_to_end(key)
        while len(self._of_objects) > _MOST_OBJECTS:
            self._of_objects.popitem(last=False)
        others = (value for position, value in enumerate(args) if position not in objects)
        return step(*others, **{name: value for name, value in kwargs.items() if name not in objects})

    def __get__(self, instance: Any, owner: type | None = None) -> CompiledStep:
        if instance is None:
            return self
        bound = CompiledStep(MethodType(self.step, instance), self._options)
        try:
            instance.__dict__[self.step.__name__] = bound
        except AttributeError:  # a class with slots
            return self._with_object(instance, bound)
        return bound

    def _with_object(self, instance: Any, bound: CompiledStep) -> CompiledStep:
        """Keep the compiled step of an object without attributes of its own."""
        key = ("self", id(instance))
        kept = self._of_objects.setdefault(key, bound)
        self._of_objects.move_to_end(key)
        while len(self._of_objects) > _MOST_OBJECTS:
            self._of_objects.popitem(last=False)
        return kept

    def __reduce__(self) -> Any:
        if isinstance(self.step, MethodType):
            return getattr, (self.step.__self__, self.step.__name__)
        return CompiledStep, (self.step, self._options)


def _given(objects: dict[Any, Any], step: Callable[..., Any], first: int = 0) -> Callable[..., Any]:
    """Return the step with some of its arguments, by position or name, behind the `first` ones of a call."""
    positions = {key for key in objects if isinstance(key, int)}
    named = {key: value for key, value in objects.items() if key not in positions}

    def given(*others: Any, **kwargs: Any) -> Any:
        rest = iter(others[first:])
        count = len(others) - first + len(positions)
        args = [objects[i] if i in positions else next(rest) for i in range(count)]
        return step(*others[:first], *args, **named, **kwargs)

    functools.update_wrapper(given, step)
    try:
        parameters = dict(inspect.signature(step).parameters)
    except (TypeError, ValueError):  # a function written in C
        parameters = {}
    names = dict(enumerate(parameters))
    by_name = {names.get(key, f"arg{key}") if key in positions else key: v for key, v in objects.items()}
    others = [parameter for name, parameter in parameters.items() if name not in by_name]
    given.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    given.refers_to = functools.partial(step, **by_name)  # type: ignore[attr-defined]
    return given


@overload
def compile_step(step: Callable[..., Any], /, **options: Any) -> CompiledStep: ...
@overload
def compile_step(step: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], CompiledStep]: ...
def compile_step(step: Any = None, /, **options: Any) -> Any:
    """Run a training step of eager mode, unchanged, as one compiled program with its backward() and update.

        @flow.compile_step
        def train_step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

    The modules, optimizers and schedules are those that the step refers to. Weights, gradients in `p.grad`,
    optimizer state and arguments are afterwards as eager mode leaves them. What no program can hold runs in
    eager mode, with one warning that says why (`strict=True` makes it an error).

    step: a function or method, or None for a decorator with options.
    options: those of `graph.config` by the names of its methods, without a leading set_, enable_ or allow_:
    backend="inductor", dynamic={"x": 0}, verify="never", amp=True, strict=True.

    Return a CompiledStep, whose `graph` is the nn.Graph. TypeError unless the step can be called, and for an
    option that there is not.
    """
    if step is None:
        return functools.partial(compile_step, **options)
    _set_options(Graph(), options)  # a wrong option is an error here, and not at the first call
    return CompiledStep(step, options)


def _set_options(graph: Graph, options: dict[str, Any]) -> None:
    for name, value in options.items():
        setters = (getattr(graph.config, prefix + name, None) for prefix in ("", "set_", "enable_", "allow_"))
        setter = next(filter(callable, setters), None)
        if setter is None or name.startswith("_") or name == "gradient_accumulation_steps":
            raise TypeError(f"compile_step has no option {name!r}; the options are those of graph.config")
        setter(value)
