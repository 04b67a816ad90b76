"""From a build function to a Program: forward, backward and update recorded as one ATen graph."""

from __future__ import annotations

import contextlib
import enum
from dataclasses import replace

import numpy as np
import torch

from ..._active import STATE, capturing
from ..._global.tensor import OfSeveralRanks, is_global, memory_of
from ..errors import KEEP_PADDED, CaptureError, GraphTypeError, inside_another
from ..observe import observe, report_unfollowed
from ..program.captured import Captured, Effects, Guards, StoredAttribute
from ..program.program import Output, Program
from ..program.pytree import argument_names, paths, tree_flatten, with_sizes
from ..program.symbolic import SYMBOLIC_NUMBERS, is_run_value
from .module_state import StateMap, kept_grads, kept_modes, kept_modules, memories, of_their_own, resolve
from .option_reads import option_reads
from .patching import everything_undone, undone
from .slots import shared_memory, slots_of
from .unused_backward import backward_is_unused, warn_of_unused_backward

_PLAIN = (
    int,
    float,
    bool,
    str,
    bytes,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    slice,
    type(Ellipsis),
    enum.Enum,
    np.generic,
)


def check_leaves(flat, name, more=()):
    """Raise unless every leaf is a tensor, a plain Python value, or of one of the classes in `more`.

    An error calls the leaf name(index).
    """
    for index, leaf in enumerate(flat):
        if not isinstance(leaf, (torch.Tensor, *_PLAIN, *SYMBOLIC_NUMBERS, *more)):
            type_name = (
                type(leaf).__qualname__
                if type(leaf).__module__ == "builtins"
                else f"{type(leaf).__module__}.{type(leaf).__qualname__}"
            )
            raise GraphTypeError(
                f"the {name(index)} of build() has the type {type_name}, which a graph cannot take",
                "Use tensors, numbers, strings, None, and nested list, tuple or dict of them (numpy:"
                " flow.from_numpy(x)).",
            )
        if isinstance(leaf, torch.Tensor) and leaf.is_nested:
            raise GraphTypeError(
                f"the {name(index)} of build() is a nested tensor, which a graph cannot take", KEEP_PADDED
            )


def leaf_name(spec, index) -> str:
    """A readable path of a flat leaf, such as [0]['x']."""
    return "".join(f"[{key!r}]" for key in paths(spec)[index])


