"""The end of a training step under capture: unscale, clip, optimizer steps.

The optimizer's own `step` is recorded. Its learning rate and step counters are HostScalars, so the program
computes exactly the Python numbers that eager computes. Its state tensors become inputs of the program.
"""

from __future__ import annotations

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

from ...._active import outside_capture
from ...._global.tensor import several
from ...._global.zero import splitting
from ...errors import CaptureError, UnsupportedInGraph
from ...program.locations import GroupOption, OptimizerState
from ...program.nested_state import copied, symbolic
from . import sparse_rows
from .host_scalars import ScalarMode, ScalarTrace, traced_math
from .loss_scaling import begun
from .optimizer_state import CreatedState, StateChanges, StateValue

aten = torch.ops.aten

# parameter -> f(gradient, found inf or None), which returns the gradient to use from here on. Such a
# parameter stands for numbers that are kept outside of tensors.
outside: WeakIdKeyDictionary = WeakIdKeyDictionary()


class Update(StateChanges):
    """Records the update of all optimizers. After `run`, `numbers` lists the Python-number inputs."""

    def __init__(self, recorder, state_map, config, grad_scaler=None, live=()):
        self.recorder = recorder
        self.state = state_map
        self.config = config
        self.scaler = grad_scaler
        self.live = dict(live)  # optimizer -> options seen to change between calls
        self.found_live: dict = {}  # the same, for options that the step created
        self.trace = ScalarTrace(recorder.graph)
        recorder.markers, recorder.marker_values = self.trace.markers, self.trace.values
        recorder.scalar_of = lambda tensor: self.trace.marker(self._item(tensor))
        # placeholder node of a Python number -> where the number lies
        self.numbers: dict[torch.fx.Node, GroupOption | OptimizerState] = {}
        self.state_values: list[StateValue] = []  # stored after each run
        # the step created state that the program cannot begin with: the program serves one call
        self.first_only = False
        self.found = None  # node that is 1 if the gradients overflowed under a dynamic scaler
        self.snapshots: list = []
        self.stepping = "the optimizer"  # the class whose step() is recorded
        self.created: list[CreatedState] = []  # before the step
        self.new_options: dict = {}  # optimizer -> [(group, key, tensor)] that the step put into param_groups
        # lists and dicts of state tensors that the step created
        self.structures: dict[OptimizerState, object] = {}

    # -- entry -----------------------------------------------------------------
    def run(self):
        with contextlib.nullcontext() if self.config.zero is None else splitting(self.config.zero):
            self._run()

    def _run(self):
        self.recorder.phase = "update"
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            self._check(index, optimizer)
        for optimizer, _ in self.state.optimizers:
            self.snapshots.append(
                (
                    optimizer,
                    {p: (s, copied(s)) for p, s in optimizer.state.items()},
                    [copied(g) for g in optimizer.param_groups],
                )
            )
        found_inf = None
        if self.scaler is not None:
            from .loss_scaling import unscale

            found_inf = unscale(self)
        for optimizer, _ in self.state.optimizers:
            for group in optimizer.param_groups:
                clip_group(group)
                for p in group["params"]:
                    if p in outside and p.grad is not None:
                        p.grad.copy_(outside[p](p.grad, found_inf))
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            self._pre_materialize(index, optimizer)
        kept = None
        if found_inf is not None:
            self.found = self.recorder._convert(found_inf)[0]
            from .loss_scaling import keep_old

            kept = keep_old(self)
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            if optimizer not in sparse_rows.lazy:
                self._step(index, optimizer)
                continue
            with torch.no_grad():
                found_rows = sparse_rows.before_step(optimizer)
                existing = {id(t) for _, _, snapshots in found_rows for t, _ in snapshots.values()}
                self._step(index, optimizer)
                sparse_rows.after_step(optimizer, found_rows, begun(self, existing, [optimizer]))
        if kept is not None:
            from .loss_scaling import choose

            choose(self, found_inf, kept)

    def undo(self):
        """Restore optimizer state and group options, after an error and after success.

        After success, new real state is kept.
        """
        for optimizer, states, groups in self.snapshots:
            for group, old in zip(optimizer.param_groups, groups):
                group.clear()
                group.update(old)
            for param in list(optimizer.state):
                if param in states:  # the same dict object, because earlier programs read it
                    state, old = states[param]
                    state.clear()
                    state.update(old)
                    optimizer.state[param] = state
                else:
                    del optimizer.state[param]

    # -- parts -------------------------------------------------------------------
    def _check(self, index, optimizer):
        params = [p for g in optimizer.param_groups for p in g["params"]]
        if not any(p.grad is not None for p in params):
            raise CaptureError(
                f"optimizer {index} ({type(optimizer).__name__}) has no parameter that got a gradient from"
                " build()",
                "Call loss.backward() in build() on a loss that depends on its parameters, or do not add the"
                " optimizer.",
            )

    def _step(self, index, optimizer):
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UnsupportedInGraph(
                "LBFGS evaluates the model several times per step, which depends on values",
                "graph-optimizers",
                "Step LBFGS in eager mode, or use another optimizer.",
            )
        if isinstance(self.state.optimizers[index][1], torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise CaptureError(
                "ReduceLROnPlateau needs a metric in each step",
                "Leave it out of add_optimizer() and call its step(metric) yourself; the changed lr is seen.",
            )
        self.stepping = type(optimizer).__name__
        groups = optimizer.param_groups
        flags = update_flags(optimizer, self.config)
        for g, group in enumerate(groups):
            for key in sorted(
                {
                    "lr",
                    *self.live.get(index, ()),
                    *(k for k in _COUNTERS & group.keys() if type(group[k]) is int),
                }
                & group.keys()
            ):
                group[key] = self._live(GroupOption(index, g, (key,)), key, group[key])
            group.update({k: v for k, v in flags.items() if k in group})
        groups_before = [copied(g) for g in groups]
        self._number_states(index, optimizer)
        called = getattr(optimizer, "_opt_called", None)
        counters = _number_attributes(optimizer)
        try:
            with torch.no_grad(), traced_math(), ScalarMode(self.trace, self._item):
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
        for name, value in vars(optimizer).items():
            if name not in ("state", "param_groups") and symbolic(value):
                self._refuse_object(optimizer, f"its attribute {name!r}", value)
        self._replaced_state(index, optimizer)
        self._changed_options(index, optimizer, groups_before)

    def _pre_materialize(self, index, optimizer):
        """Pre-create state that torch would take from the first gradient, if zeros give the same result."""
        if isinstance(optimizer, torch.optim.SGD):
            for group in optimizer.param_groups:
                if group.get("momentum") and not group.get("dampening"):
                    for p in group["params"]:
                        if (
                            p.grad is not None
                            and not p.grad.is_sparse
                            and optimizer.state[p].get("momentum_buffer") is None
                        ):
                            with outside_capture():
                                real = torch.zeros_like(p, requires_grad=False)
                            optimizer.state[p]["momentum_buffer"] = real
                            location = self.state_location(index, p, ("momentum_buffer",))
                            self.created.append(CreatedState(location, real))

    def _number_states(self, index, optimizer):
        for param, state in optimizer.state.items():
            for key, value in state.items():
                if type(value) is not tuple:  # a shape
                    state[key] = self._live(self.state_location(index, param, (key,)), key, value)

    def _live(self, location, name, value):
        """A Python number, or each number of a tuple (betas), as an input of the program."""
        if type(value) in (int, float):
            node = self.recorder.placeholder(name, value)
            self.numbers[node] = location
            return self.trace.scalar(float(value), node)
        if type(value) is tuple and value and all(type(v) in (int, float) for v in value):
            return tuple(self._live(location.item(i), f"{name}{i}", v) for i, v in enumerate(value))
        return value

    def _item(self, tensor):
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
            number = value.item()
        return self.trace.scalar(
            float(number), graph.call_function(aten._local_scalar_dense.default, (node,))
        )


def _number_attributes(optimizer):
    """{name: number} of the public attributes that are Python numbers."""
    return {k: v for k, v in vars(optimizer).items() if type(v) in (int, float) and not k.startswith("_")}


def _restore_attributes(optimizer, before):
    """Restore attributes; return the name of one whose number step() changed, or None."""
    changed = None
    for name, value in _number_attributes(optimizer).items():
        if name not in before or before[name] != value:
            changed = name
            if name in before:
                setattr(optimizer, name, before[name])
    return changed


# counters that optimizers keep in param_groups: inputs from the first capture on, so no second one is needed
_COUNTERS = {"step", "k"}


def update_flags(optimizer, config):
    """Return the options that select torch's form of the optimizer to trace; the user's choice always wins."""
    group = optimizer.param_groups[0]
    if group.get("foreach") is not None or group.get("fused") is not None or group.get("differentiable"):
        return {}
    if config.zero is not None and several():  # one parameter at a time, each with its shards
        return {k: False for k in ("foreach", "fused") if k in group}
    params = [p for g in optimizer.param_groups for p in g["params"]]
    if any(p.grad is not None and p.grad.is_sparse for p in params) or _has_tensor_options(optimizer):
        return {}
    if config.fuse_update and "fused" in group and _has_fused_kernel(optimizer, params):
        # eager steps on a GPU create counters on the CPU; the fused operator counts on the GPU
        return {"fused": True, "foreach": False} if _counts_beside_parameters(optimizer, params) else {}
    multi = _equals_multi_tensor(optimizer, params) if config.multi_tensor is None else config.multi_tensor
    return {"foreach": True, "fused": False} if multi and "foreach" in group else {}


def _has_tensor_options(optimizer):
    """Whether a rate or a beta is a tensor, which the multi-tensor forms reject."""
    options = (v for g in optimizer.param_groups for v in (g.get("lr"), *(g.get("betas") or ())))
    return any(isinstance(v, torch.Tensor) for v in options)


def _has_fused_kernel(optimizer, params):
    on_device = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in params)
    return on_device and not _half_on_cpu(optimizer, params)


