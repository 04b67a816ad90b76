"""The end of a training step under capture: unscale, clip, optimizer steps.

The optimizer's own `step` is recorded. Its learning rate and step counters are HostScalars, so the program
computes exactly the Python numbers that eager computes. Its state tensors become inputs of the program.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

from ...._active import outside_capture
from ...._ops.clip_grad import clip_grad_norm_
from ...errors import CaptureError, UnsupportedInGraph, UsageError
from ...program.locations import GroupOption, ModuleTensor, OptimizerState
from ...program.nested_state import copied, holds_fake_tensors, restore
from ...program.program import roots, written_args
from . import sparse_rows
from .forms import form_options
from .host_scalars import ScalarMode, ScalarTrace, traced_math
from .loss_scaling import begun, keep_old, put_back, unscale, update_scale
from .optimizer_state import CreatedState, StateChanges, StateValue, elements_of_others

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch.amp import GradScaler
    from torch.optim import Optimizer

    from ...config import Config
    from ..state_map import StateMap


aten = torch.ops.aten

# parameter -> f(gradient, found inf or None), which updates values that are kept outside of tensors (rows of
# one_embedding), and returns the gradient that the parameter has from then on
external_updates: WeakIdKeyDictionary = WeakIdKeyDictionary()


class Update(StateChanges):
    """Record the update of all optimizers.

    After `run`, `inputs` has its inputs that are Python numbers.
    """

    def __init__(
        self,
        recorder: Any,
        state_map: StateMap,
        config: Config,
        grad_scaler: GradScaler | None,
        live: Mapping[int, set[str]],
        inputs: Mapping[GroupOption, Any],
    ) -> None:
        """`live`: {optimizer: names of options that changed between calls}.

        `inputs`: {location: placeholder} of the options that build() read, and are inputs already.
        """
        self.recorder = recorder
        self.state = state_map
        self.config = config
        self.scaler = grad_scaler
        self.live = dict(live)
        # optimizer -> names of options that the step created, and that may change between calls
        self.created_live_options: dict[int, set[str]] = {}
        self.trace = ScalarTrace(recorder.graph)
        recorder.markers, recorder.marker_values = self.trace.markers, self.trace.values
        # location of a Python number -> placeholder
        self.inputs: dict[GroupOption | OptimizerState, torch.fx.Node] = dict(inputs.items())
        self.state_values: list[StateValue] = []  # stored after each run
        # the step created state that the program cannot begin with: the program serves one call
        self.serves_one_call = False
        self.skips_steps = False  # a GradScaler in build() takes a step back if it found an overflow
        # node that is 1 if the gradients overflowed under a dynamic scaler
        self.found_inf: torch.fx.Node | None = None
        # the context of each step(), which may be entered again
        self.observed: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.snapshots: list[Any] = []
        # options of the last optimizer, as step() found them
        self._options_before_step: list[dict[str, Any]] = []
        self.elements_before: dict[int, list[Any]] = {}  # elements of sets and deques in the state
        self.stepping = "the optimizer"  # the class whose step() is recorded
        self.stepped: set[int] = set()  # indices of the optimizers whose step() was recorded
        self.created: list[CreatedState] = []  # before the step
        # optimizer -> [(group, key, tensor)] that the step put into param_groups
        self.new_options: dict[Any, Any] = {}
        # lists and dicts of state tensors that the step created
        self.structures: dict[OptimizerState, object] = {}

    # -- entry -----------------------------------------------------------------
    def run(self) -> None:
        """Record the update at the end of a step: unscale, clip, and step each optimizer."""
        self.recorder.phase = "update"
        self.recorder.scalar_of = self._marker_of
        self._keep_scalars_that_build_read()
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            self._check(index, optimizer)
        self.take_snapshots()
        optimizers = [optimizer for optimizer, _ in self.state.optimizers]
        found_inf = unscale(self.scaler, optimizers) if self.scaler is not None else None
        clip(optimizers, found_inf)
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            self._pre_materialize(index, optimizer)
        old_values = None
        if found_inf is not None:
            self.found_inf = self.recorder._convert(found_inf)[0]
            old_values = keep_old(optimizers)
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            if optimizer in sparse_rows.lazy:
                self._step_rows(index, optimizer)
            else:
                self._step(index, optimizer)
        if found_inf is not None:
            put_back(self, optimizers, found_inf, old_values)
            update_scale(self.scaler, found_inf)

    def step_in_build(self, index: int, optimizer: Optimizer) -> None:
        """Record a step() that build() calls. The options are Python numbers again afterwards."""
        with self.phase():
            before = [dict(group) for group in optimizer.param_groups]
            self._keep_scalars_that_build_read()
            self._pre_materialize(index, optimizer)
            self._step(index, optimizer)
            for group, options, live in zip(optimizer.param_groups, before, self._options_before_step):
                group.update({k: options[k] for k, v in live.items() if group.get(k) is v and k in options})

    @contextlib.contextmanager
    def phase(self) -> Iterator[None]:
        """Record into the update what is computed inside the context."""
        recorder = self.recorder
        outer, recorder.phase, recorder.scalar_of = recorder.phase, "update", self._marker_of
        try:
            yield
        finally:
            recorder.phase, recorder.scalar_of = outer, None

    def prepare(self, optimizer: Optimizer) -> None:
        """Create the state that a step() of build() begins with, where zeros are the same."""
        optimizers = [each for each, _ in self.state.optimizers]
        self._pre_materialize(optimizers.index(optimizer), optimizer)

    def _marker_of(self, tensor: torch.Tensor) -> float:
        return self.trace.marker(self._item(tensor))

    def _keep_scalars_that_build_read(self) -> None:
        """Keep the values of tensor options, such as a learning rate, as for those that only step() reads."""
        groups = (group for optimizer, _ in self.state.optimizers for group in optimizer.param_groups)
        scalars = (v for group in groups for v in group.values() if isinstance(v, torch.Tensor))
        read = [t for t in scalars if t.numel() == 1 and id(t) in self.recorder.lifted]
        if not read:
            return
        calls = [node for node in self.recorder.graph.nodes if node.op == "call_function"]
        written = {root for call in calls for root in roots(written_args(call))}
        for tensor in read:
            _, node, twin = self.recorder.lifted[id(tensor)]
            if node not in written:
                with outside_capture():
                    twin._value = tensor.detach().clone()

    def take_snapshots(self) -> None:
        """Note the state and the options of the optimizers, which `undo` restores."""
        for optimizer, _ in self.state.optimizers:
            states = {p: (s, copied(s)) for p, s in optimizer.state.items()}
            self.snapshots.append((optimizer, states, [copied(g) for g in optimizer.param_groups]))
            self.elements_before.update(elements_of_others(optimizer.state))

    def undo(self) -> None:
        """Restore optimizer state and group options, after an error and after success.

        After success, new real state is kept.
        """
        for optimizer, states, groups in self.snapshots:
            del optimizer.param_groups[len(groups) :]  # the capture is refused if build() added one
            for group, old in zip(optimizer.param_groups, groups):
                restore(group, old)
            for param in list(optimizer.state):
                if param not in states:
                    del optimizer.state[param]
            for param, state in states.items():  # the same dict object, because earlier programs read it
                optimizer.state[param] = restore(*state)

    # -- one optimizer -------------------------------------------------------------
    def _check(self, index: Any, optimizer: Optimizer) -> None:
        params = [p for g in optimizer.param_groups for p in g["params"]]
        if any(p.grad is not None for p in params):
            return
        named = (self.state.by_id[id(p)] for p in params)
        if self.state.modules and not any(isinstance(entry.location, ModuleTensor) for entry in named):
            raise UsageError(
                f"optimizer {index} ({type(optimizer).__name__}) has {len(params)} parameters, and none of"
                " them is in a module of the graph; load_state_dict(assign=True), for example, puts new"
                " parameters into a module",
                "Give the optimizer the parameters that the modules have now (add_param_group), or load with"
                " assign=False.",
            )
        raise UsageError(
            f"optimizer {index} ({type(optimizer).__name__}) has no parameter that got a gradient from"
            " build()",
            "Call loss.backward() in build() on a loss that depends on its parameters, or do not add the"
            " optimizer.",
        )

    def _step_rows(self, index: Any, optimizer: Optimizer) -> None:
        """Record a step that changes only the rows which were gathered."""
        with torch.no_grad():
            gathered = sparse_rows.before_step(optimizer)
            existing = {id(t) for _, _, snapshots in gathered for t, _ in snapshots.values()}
            self._step(index, optimizer)
            sparse_rows.after_step(optimizer, gathered, begun(self, existing, [optimizer]))

    def _step(self, index: Any, optimizer: Optimizer) -> None:
        refuse_class(optimizer, self.state.optimizers[index][1])
        self.stepping = type(optimizer).__name__
        self.stepped.add(index)
        self._make_options_live(index, optimizer)
        groups_before = [copied(g) for g in optimizer.param_groups]
        self._options_before_step = [dict(group) for group in optimizer.param_groups]
        self._make_states_live(index, optimizer)
        self._call_step(optimizer)
        for name, value in vars(optimizer).items():
            if name not in ("state", "param_groups") and holds_fake_tensors(value, apart_from=optimizer):
                self._refuse_object(optimizer, f"its attribute {name!r}", value)
        self._replaced_state(index, optimizer)
        self._changed_options(index, optimizer, groups_before)

    def _call_step(self, optimizer: Optimizer) -> None:
        called = getattr(optimizer, "_opt_called", None)
        counters = _scalar_attributes(optimizer)
        try:
            with torch.no_grad(), traced_math(), ScalarMode(self.trace, self._item), self.observed:
                optimizer.step()
        finally:
            if called is None and hasattr(optimizer, "_opt_called"):
                optimizer._opt_called = True
            changed = _restore_attributes(optimizer, counters)
        if changed:
            raise CaptureError(
                f"{type(optimizer).__name__}.step() counts in its attribute {changed!r}, which a program"
                " cannot see",
                "Keep step counters in optimizer.state[param] or in the optimizer's param_groups; those are"
                " inputs of the program.",
            )

    def _pre_materialize(self, index: Any, optimizer: Optimizer) -> None:
        """Pre-create state that torch would take from the first gradient, if zeros give the same result."""
        if not isinstance(optimizer, torch.optim.SGD):
            return
        for group in optimizer.param_groups:
            # if a parameter is listed twice, torch restarts its momentum at both first steps
            has_duplicates = len(set(group["params"])) < len(group["params"])
            if not group.get("momentum") or group.get("dampening") or has_duplicates:
                continue
            for p in group["params"]:
                if p.grad is None or p.grad.is_sparse:
                    continue
                if optimizer.state[p].get("momentum_buffer") is not None:
                    continue
                with outside_capture():
                    real = torch.zeros_like(p, requires_grad=False)
                optimizer.state[p]["momentum_buffer"] = real
                self.created.append(CreatedState(self.state_location(index, p, ("momentum_buffer",)), real))

    def _make_options_live(self, index: Any, optimizer: Optimizer) -> None:
        """Make rates, counters and options that changed between calls inputs of the program."""
        form = form_options(optimizer, self.config)
        for g, group in enumerate(optimizer.param_groups):
            counters = {k for k in _COUNTERS & group.keys() if type(group[k]) is int}
            for key in sorted({"lr", *self.live.get(index, ()), *counters} & group.keys()):
                group[key] = self._live(GroupOption(index, g, (key,)), key, group[key])
            group.update({k: v for k, v in form.items() if k in group})

    def _make_states_live(self, index: Any, optimizer: Optimizer) -> None:
        for param, state in optimizer.state.items():
            for key, value in state.items():
                if type(value) is not tuple:  # a shape
                    state[key] = self._live(self.state_location(index, param, (key,)), key, value)

    def _live(self, location: Any, name: str, value: Any) -> Any:
        """A Python number, or each number of a tuple (betas), as an input of the program."""
        if type(value) in (int, float):
            if location not in self.inputs:
                self.inputs[location] = self.recorder.placeholder(name, value)
            return self.trace.scalar(float(value), self.inputs[location])
        if type(value) is tuple and value and all(type(v) in (int, float) for v in value):
            return tuple(self._live(location.item(i), f"{name}{i}", v) for i, v in enumerate(value))
        return value

    def _item(self, tensor: torch.Tensor) -> Any:
        node, twin = self.recorder._convert(tensor)
        value = twin.__dict__.get("_value")
        if value is None or isinstance(value, FakeTensor):
            raise UnsupportedInGraph(
                f"{self.stepping} decides by the value of a tensor of shape {tuple(tensor.shape)}",
                "graph-optimizers",
                "An optimizer in a graph may read its step counters only: take another one, or step this one"
                " in eager mode.",
            )
        graph = self.recorder.graph
        with outside_capture():
            scalar = float(value.item())
        return self.trace.scalar(scalar, graph.call_function(aten._local_scalar_dense.default, (node,)))


def _scalar_attributes(optimizer: Optimizer) -> dict[Any, Any]:
    """Return {name: value} of the public attributes that are Python numbers."""
    return {k: v for k, v in vars(optimizer).items() if type(v) in (int, float) and not k.startswith("_")}


def _restore_attributes(optimizer: Optimizer, before: Any) -> Any:
    """Restore attributes; return the name of one whose number step() changed, or None."""
    changed = None
    for name, value in _scalar_attributes(optimizer).items():
        if name not in before or before[name] != value:
            changed = name
            if name in before:
                setattr(optimizer, name, before[name])
    return changed


# counters that optimizers keep in param_groups: inputs from the first capture on, so no second one is needed
_COUNTERS = {"step", "k"}


def refuse_class(optimizer: Optimizer, scheduler: object) -> None:
    """Raise an error for an optimizer or a scheduler whose step() needs more than a graph can give it."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UnsupportedInGraph(
            "LBFGS evaluates the model several times per step, which depends on values",
            "graph-optimizers",
            "Step LBFGS in eager mode, or use another optimizer.",
        )
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise UsageError(
            "ReduceLROnPlateau needs a metric in each step",
            "Leave it out of add_optimizer() and call its step(metric) yourself; the changed lr is seen.",
        )