class Capture:
    """One run of build() under capture; `run` returns what it captured."""

    def __init__(self, engine, args, kwargs, config, branches=(), dynamic=None):
        """`dynamic`: {index of a flat argument: its dimensions that are symbols}."""
        from .recorder import Recorder

        self.engine = engine
        self.config = config
        self.args_flat, self.in_spec = tree_flatten((args, kwargs))
        self.recorder = Recorder()
        if dynamic:
            from .dynamic_dimensions import DynamicDimensions

            positions = [i for i, value in enumerate(self.args_flat) if isinstance(value, torch.Tensor)]
            self.recorder.dynamic = DynamicDimensions(self.recorder, dynamic, positions)
        self.recorder.sizes.vary, self.recorder.sizes.expected = bool(engine.sizes_vary), dict(branches)
        self.new_state: list = []
        self.global_results: dict = {}  # result -> (placement, sbp, shape)
        self.update, self.aside = None, ()

    def run(self) -> Captured:
        with everything_undone():
            return self._run()

    def _run(self) -> Captured:
        from .torch_patches import capture_patches

        if capturing():
            raise inside_another()
        if torch._C._are_functorch_transforms_active():
            raise CaptureError(
                "a graph was called under a transform of torch.func (vmap, grad, ...)",
                "Transform the function inside build().",
            )
        check_leaves(self.args_flat, lambda i: f"argument {self._argument_names()[i]!r}")
        _prepare_torch()
        engine, recorder = self.engine, self.recorder
        # a training graph records gradients also when it is called under no_grad; an inference graph keeps
        # the caller's mode
        grad_mode = bool(callable(engine.optimizers) or engine.optimizers) or torch.is_grad_enabled()
        names = self._argument_names()
        with torch.inference_mode(False):
            inputs = [
                self._input(v, n) if isinstance(v, torch.Tensor) else v for v, n in zip(self.args_flat, names)
            ]
        early = StateMap(
            resolve(engine.modules),
            resolve(engine.tensors),
            () if callable(engine.optimizers) else engine.optimizers,
        )
        self.tensors = leaves = [e.tensor for e in early.by_id.values()]
        self._no_own_parameter(names, early)
        _no_lazy_parameter(early)
        grads = kept_grads(leaves)
        recorder.on_lift = grads.hide
        modules = self._modules = kept_modules(list(early.all_modules()), engine.owner, recorder)
        reads = observe(engine.build, engine.owner, modules.add)
        with (
            undone(self._leave),
            torch.inference_mode(False),
            grads,
            kept_modes(engine, early.all_modules()),
            modules,
            capture_patches(self, early),
            _autograd_as_recorded(),
        ):
            STATE.recorder, STATE.state = recorder, early
            with recorder, torch.set_grad_enabled(grad_mode):  # inference_mode(False) turned it on
                flat_out, out_spec = self._record(inputs, early, modules, reads)
            captured = self._close(flat_out, out_spec)
        self._install_new_state(captured.live)
        return captured

    def _leave(self):
        """Take the optimizers' state back, and let operators run."""
        STATE.recorder = STATE.state = None
        if self.update is not None:
            self.update.undo()
            for optimizer, kept in self.aside:
                optimizer.state.update(kept)

    def _no_own_parameter(self, names, state):
        """An argument is a tensor of its own in the program: as one of the trained parameters it would get no
        gradient.
        """
        for name, value in zip(names, self.args_flat):
            if (
                state.optimizers
                and isinstance(value, torch.nn.Parameter)
                and value.requires_grad
                and state.entry(value) is not None
            ):
                raise CaptureError(
                    f"the argument {name!r} is the parameter {state.name_of(value)!r} of the graph itself,"
                    " and would get no gradient as an argument",
                    "Use the parameter inside build() instead of passing it.",
                )

    # -- stages ------------------------------------------------------------------
    def _input(self, tensor, name):
        twin = self.recorder.symbolic(memory_of(tensor), name)
        return tensor.__class__.around(twin, tensor) if isinstance(tensor, OfSeveralRanks) else twin

    def _argument_names(self):
        return [name for _, name in argument_names(self.in_spec, self.engine.arg_names)]

    def _record(self, inputs, early, modules, reads):
        """build(), what it left in modules, and the update; returns its flat results and their spec."""
        with reads:
            flat_out, out_spec = self._build(inputs)
        check_leaves(flat_out, lambda i: f"output {leaf_name(out_spec, i)}".rstrip(), (torch.nn.Module,))
        self.recorder.phase = "state"
        rebound = modules.changes()
        modules.fill(v for v in flat_out if isinstance(v, torch.nn.Module))
        taken = memories([*inputs, *flat_out])
        self.attributes = []
        for container, key, value in modules.stores:
            leaves, spec = tree_flatten(value)
            leaves = tuple(of_their_own(leaves, taken))
            self.attributes.append(StoredAttribute(container, key, leaves, with_sizes(spec)))
        modules.restore()
        self.attributes = [  # the lists have their elements from before build() again
            replace(a, appends=type(a.container) is list and a.key >= len(a.container))
            for a in self.attributes
        ]
        replayed = {(id(attribute.container), attribute.key) for attribute in self.attributes}
        self.python_values = reads.finish(replayed, self.engine.modes)
        report_unfollowed(
            self.engine.name,
            self.python_values.unfollowed,
            self.config.strict,
            self.engine.told_of_unfollowed,
        )
        self.state = self._late_state(early)
        for old, new in rebound:
            with torch.no_grad():
                old.copy_(new)
        self._packed_gradients()
        self._record_update()
        return flat_out, out_spec

    def _build(self, flat):
        from .random_state import python_draws
        from .torch_patches import run_build

        optimizers = [optimizer for optimizer, _ in resolve(self.engine.optimizers)]
        with (
            python_draws(self.engine.name, "build()"),
            option_reads(optimizers, self.recorder) as self.options_read,
        ):
            return run_build(self, flat)

    def _late_state(self, early):
        engine = self.engine
        if callable(engine.modules) or callable(engine.tensors) or callable(engine.optimizers):
            return StateMap(resolve(engine.modules), resolve(engine.tensors), resolve(engine.optimizers))
        return early

    def _packed_gradients(self):
        """In a group with contiguous_params every parameter has a gradient: a part of one buffer, zeros where
        nothing came.
        """
        for optimizer, _ in self.state.optimizers:
            for group in optimizer.param_groups:
                if group.get("contiguous_params") and any(p.grad is not None for p in group["params"]):
                    for p in group["params"]:
                        if p.grad is None and p.requires_grad:
                            p.grad = torch.zeros_like(p)

    def _record_update(self):
        from .random_state import python_draws
        from .torch_patches import resolve_scaler
        from .update.step import Update

        scaler = resolve_scaler(self.engine.grad_scaler)
        if not self.state.optimizers:
            return
        self.update = Update(self.recorder, self.state, self.config, scaler, self.engine.live_options)
        self.aside = _other_state(self.state)
        try:
            with python_draws(
                self.engine.name,
                f"step() of {', '.join(dict.fromkeys(type(o).__name__ for o, _ in self.state.optimizers))}",
            ):
                self.update.run()
        except (KeyError, TypeError) as error:
            _refuse_other_state(
                self.state,
                self.aside,
                (
                    error.args[:1]
                    if isinstance(error, KeyError)
                    else [k for _, kept in self.aside for k in kept]
                ),
            )
            raise
        _refuse_other_state(self.state, self.aside)
        self.new_state = self.update.adopt_new_state()
        for index, keys in self.update.found_live.items():
            self.engine.live_options.setdefault(index, set()).update(keys)

    def _results(self, flat_out, out_spec):
        """(nodes, an Output for each, [(index of a result that is no node, the value)]): the results of
        build(), then what the runtime stores.
        """
        recorder = self.recorder
        outputs, constants, nodes = [], [], []
        for i, value in enumerate(flat_out):
            if isinstance(value, torch.Tensor):
                node = recorder._convert(memory_of(value))[0]
                if is_global(value):
                    self.global_results[len(outputs)] = value._of_placement, value._of_sbp, value.shape
                info = node.meta["tensor"]
                nodes.append(node)
                outputs.append(Output(leaf_name(out_spec, i), info.shape, info.dtype, info.device))
            elif isinstance(
                output_value := recorder.sizes.node(value) if type(value) in SYMBOLIC_NUMBERS else value,
                torch.fx.Node,
            ):
                nodes.append(output_value)
                outputs.append(Output(leaf_name(out_spec, i)))
            else:
                constants.append((i, output_value))
        for value in (leaf for attribute in self.attributes for leaf in attribute.leaves):
            if is_run_value(value):
                nodes.append(
                    recorder._convert(memory_of(value) if isinstance(value, torch.Tensor) else value)[0]
                )
                outputs.append(Output("attribute"))
        for state_value in self.update.state_values if self.update else ():
            nodes.append(state_value.value)
            outputs.append(Output("state"))
        if self._reports_overflow:
            nodes.append(self.update.found)
            outputs.append(Output("overflow"))
        return nodes, outputs, constants

    def _close(self, flat_out, out_spec):
        recorder = self.recorder
        nodes, outputs, constants = self._results(flat_out, out_spec)
        for created in self.new_state:
            self._replace_by_input(created.node, created.tensor)
        guard = None
        guards = recorder.guards + (self.update.trace.guards if self.update is not None else [])
        if guards:
            from ..program.scalar_guards import guard_graph

            guard = guard_graph(recorder.graph, guards)
        graph = recorder.finish(nodes)
        self._keep_callers_values(graph)
        if not self.state.optimizers and backward_is_unused(graph):
            warn_of_unused_backward(self.engine)
        slots, free, free_index = slots_of(self, graph)
        program = Program(
            name=self.engine.name,
            graph=graph,
            slots=slots,
            guard=guard,
            outputs=tuple(outputs),
            in_spec=self.in_spec,
            out_spec=out_spec,
            out_constants=tuple(constants),
            in_constants=tuple(
                (i, name, repr(v))
                for i, (v, name) in enumerate(zip(self.args_flat, self._argument_names()))
                if not isinstance(v, torch.Tensor)
            ),
            constants=recorder.constants,
            training=self.update is not None,
            config=self.config,
            unknown_sizes=recorder.sizes.depend_on_values,
            dimensions=recorder.dynamic.guards() if recorder.dynamic is not None else None,
        )
        guards = self._guards(free_index, *shared_memory(self, program))
        return Captured(program, self._effects(), guards, self.state.live(free))

    def _effects(self) -> Effects:
        update = self.update
        created = (*update.created, *self.new_state) if update is not None and update.first_only else ()
        return Effects(
            attributes=tuple(self.attributes),
            state_values=tuple(v.location for v in update.state_values) if update is not None else (),
            reports_overflow=self._reports_overflow,
            created_state=tuple(c.location for c in created),
            schedulers=tuple(s for _, s in self.state.optimizers if s is not None),
            global_results=self.global_results,
        )

    def _guards(self, free_index, overlaps, merged) -> Guards:
        recorder, live_options = self.recorder, self.engine.live_options
        named = (entry.tensor for entry in self.state.by_id.values())
        return Guards(
            python_values=self.python_values,
            free_index=free_index,
            live_options={o: frozenset(names) for o, names in live_options.items()},
            overlaps=overlaps,
            merged=merged,
            options_read=frozenset(self.options_read),
            branches=recorder.sizes.branches,
            fixes_sizes=recorder.sizes.known,
            reads_values=bool(recorder.guards),
            serves_one_call=self.update is not None and self.update.first_only,
            reads_global_tensors=any(
                isinstance(value, torch.Tensor) and is_global(value) for value in (*self.args_flat, *named)
            ),
        )

    @property
    def owners(self):
        """The modules that build() used, and the object that build() belongs to."""
        return [thing for thing, *_ in self._modules.before]

    def _keep_callers_values(self, graph):
        if self.engine.writes_through():
            return
        from .caller_tensors import keep_callers_values, warn_of_kept_values

        written = keep_callers_values(self, graph)
        if written and not self.engine.told_of_writes:
            self.engine.told_of_writes = True
            warn_of_kept_values(self.engine.name, written)

    def _replace_by_input(self, node, real):
        while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node = node.args[0]
        if node.op == "placeholder":
            return
        holder = self.recorder.placeholder("state", real)
        holder.meta["tensor"] = node.meta["tensor"]
        self.recorder.lifted[id(real)] = (real, holder, None)
        node.replace_all_uses_with(holder)
        self.recorder.graph.erase_node(node)

    @property
    def _reports_overflow(self):
        return (
            self.update is not None
            and self.update.found is not None
            and bool(self.update.state_values or self.update.first_only)
        )

    def _install_new_state(self, live):
        if self.update is None:
            return
        for location, value in self.update.structures.items():
            location.write(live, value)
        for created in (*self.update.created, *self.new_state):
            created.location.write(live, created.tensor)