def _counts_beside_parameters(optimizer, params):
    """Whether every step counter that is a tensor lies on the device of its parameter."""
    steps = [(optimizer.state[p].get("step"), p) for p in params if p in optimizer.state]
    return all(not isinstance(step, torch.Tensor) or step.device == p.device for step, p in steps)


def _equals_multi_tensor(optimizer, params):
    """Whether torch's multi-tensor form gives the same values and replaces many small operators."""
    size = sum(p.numel() * p.element_size() for p in params)
    return (
        size < _MULTI_TENSOR_BYTES
        and isinstance(optimizer, _SAME_NUMBERS)
        and all(p.device.type == "cpu" and p.dtype in _SAME_DTYPES for p in params)
        # if two parameters share memory, the second must take its step after the first
        and len({p.untyped_storage()._cdata for p in params}) == len(params)
    )


def _half_on_cpu(optimizer, params):
    """Whether torch's fused form is wrong for these parameters.

    On the CPU, the fused SGD of torch 2.13 leaves most elements of half precision unchanged, and its fused
    Adam of float16 gives inf.
    """
    lost = (torch.float16, torch.bfloat16) if isinstance(optimizer, torch.optim.SGD) else (torch.float16,)
    return any(p.device.type == "cpu" and p.dtype in lost for p in params)


# On the CPU torch's multi-tensor form of these is a loop, bitwise equal to the plain form.
_SAME_NUMBERS = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)
_SAME_DTYPES = (torch.float32, torch.float64)  # half precision is rounded at other points
_MULTI_TENSOR_BYTES = 1 << 25  # its temporaries are as large as the parameters


def clip_group(group):
    """Clip a group by its own total norm if it has both clipping options, as OneFlow does in a graph."""
    max_norm, norm_type = group.get("clip_grad_max_norm"), group.get("clip_grad_norm_type")
    if max_norm is None or norm_type is None:
        return
    params = [p for p in group["params"] if p.grad is not None]
    if params:
        from ...._ops.clip_grad import clip_grad_norm_

        clip_grad_norm_(params, max_norm, norm_type=norm_type)
