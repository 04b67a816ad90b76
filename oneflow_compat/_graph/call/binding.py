"""Binding: one compiled program tied to the live tensors of its engine."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._C import _increment_version as increment_version

from ..._global.tensor import OfSeveralRanks, make_results_global, without_subclasses
from ..program.writes import silent_writes, written_before_the_last_check
from ..program.captured import Captured
from ..program.locations import Argument, FreeTensor, ModuleTensor, OptimizerParameter
from .branches import run_or_undo
from ..program.symbolic import BRANCH_TAKEN_OTHERWISE, is_run_value
from ..program.pytree import tree_leaves, with_sizes
from .memory_identity import MemoryIdentity
from .python_watch import Watch
from .state_identity import StateIdentity
from ..program.python_values import get_item, tensor_meta

VALUES = "a tensor that build() branches on or reads with .item()"


class Stale(Exception):
    """A parameter or buffer was replaced by a tensor that the program does not accept."""


class AnotherWay(Exception):
    """The branch on sizes at .place took another outcome than in the program."""

    def __init__(self, place, message):
        super().__init__(message)
        self.place = place


class Binding:
    """Call a compiled program.

    A call reads each slot from its live location, runs the program and writes Python-number state back.
    """

    def __init__(self, key: Any, captured: Captured, run):
        program, effects, guards = captured.program, captured.effects, captured.guards
        self.key = key
        self.program, self.effects, self.guards, self.live = program, effects, guards, captured.live
        self.run = run if not _asks_grad_mode(program) else torch.enable_grad()(run)
        # the key of a program contains autocast, so that it is on around every call of this program
        if torch._C._is_any_autocast_enabled():
            self.run = _without_autocast(self.run)
        self.optimizers = captured.live.optimizers
        self._flat_args = (
            all(child.is_leaf() for child in program.in_spec.children()[0].children())
            if program.in_spec.num_children
            else False
        )
        self.dead = False  # optimizer state it reads has been replaced
        self.once, self.used = guards.serves_one_call, False
        self.branches = guards.branches
        self._kept = written_before_the_last_check(program) if self.branches else ()
        self.guard = None
        if program.guard is not None:
            from ..program.scalar_guards import compile_guard

            self.guard = compile_guard(program)
        self.watch = Watch(guards.python_values, guards.free_index)
        self.serves_sizes = None  # a function of the flat arguments, if the program serves many sizes
        if program.dimensions is not None:
            self.serves_sizes = program.dimensions.compile()
        self._returned = program.out_spec.num_leaves - len(program.out_constants)
        self._outputs = self._output_maker()
        if guards.reads_global_tensors or effects.global_results:
            self.run, self._outputs = (
                without_subclasses(self.run),
                make_results_global(self._outputs, effects.global_results),
            )
        self._bind()

    # -- reading slots ---------------------------------------------------------------
    def _bind(self):
        """Find the live values of all slots, and set up the checks that notice when a value was replaced."""
        self.identity = StateIdentity(self.live)
        self.memory = MemoryIdentity(self.program, self.guards)
        self._write_reader()
        written = silent_writes(self.program)
        # reads the slots whose writes autograd must see, as it sees those of an eager update
        self._written = None
        if written:
            self._written = (
                operator.itemgetter(*written) if len(written) > 1 else (lambda values: (values[written[0]],))
            )
        self._watch()
        self._options = [
            _options(g, self.guards.live_options.get(o, ()), o in self.guards.options_read)
            for o, opt in enumerate(self.optimizers)
            for g in opt.param_groups
        ]

    def _write_reader(self):
        """Generate `gather`, one function that lists the live values of all slots."""
        scope, items, tensors, lines = {}, [], [], []
        containers: dict = {}

        def name_of(container):
            variable = containers.get(id(container))
            if variable is None:
                variable = containers[id(container)] = f"d{len(containers)}"
                scope[variable] = container
            return variable

        for slot in self.program.slots:
            location = slot.location
            if isinstance(location, Argument):
                items.append(f"a[{location.index}]" + ("._local_tensor" if location.is_shard else ""))
                continue
            container, keys = location.resolve(self.live)
            if isinstance(location, FreeTensor):
                name = f"free{location.index}"
                scope[name] = location.read(self.live)
                items.append(name)
                continue
            # KeyError: the state was cleared and created again
            value = location.read(self.live)
            expression = name_of(container) + "".join(f"[{k!r}]" for k in keys)
            if isinstance(location, (ModuleTensor, OptimizerParameter)):
                n = len(tensors)
                tensors.append((n, container, keys[0], slot))
                scope[f"e{n}"] = value
                lines.append(f"    x{n} = {expression}\n")
                expression = f"x{n}"
            items.append(expression + ("._local_tensor" if isinstance(value, OfSeveralRanks) else ""))
        self._tensors, self._scope = tensors, scope
        scope["others"], scope["any_requires_grad"] = self._rebind_replaced, torch._C._any_requires_grad
        self._gradient_tests_made = self._gradient_tests(tensors)
        self._aliases = [
            (n, *alias)
            for n, container, key, _ in tensors
            for tensor, *alias in self.live.aliases
            if tensor is container[key]
        ]
        tests = [f"x{n} is e{n}" for n, *_ in tensors]
        tests += [f"{name_of(container)}[{key!r}] is x{n}" for n, container, key in self._aliases]
        tests += self._gradient_tests_made
        check = f"    if not ({' and '.join(tests)}):\n        return others(a)\n" if tests else ""
        result = "".join(i + ", " for i in items)
        source = f"def gather(a):\n  try:\n{''.join(lines)}{check}    return ({result})\n"
        source += "  except KeyError as error:\n    raise Stale(error) from None\n"
        scope["Stale"] = Stale
        exec(compile(source, f"<{self.program.name} slots>", "exec"), scope)
        self.gather = scope["gather"]

    def _gradient_tests(self, tensors):
        """Conditions on requires_grad: freezing a parameter needs another program."""
        if not self.program.training:
            return []
        params = [
            (n, container[key].requires_grad) for n, container, key, slot in tensors if slot.role == "param"
        ]
        frozen = [f"x{n}" for n, trained in params if not trained]
        return [f"x{n}.requires_grad" for n, trained in params if trained] + (
            [f"not any_requires_grad({', '.join(frozen)})"] if frozen else []
        )

    def _rebind_replaced(self, args):
        """Rebind slots whose tensor was replaced.

        The program accepts a new tensor with the same metadata, unless it is a parameter being trained.
        """
        scope = self._scope
        self.memory.state_replaced()
        for n, container, key, slot in self._tensors:
            old, now = scope[f"e{n}"], get_item(container, key)
            if now is old:
                continue
            trained = self.program.training and slot.role == "param"
            if (
                trained
                or not isinstance(now, torch.Tensor)
                or isinstance(now, OfSeveralRanks)
                or tensor_meta(now) != tensor_meta(old)
            ):
                self.watch.changed = slot.name
                raise Stale(slot.name)
        for n, container, key in self._aliases:
            _, first_container, first_key, slot = self._tensors[n]
            if get_item(container, key) is not first_container[first_key]:
                self.watch.changed = slot.name
                raise Stale(slot.name)
        for n, container, key, _ in self._tensors:
            scope[f"e{n}"] = container[key]
        if not all(
            eval(test, scope, {f"x{n}": container[key] for n, container, key, _ in self._tensors})
            for test in self._gradient_tests_made
        ):
            raise Stale("requires_grad")
        return self.gather(args)

    def _rebind(self, index, tensor):
        """Bind another tensor to a free slot."""
        self.memory.state_replaced()
        self.live.free[index] = self._scope[f"free{index}"] = tensor

    def _watch(self):
        """Pick a few parameters that stand for all parameters.

        Casting or moving a module after the capture replaces them too.
        """
        params = [s for s in self.program.slots if isinstance(s.location, ModuleTensor) and s.role == "param"]
        picked = sorted({0, len(params) // 2, len(params) - 1}) if params else []
        self._watched = []
        for slot in (params[i] for i in picked):
            container, (key,) = slot.location.resolve(self.live)
            self._watched.append((container, key, slot.dtype, slot.device))

    # -- calling --------------------------------------------------------------------
    def suits(self, args, kwargs) -> bool:
        """Return False if something that this program assumed fixed has changed.

        Examples are an option of an optimizer and a guarded number.
        """
        if self.serves_sizes is not None and not self.serves_sizes(self._leaves(args, kwargs)):
            return False
        if not self.as_captured():
            return False
        if self.guard is not None:
            try:
                holds = self.guard(*self.gather(self._leaves(args, kwargs)))
            except Stale:
                return False
            if not holds and self.guards.reads_values:
                self.watch.changed = VALUES
            return holds
        return True

    def as_captured(self) -> bool:
        """Return False if something other than values and arguments has changed."""
        if self.dead or self.once and self.used:
            return False
        if not self.identity.holds():
            self.watch.changed = self.identity.changed
            if not (self.identity.state_replaced and self.identity.same_layout):
                self.dead = self.identity.state_replaced
                return False
            self._bind()  # load_state_dict, for example
        if not self.watch.holds(self._rebind):
            return False
        for container, key, dtype, device in self._watched:
            tensor = container.get(key)
            if tensor is None or tensor.dtype is not dtype or tensor.device != device:
                return False
        for group, get, expected, _ in self._options:
            if get(group) != expected:
                return False
        return True

    def changed_options(self):
        """{optimizer: names of numeric options that differ from the capture}.

        These options become inputs of the next program.
        """
        changed: dict = {}
        position = 0
        for o, optimizer in enumerate(self.optimizers):
            for group in optimizer.param_groups:
                if position < len(self._options):
                    _, get, expected, names = self._options[position]
                    for name, now, then in zip(names, get(group), expected):
                        if now != then and _numeric(now) and _numeric(then):
                            changed.setdefault(o, set()).add(name)
                position += 1
        return changed

    def _leaves(self, args, kwargs):
        return tree_leaves((args, kwargs)) if kwargs or not self._flat_args else args

    def __call__(self, args, kwargs):
        if kwargs or not self._flat_args:
            args = tree_leaves((args, kwargs))
        values = self.gather(args)
        if self.memory.is_needed and not self.memory.holds(values):
            self.watch.changed = "memory that inputs share"
            raise Stale("memory")
        out = self.run(*values) if not self.branches else self._run_with_branches(values)
        if self.once:
            self.used = True
        if self._written is not None:
            increment_version(self._written(values))
        if self.effects.state_values or self.effects.reports_overflow:
            out = self._store_numbers(out)
        if self.effects.attributes:
            out = self._store_attributes(out)
        if self.effects.schedulers:
            self._schedule()
        return self._outputs(out)

    def _run_with_branches(self, values):
        """Run the program; if a branch on sizes goes another way, undo all effects and raise AnotherWay."""
        try:
            return run_or_undo(self.run, self._kept, self.program, *values)
        except RuntimeError as error:
            _, tag, rest = str(error).partition(BRANCH_TAKEN_OTHERWISE)
            if not tag:
                raise
            self._remove_created_state()
            raise AnotherWay(list(self.branches)[int(rest.split(":", 1)[0])], str(error)) from None

    def _remove_created_state(self):
        """Remove the optimizer state that the first call created."""
        for location in self.effects.created_state if self.once else ():
            location.remove(self.live)

    def _store_numbers(self, out):
        locations = self.effects.state_values
        if self.effects.reports_overflow:
            *out, overflow = out
            if overflow:  # the step was skipped: numbers stay, and state that it created is removed
                self._remove_created_state()
                return out[: len(out) - len(locations)]
        split = len(out) - len(locations)
        for location, value in zip(locations, out[split:]):
            location.write(self.live, value)
        return out[:split]

    def _store_attributes(self, out):
        """Bind this run's tensors to the buffers and attributes that build() assigned."""
        # a view of a parameter requires a gradient
        values = (
            v.detach() if isinstance(v, torch.Tensor) and v.requires_grad else v
            for v in out[self._returned :]
        )
        for attribute in self.effects.attributes:
            container, key = attribute.container, attribute.key
            leaves = [next(values) if is_run_value(v) else v for v in attribute.leaves]
            new = pytree.tree_unflatten(leaves, attribute.spec)
            if type(container) is list and key >= len(container):
                container.append(new)
                continue
            old = container.get(key) if isinstance(container, dict) else container[key]
            if type(new) is dict and type(old) is dict and old.keys() == new.keys():
                old.update(new)  # another dict object would need another program
            else:
                container[key] = new
        return out[: self._returned]

    def _schedule(self):
        for scheduler in self.effects.schedulers:
            optimizer = getattr(scheduler, "optimizer", scheduler)
            optimizer._schedule_of_graph = None
            scheduler.step()
            optimizer._schedule_of_graph, optimizer._opt_called = scheduler, False  # see LRScheduler.step

    def _output_maker(self):
        program = self.program
        spec = with_sizes(program.out_spec)
        if spec.is_leaf():
            if program.out_constants:
                value = program.out_constants[0][1]
                return lambda out: value
            return lambda out: out[0]
        if not program.out_constants and spec.type is tuple and all(c.is_leaf() for c in spec.children()):
            return lambda out: tuple(out[: spec.num_leaves])
        constants = program.out_constants
        count = spec.num_leaves

        def make(out):
            flat = [None] * count
            fixed = dict(constants)
            tensors = iter(out)
            for i in range(count):
                flat[i] = fixed[i] if i in fixed else next(tensors)
            return pytree.tree_unflatten(flat, spec)

        return make


def _asks_grad_mode(program):
    """Whether the program must run with gradients enabled, whatever the caller's mode is.

    oneDNN's LSTM keeps the values that its backward needs only while gradients are recorded.
    """
    return program.training and any(
        n.target is torch.ops.aten.mkldnn_rnn_layer.default for n in program.graph.nodes
    )


def _without_autocast(run):
    """Run without autocast.

    The casts are in the program, and operators that build() ran without a cast stay so.
    """

    @functools.wraps(run)
    def plain(*values):
        with torch._C._DisableAutocast():
            return run(*values)

    return plain


def _numeric(value):
    return type(value) in (int, float) or (
        type(value) is tuple and all(type(v) in (int, float) for v in value)
    )


def _options(group, live, read):
    """(group, getter, current values, names) of the options that are fixed in a program.

    If build() read the options, each of them is fixed, although the update takes some as inputs.
    """
    names = tuple(
        k
        for k, v in group.items()
        if k != "params"
        and (read or k not in ("lr", "initial_lr") and k not in live)
        and not isinstance(v, torch.Tensor)
    )
    get = operator.itemgetter(*names) if len(names) > 1 else (lambda g: tuple(g[n] for n in names))
    return group, get, get(group), names