def _other_state(state):
    """Take numbers that lie in an optimizer's state under another key than a parameter out of it."""
    return [
        (o, {k: o.state.pop(k) for k, v in list(o.state.items()) if not isinstance(v, dict)})
        for o, _ in state.optimizers
    ]


def _refuse_other_state(state, aside, missed=()):
    """An optimizer that reads or makes such state in step() cannot be in a program."""
    for optimizer, kept in aside:
        foreign_keys = [
            k
            for k, v in optimizer.state.items()
            if v and not (isinstance(k, torch.Tensor) and state.name_of(k) is not None)
        ]
        for key in (*foreign_keys, *(k for k in missed if k in kept)):
            raise CaptureError(
                f"{type(optimizer).__name__} keeps state under the key"
                f" {type(key).__name__ if isinstance(key, torch.Tensor) else key!r}, which is none of its"
                " parameters",
                "A program finds optimizer state by parameter: keep it in optimizer.state[param], or step"
                " this optimizer in eager mode.",
            )


def _no_lazy_parameter(state):
    for entry in state.by_id.values():
        if isinstance(entry.tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise CaptureError(
                f"{entry.role} {entry.name!r} has no shape yet: its module is a lazy one (nn.Lazy...) that never ran",
                "Run the module once in eager mode before the first call of the graph, for example on a batch"
                " under no_grad().",
            )


_prepared = False


@contextlib.contextmanager
def _autograd_as_recorded():
    """One thread, nothing looks for nan (set_detect_anomaly), and autocast keeps no weights: it would hand
    out those cast before, and later those of the capture.
    """
    torch.clear_autocast_cache()
    try:
        with torch.autograd.set_multithreading_enabled(False), torch.autograd.set_detect_anomaly(False):
            yield
    finally:
        torch.clear_autocast_cache()


def _prepare_torch():
    """Import what the first optimizer step would import, before symbolic tensors are about."""
    global _prepared
    if not _prepared:
        _prepared = True
        p = torch.nn.Parameter(torch.zeros(1))
        p.grad = torch.zeros(1)
        torch.optim.SGD([p], lr=0.0).step()