def clip(optimizers: Iterable[Optimizer], found_inf: torch.Tensor | None) -> None:
    """Clip the gradients of all groups, then update the values that are kept outside of tensors."""
    for group in (g for optimizer in optimizers for g in optimizer.param_groups):
        clip_group(group)
        for p in group["params"]:
            if p in external_updates and p.grad is not None:
                p.grad.copy_(external_updates[p](p.grad, found_inf))


def fill_packed_gradients(optimizers: Iterable[Optimizer]) -> None:
    """Give zeros to the parameters without a gradient in a group with contiguous_params.

    The gradients of such a group are chunks of one buffer.
    """
    for group in (g for optimizer in optimizers for g in optimizer.param_groups):
        if group.get("contiguous_params") and any(p.grad is not None for p in group["params"]):
            for p in group["params"]:
                if p.grad is None and p.requires_grad:
                    p.grad = torch.zeros_like(p)


def clip_group(group: Any) -> None:
    """Clip a group by its own total norm if it has both clipping options, as OneFlow does in a graph."""
    max_norm, norm_type = group.get("clip_grad_max_norm"), group.get("clip_grad_norm_type")
    if max_norm is None or norm_type is None:
        return
    params = [p for p in group["params"] if p.grad is not None]
    if params:
        clip_grad_norm_(params, max_norm, norm_type=norm_type)
