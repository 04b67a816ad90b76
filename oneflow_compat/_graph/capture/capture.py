"""From a build function to a Program: forward, backward and update recorded as one ATen graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..._active import STATE, capturing
from ..._global.marks import OfSeveralRanks, several
from ..._global.tensor import memory_of
from ..._global.zero import splitting
from ..._processes import get_rank
from ..._signals import second_interrupt_acts_at_once
from ..errors import CAPTURED_AGAIN, CaptureError, NumbersFound, inside_another, no_error_is_caught
from ..guards import sources
from ..guards.conditions import conditions_on, guard_graph
from ..guards.torch_settings import setting_guards
from ..observe import facts_of_arguments, observe, observe_steps, report_unfollowed
from ..program.captured import Captured
from ..program.object_trees import flattened_arguments, has_objects
from ..program.program import Program
from ..program.pytree import argument_names, tree_flatten
from .build import check_arguments, check_results, run_build
from .eager_mode import left_to_eager_mode
from .effects_and_guards import effects_of, guards_of
from .outputs import outputs_of
from .patches.patching import everything_undone, undone
from .patches.random_state import python_samples
from .patches.torch_patches import autograd_of_capture, capture_patches
from .pipeline_order import in_pipeline_order
from .rank_facts import note_state, shared_calls
from .recorder import Recorder
from .results.histories import refuse_open_histories
from .side_effects.caller_tensors import keep_callers_values, warn_of_kept_values
from .side_effects.gradients_of_call import GradientsOfCall, LeftGradients
from .side_effects.module_changes import ModuleChanges, stored_outside
from .side_effects.set_aside import (
    GradientsAside,
    ModesOfFirstCapture,
    backward_is_unused,
    warn_of_unused_backward,
)
from .side_effects.survivors import settle_failed
from .slots import shared_memory, slots_of
from .state_map import StateMap, resolve
from .step_run import run_step
from .update.kept_gradients import KeptGradients
from .update.new_state import adopt_new_state, install, take_as_inputs
from .update.optimizer_state import refuse_foreign_state, take_foreign_state
from .update.scalers_of_build import refuse_skipped_numbers
from .update.step import Update, fill_packed_gradients
from .update.steps_of_build import StepsOfBuild
from .update_run import run_update
from .values.dynamic_dimensions import DynamicDimensions
from .values.number_inputs import NumberInputs
from .values.option_reads import OptionReads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Graph, Node

    from ..argument_sizes import SymbolicDims
    from ..assumptions import Assumptions
    from ..config import Config
    from ..definition import GraphDefinition
    from ..guards.observed import Observed
    from ..program.locations import GroupOption
    from ..program.symbolic import Branch
    from .interfaces import LossFactor
    from .side_effects.result_objects import Results
    from .update.optimizer_state import AdoptedState


class Capture:
    """One run of build() under capture; `run` returns what it captured."""

    observed: Observed  # reads of build(), set when it has returned

    def __init__(
        self,
        definition: GraphDefinition,
        assumptions: Assumptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        config: Config,
        branches: Mapping[Branch, bool],
        dynamic: SymbolicDims | None = None,
    ) -> None:
        """`dynamic`: {index of a flat argument: its dimensions that are symbols}."""
        self.definition, self.assumptions, self.config = definition, assumptions, config
        self.args_flat, self.in_spec = tree_flatten((args, kwargs))
        self.argument_objects = flattened_arguments(args, kwargs).objects if has_objects(self.in_spec) else []
        self.recorder = Recorder()
        self.recorder.gives_numbers = definition.steps_in_build or config.ends_capture
        if dynamic:
            positions = [i for i, value in enumerate(self.args_flat) if isinstance(value, torch.Tensor)]
            self.recorder.dynamic = DynamicDimensions(self.recorder, dynamic, positions)
        self.recorder.sizes.vary = assumptions.has_symbols_for_dependent_sizes
        self.recorder.copied.has_views_of_rows = assumptions.rows_are_views
        self.recorder.sizes.expected = dict(branches)
        self.recorder.sizes.branches_on_floats = assumptions.branches_on_floats
        self.option_inputs: set[GroupOption] = set()  # options of optimizers that build() reads as inputs
        # each rank would have numbers of its own
        self.number_inputs = NumberInputs(() if several() else assumptions.numbers.inputs, self.recorder)
        self.new_state: list[AdoptedState] = []
        self.update: Update | None = None
        self.loss_factor: LossFactor | None = None
        self.aside: Any = ()
        self.kept_gradients: KeptGradients | None = None
        self.consumed: list[Any] = []
        self.left_gradients = LeftGradients()
        self.has_read_state = False  # whether the code of a step read state of its optimizers
        self.gradient_names: dict[int, str] = {}  # id of a gradient before the call -> its parameter

    def run(self) -> Captured:
        try:
            try:
                with everything_undone():
                    return self._run()
            finally:
                self.recorder.sizes.end()
        except BaseException as error:
            if isinstance(error, CAPTURED_AGAIN):
                self._undo_writes()
            if isinstance(error, CaptureError) and not error.stack:
                error.is_before_model = self._is_before_model()
            self.number_inputs.restore()
            if isinstance(error, Exception):
                settle_failed(self.recorder)
            self._release()
            raise

    def _is_before_model(self) -> bool:
        """Whether build() has used no parameter."""
        used = (tensor for tensor, _, _ in self.recorder.lifted.values())
        return not any(isinstance(t, torch.nn.Parameter) or t.requires_grad for t in used)

    def _undo_writes(self) -> None:
        """Take back what step() of the optimizers and build() wrote, so that this call may run once more."""
        step_reads = getattr(self, "step_reads", None)
        if step_reads is not None:
            step_reads.undo_writes()
        if hasattr(self, "observed"):
            self.observed.undo_writes()
        elif hasattr(self, "reads"):  # build() returned what no program can return
            self.reads.undo_writes()

    def _release(self) -> None:
        """Drop everything but the recorder's branches; frames of the error and cycles hold this object."""
        self.recorder.release()
        for name in vars(self).keys() - {"recorder"}:
            delattr(self, name)

    def _run(self) -> Captured:
        self._check_call()
        _prepare_torch()
        definition, recorder = self.definition, self.recorder
        self.plan = definition.pipeline_plan(self.config)
        definition.store_shards(self.config)
        # a training graph records gradients also when it is called under no_grad; an inference graph keeps
        # the caller's mode
        trains = definition.updates_after_build
        grad_mode = trains or torch.is_grad_enabled()
        self.settings = setting_guards(trains)
        in_inference_mode, names = torch.is_inference_mode_enabled(), self._argument_names()
        with torch.inference_mode(False):
            inputs = [
                self._input(v, n) if isinstance(v, torch.Tensor) else v for v, n in zip(self.args_flat, names)
            ]
        early = self._state_before_build(names)
        self._begin_steps(early)
        grads: GradientsOfCall | GradientsAside
        if definition.steps_in_build:
            grads = GradientsOfCall(self.tensors, recorder)
        else:
            grads = GradientsAside(self.tensors)
        self._gradients, recorder.on_lift = grads, grads.hide
        modules = self.modules = ModuleChanges(list(early.all_modules()), definition.owner)
        ends_capture = self.config.ends_capture
        self.reads = observe(self._note_module, ends_capture, definition.steps_in_build)
        self.reads.numbers = self.number_inputs.places
        if definition.argument_numbers is not None:
            places = definition.argument_numbers.places
            for key, value in definition.argument_numbers.constants(self.number_inputs.places):
                self.reads.reads.notes.add(sources.Item(key), places, value, f"the argument {key!r}", None)
        self.reads.takes_back = definition.steps_in_build
        self.reads.reads.writes.is_before_model = self._is_before_model
        self.step_reads = observe_steps(ends_capture) if trains else None
        with (
            undone(self._leave),
            torch.inference_mode(False),
            grads,
            ModesOfFirstCapture(self.assumptions, early.all_modules()),
            modules,
            capture_patches(self, early),
            autograd_of_capture(definition.name, trains, in_inference_mode),
        ):
            STATE.recorder, STATE.state = recorder, early
            # inference_mode(False) turned gradients on
            with recorder, torch.set_grad_enabled(grad_mode), second_interrupt_acts_at_once():
                results = self._record(inputs, early, modules)
            captured = self._close(results)
        self._finish_step_reads()
        captured = captured.with_observed(self.observed)
        if self.update is not None:
            install(self.update, self.new_state, captured)
        if self.kept_gradients is not None:
            self.kept_gradients.note()
        return captured.for_one_call() if self._meets_other_values_next(captured) else captured

    def _meets_other_values_next(self, captured: Captured) -> bool:
        """Whether the next call of build() meets what this one leaves, and no guard says what that must be.

        Such is state of optimizers that this call creates, where build() looked for some and found none.
        """
        met_no_state = self.has_read_state and bool(captured.effects.created_state)
        return met_no_state or self.observed.ending is not None

    def _note_module(self, module: torch.nn.Module) -> None:
        with self.number_inputs.hidden():
            self.modules.add(module)

    def _check_call(self) -> None:
        if capturing():
            raise inside_another()
        if torch._C._are_functorch_transforms_active():
            raise CaptureError(
                "a graph was called under a transform of torch.func (vmap, grad, ...)",
                "Transform the function inside build().",
            )
        check_arguments(self.args_flat, self.in_spec, self.definition.argument_names)

    def _state_before_build(self, names: Sequence[str]) -> StateMap:
        """Return the state that is there before build(), which may create more."""
        definition = self.definition
        optimizers = () if callable(definition.optimizers) else definition.optimizers
        state = StateMap(resolve(definition.modules), resolve(definition.tensors), optimizers)
        self.tensors = [entry.tensor for entry in state.by_id.values()]
        state.refuse_parameters_among(zip(names, self.args_flat))
        state.refuse_lazy_parameters()
        return state

    def _begin_steps(self, early: StateMap) -> None:
        """Begin the update of a build() that steps its optimizers itself."""
        if self.definition.steps_in_build and early.optimizers:
            no_inputs: dict[Any, Any] = {}
            live = self.assumptions.live_options
            self.update = Update(self.recorder, early, self.config, None, live, no_inputs)
            self.update.take_snapshots()
            self.aside = take_foreign_state(early)
        self.steps = StepsOfBuild(self.update)

    def _leave(self) -> None:
        """Take the optimizers' state back, and let operators run."""
        STATE.recorder = STATE.state = None
        if self.update is not None:
            self.update.undo()
            for optimizer, kept in self.aside:
                optimizer.state.update(kept)

    # -- stages ------------------------------------------------------------------
    def _input(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        twin = self.recorder.symbolic(memory_of(tensor), name)
        return tensor.__class__.around(twin, tensor) if isinstance(tensor, OfSeveralRanks) else twin

    def _argument_names(self) -> list[str]:
        return [name for _, name in argument_names(self.in_spec, self.definition.argument_names)]

    def _record(self, inputs: list[Any], early: StateMap, modules: ModuleChanges) -> Results:
        """Run build(), then record what it left in modules, and the update; return its flat results."""
        self._report_unfollowed(self.reads.note_arguments(inputs))
        if several():
            note_state(self, inputs, self._argument_names())
        with no_error_is_caught(), self.reads:
            results = self._build(inputs)
        check_results(results)
        self.recorder.phase = "state"
        modules.compare()
        modules.store_created(v for v in results.leaves if isinstance(v, torch.nn.Module))
        self.attributes = modules.stored_attributes()
        self._finish_reads(inputs, results.leaves)
        if isinstance(self._gradients, GradientsOfCall):
            self.state = early
            self._finish_step(inputs, results, self._gradients)
            return results
        self.state = self._late_state(early)
        with splitting(self.config.zero):  # a gradient that is read is summed into the shard
            fill_packed_gradients(optimizer for optimizer, _ in self.state.optimizers)
            self.kept_gradients = KeptGradients(self.state, self._gradients.hidden())
            self.kept_gradients.fill_in()
            self.observed = self.observed.with_guards(self.kept_gradients.guards)
            run_update(self)
        return results

    def _finish_step(self, inputs: list[Any], results: Results, gradients: GradientsOfCall) -> None:
        """Take the state and the gradients that build() leaves, which has stepped its optimizers itself."""
        stored = (leaf for attribute in self.attributes for leaf in attribute.leaves)
        refuse_open_histories(inputs, (*results.leaves, *stored), self.consumed)
        self.steps.refuse_changes()
        if self.update is not None:
            refuse_foreign_state(self.state, self.aside)
            adopt_new_state(self, self.update)
            refuse_skipped_numbers(self.update)
        self.left_gradients = gradients.finish(self.state)
        self.gradient_names = gradients.names(self.state)
        self.observed = self.observed.with_guards(gradients.guards, gradients.pinned)

    def _finish_reads(self, inputs: list[Any], results: list[Any]) -> None:
        replayed = {(id(attribute.container), attribute.key) for attribute in self.attributes}
        recorder = self.recorder
        self.number_inputs.need_those_in(self.reads.returned)
        has_numbers = bool(recorder.numbers or recorder.sizes.nodes or recorder.dynamic is not None)
        observed = self.reads.finish(replayed, self.assumptions.modes, has_numbers)
        self.observed = observed.after_settings(self.settings)
        self.attributes += self.number_inputs.stored
        changed = observed.numbers_changed
        if self.config.ends_capture and not several() and self.assumptions.numbers.add(changed):
            raise NumbersFound  # run() takes changes of build() back
        self.argument_facts = facts_of_arguments(observed.argument_facts, inputs)
        self._report_unfollowed(observed.unfollowed)
        if self.config.strict and observed.unrepeated is not None:
            self._report_unfollowed([observed.unrepeated])
        if self.definition.steps_in_build:
            leaves = (leaf for store in observed.stores for leaf in store.leaves)
            refuse_open_histories((), leaves, self.consumed)
        attributes, self.results_stored = stored_outside(observed.stores, results)
        self.attributes += attributes

    def _finish_step_reads(self) -> None:
        """The optimizers have the state and the options of before the capture again."""
        if self.step_reads is not None and self.update is not None:
            of_steps = self.step_reads.finish((), ())
            self.number_inputs.need_those_read_by(of_steps.guards)
            self.observed = self.observed.with_steps(of_steps)
            self._report_unfollowed(of_steps.unfollowed)

    def _report_unfollowed(self, unfollowed: Any) -> None:
        is_first_report = self.assumptions.is_first_report
        report_unfollowed(self.definition.name, unfollowed, self.config.strict, is_first_report)

    def _build(self, flat: list[Any]) -> Results:
        optimizers = [optimizer for optimizer, _ in resolve(self.definition.optimizers)]
        self.options = OptionReads(
            optimizers,
            self.recorder,
            self.assumptions.live_options,
            self.assumptions.constant_options,
            self.option_inputs,
            self.update.inputs if self.update is not None else {},
        )
        with (
            python_samples(self.definition.name, "build()", self.config.ends_capture),
            self.options.observed(),
            self.number_inputs.shown(),
        ):
            with left_to_eager_mode(self):
                if isinstance(self._gradients, GradientsOfCall):
                    return run_step(self, flat, self._gradients)
                return run_build(self, flat)

    def _late_state(self, early: StateMap) -> StateMap:
        state = self.definition.modules, self.definition.tensors, self.definition.optimizers
        return StateMap(*map(resolve, state)) if any(map(callable, state)) else early

    def _close(self, results: Results) -> Captured:
        recorder, update = self.recorder, self.update
        stored = (leaf for attribute in self.attributes for leaf in attribute.leaves)
        state = [value.value for value in update.state_values] if update is not None else []
        gradients = self.left_gradients
        outputs = outputs_of(
            recorder, results, stored, self.results_stored, state, self.overflow, gradients.nodes
        )
        take_as_inputs(recorder, self.new_state, outputs.nodes)
        self.number_inputs.drop_unused(outputs.nodes)
        conditions = recorder.guards + conditions_on(self.options.numbers) + self.number_inputs.conditions
        conditions += update.trace.guards if update is not None else []
        guard = guard_graph(recorder.graph, conditions) if conditions else None
        graph = recorder.finish(outputs.nodes)
        self._keep_callers_values(graph)
        if not (self.state.optimizers or self.definition.steps_in_build) and backward_is_unused(graph):
            warn_of_unused_backward(self)
        slots, free, free_index = slots_of(self, graph)
        numbers = tuple(self.number_inputs.nodes.values())
        program = Program(
            name=self.definition.name,
            graph=graph,
            slots=slots,
            guard=guard,
            outputs=tuple(outputs.descriptions),
            in_spec=self.in_spec,
            out_spec=results.spec,
            out_constants=outputs.constants,
            in_constants=tuple(
                (i, name, repr(v))
                for i, (v, name) in enumerate(zip(self.args_flat, self._argument_names()))
                if not isinstance(v, torch.Tensor)
            ),
            constants=recorder.constants,
            training=update is not None or bool(gradients.parameters),
            config=self.config,
            unknown_sizes=recorder.sizes.depend_on_values,
            dimensions=recorder.dynamic.guards() if recorder.dynamic is not None else None,
        )
        overlaps, *merged = shared_memory(self, program)
        if self.plan is not None:
            program = in_pipeline_order(program, self.plan, get_rank(), overlaps)
        guards = guards_of(self, free_index, overlaps, *merged)
        shared = shared_calls(recorder.calls, results.leaves)
        return Captured(
            program,
            effects_of(self, outputs, results.containers),
            guards,
            self.state.live(free, numbers),
            shared,
        )

    @property
    def owners(self) -> list[Any]:
        """The modules that build() used, and the object that build() belongs to."""
        return self.modules.owners

    def _keep_callers_values(self, graph: Graph) -> None:
        if not self.definition.writes_through():
            warn_of_kept_values(self, keep_callers_values(self, graph))

    @property
    def overflow(self) -> Node | None:
        """The node that is 1 if the gradients overflowed, if the program has to report it."""
        update = self.update
        if update is None or not (update.state_values or update.serves_one_call):
            return None
        return update.found_inf


_prepared = False


def _prepare_torch() -> None:
    """Import what the first optimizer step would import, before there are symbolic tensors."""
    global _prepared
    if not _prepared:
        _prepared = True
        p = torch.nn.Parameter(torch.zeros(1))
        p.grad = torch.zeros(1)
        torch.optim.SGD([p], lr=0.0).step()
