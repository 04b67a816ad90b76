"""Changes that a recorded step() made to the state and options of its optimizer."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...._active import outside_capture
from ...._global.tensor import memory_of
from ...errors import CapturedAgain, CaptureError, UnsupportedInGraph
from ...program.locations import GroupOption, OptimizerState
from ...program.memory import memory_id
from ...program.nested_state import found_at, holds_fake_tensors, leaves, put_at
from ...program.operators import facts_of, operators_that
from ...program.program import is_view
from ..interfaces import RecordedTensor
from ..state_map import StateMap
from .host_scalars import HostScalar, ScalarTrace

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..recorder import Recorder


aten = torch.ops.aten
# operators that may compute the initial value of a state tensor
_BEGINNINGS = operators_that(lambda facts: facts.reads_layout_only) | {
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.scalar_tensor.default,
    aten.clone.default,
    aten.detach.default,
    aten.alias.default,
    aten._to_copy.default,
    aten.view.default,
    aten.mul.Tensor,
    aten.expand.default,
}
_FIXED = (int, float, bool, str, type(None))


class _NeedsGradient(Exception):
    pass


class MoreNumbers(CapturedAgain):
    """step() changes an option that was assumed fixed: capture again with the option as an input."""

    def __init__(self, optimizer: int, key: str) -> None:
        super().__init__(key)
        self.optimizer, self.key = optimizer, key


def _shares(value: Any) -> Any:
    """Whether a tensor may share memory with another one."""
    return (
        not isinstance(value, RecordedTensor) or is_view(value._of_node) or value._of_node.op == "placeholder"
    )


@dataclass(frozen=True, eq=False)
class StateValue:
    """A value that is stored after each run: a number, or the node that computes it."""

    location: GroupOption | OptimizerState
    value: object


@dataclass(frozen=True, eq=False)
class CreatedState:
    """State that the capture created: where it lies, and the real tensor."""

    location: GroupOption | OptimizerState
    tensor: torch.Tensor


@dataclass(frozen=True, eq=False)
class AdoptedState(CreatedState):
    """State that step() created as a symbolic tensor, which the real tensor replaces."""

    twin: RecordedTensor


class StateChanges:
    """The part of Update that inspects the optimizers after their step()."""

    if TYPE_CHECKING:  # attributes of Update
        recorder: Recorder
        state: StateMap
        trace: ScalarTrace
        stepped: set[int]
        snapshots: list[Any]
        elements_before: dict[int, list[Any]]
        state_values: list[StateValue]
        structures: dict[OptimizerState, object]
        new_options: dict[int, list[tuple[int, str, RecordedTensor]]]
        live: dict[int, set[str]]
        created_live_options: dict[int, set[str]]
        serves_one_call: bool

    def state_location(self, index: Any, param: torch.Tensor, path: tuple[Any, ...]) -> OptimizerState:
        """Return the location of a value in the state of a parameter."""
        name: Any = self.state.name_of(param)  # each parameter of an optimizer has a name
        return OptimizerState(index, name, tuple(path))

    # -- the state the step created --------------------------------------------------
    def adopt_new_state(self) -> list[AdoptedState]:
        """Turn the symbolic state that the step created into real tensors, which become inputs.

        State created by a factory (zeros_like, ...) starts from the factory's value. State that starts from
        the gradient or from a Python number is stored after the first run; the second call captures the
        program that reads it.
        """
        with outside_capture():
            return self._adopted_state()

    def _adopted_state(self) -> list[AdoptedState]:
        adopted: list[AdoptedState] = []
        for index, (optimizer, _) in enumerate(self.state.optimizers):
            if index not in self.stepped:  # lines behind the program may step it
                continue
            for g, key, value in self.new_options.get(index, ()):
                real = self._evaluate(value._of_node)
                adopted.append(AdoptedState(GroupOption(index, g, (key,)), real, value))
            for param, state in optimizer.state.items():
                before = self._state_before(index, param)
                for path, value in leaves(state):
                    if isinstance(memory_of(value), RecordedTensor):
                        adopted += self._adopt_tensor(index, param, path, value)
                    else:
                        self._adopt_number(index, param, path, value, before)
                self._keep_structures(index, param, state, before)
            # step() may take another branch when it creates its state. torch's optimizers and ours do not
            ours = type(optimizer).__module__.partition(".")[0] in ("torch", __name__.partition(".")[0])
            self.serves_one_call = (
                self.serves_one_call or not ours and any(a.location.optimizer == index for a in adopted)
            )
        return adopted

    def _adopt_tensor(self, index: int, param: Any, path: tuple[Any, ...], value: Any) -> list[AdoptedState]:
        part: RecordedTensor = memory_of(value)
        try:
            real = self._evaluate(part._of_node)
        except _NeedsGradient:
            if part is not value:
                raise UnsupportedInGraph(
                    f"{self._kind(index)} begins its state {path[0]!r} of a tensor of several ranks with the"
                    " gradient",
                    "graph-optimizers",
                    "Step once in eager mode before the first call of the graph.",
                ) from None
            self.serves_one_call = True
            self.state_values.append(StateValue(self.state_location(index, param, path), value._of_node))
            return []
        tensor = real if part is value else value.around(real, value)
        return [AdoptedState(self.state_location(index, param, path), tensor, part)]

    def _adopt_number(self, index: Any, param: Any, path: Any, value: Any, before: Any) -> None:
        """Adopt a counter, which the runtime stores after each run.

        Raises if a program cannot follow the value.
        """
        key = path[0]
        if len(path) > 1:
            if (
                isinstance(value, HostScalar)
                or key in before
                and isinstance(value, _FIXED)
                and value != found_at(before, path)
            ):
                raise CaptureError(
                    f"{self._kind(index)} counts inside its state {key!r}, which is a list or dict",
                    "A program finds numbers in optimizer.state[param] itself: keep it there, or step this"
                    " optimizer in eager mode.",
                )
        elif (
            isinstance(value, HostScalar)
            or isinstance(value, _FIXED)
            and (key not in before or type(value) is not bool and type(before[key]) in (int, float))
        ):
            self.serves_one_call = self.serves_one_call or key not in before
            stored = value.node if isinstance(value, HostScalar) else value
            self.state_values.append(StateValue(self.state_location(index, param, path), stored))
        elif isinstance(value, _FIXED) and value != before[key]:
            raise CaptureError(
                f"{self._kind(index)} changes its state {key!r} from {before[key]!r} to {value!r}",
                "A program follows tensors and numbers: keep a 0-d tensor or a counter there, or step this"
                " optimizer in eager mode.",
            )

    def _keep_structures(self, index: Any, param: Any, state: Any, before: Any) -> None:
        """Record the lists and dicts that step() created, or gave other lengths or keys.

        They are stored with the optimizer after the capture. A run then fills in what it computes.
        """
        for key in before.keys() - state.keys():
            self._refuse_change(index, key, "removes")
        for key, value in state.items():
            if isinstance(value, (torch.Tensor, HostScalar, *_FIXED)):
                continue
            entries = leaves(value, (key,))
            others = [v for _, v in entries if not isinstance(v, torch.Tensor)]
            if any(map(holds_fake_tensors, others)):
                self._refuse_object(self.state.optimizers[index][0], f"its state {key!r}", value)
            if key not in before:
                self.structures[self.state_location(index, param, (key,))] = _without_symbols(value)
                self.serves_one_call = self.serves_one_call or bool(others)
            elif [path for path, _ in entries] != [path for path, _ in leaves(before[key], (key,))]:
                self.structures[self.state_location(index, param, (key,))] = _without_symbols(value)
                self.serves_one_call = True
            elif any(_has_changed(v, found_at(before, path), self.elements_before) for path, v in entries):
                self._refuse_change(index, key, "changes")

    def _refuse_change(self, index: int, key: Any, change: str) -> None:
        raise CaptureError(
            f"{self._kind(index)} {change} its state {key!r}, which a program cannot follow",
            "A program follows tensors and numbers, and lists and dicts of tensors: keep one of these in"
            " optimizer.state[param], or step this optimizer in eager mode.",
        )

    def _kind(self, index: Any) -> Any:
        return type(self.state.optimizers[index][0]).__name__

    def _state_before(self, index: Any, param: Any) -> Any:
        return self.snapshots[index][1].get(param, (None, {}))[1]

    def _replaced_state(self, index: Any, optimizer: Any) -> None:
        """Write each state tensor that step() replaced into the memory of the old one."""
        pairs, added = [], []
        for param, state in optimizer.state.items():
            before = self._state_before(index, param)
            for path, value in leaves(state):
                old = found_at(before, path)
                if not isinstance(value, torch.Tensor) or value is old:
                    continue
                if isinstance(old, torch.Tensor):
                    pairs.append((old, value, f"state {path[0]!r}"))
                    put_at(state, path, old)
                else:
                    added.append((state, path, value))
        self._copy_moved(added, [old for old, _, _ in pairs])
        self._write(optimizer, pairs)

    def _copy_moved(self, added: list[Any], written: list[torch.Tensor]) -> None:
        """Copy old tensors that step() moved to a new location, if another tensor replaces them at theirs.

        After `held.insert(0, new)`, the tensor new is written into the memory of held[1].
        """
        memories = {self._memory(tensor) for tensor in written}
        with torch.no_grad():
            for state, path, value in added:
                if memories and self._memory(value) in memories:
                    put_at(state, path, value.clone())

    def _memory(self, tensor: torch.Tensor) -> int:
        return memory_id(self.recorder._convert(memory_of(tensor))[1])

    @staticmethod
    def _refuse_object(optimizer: Optimizer, location: Any, value: Any) -> None:
        raise CaptureError(
            f"{type(optimizer).__name__} keeps tensors in {location}, a {type(value).__name__},"
            " which a program cannot see",
            "Keep them in optimizer.state[param], also in lists and dicts there, or step this optimizer in"
            " eager mode.",
        )

    def _write(self, optimizer: Optimizer, pairs: Any) -> None:
        for old, value, description in pairs:
            if (old.shape, old.dtype) != (value.shape, value.dtype):
                raise CaptureError(
                    f"{type(optimizer).__name__} replaces its {description} of {old.dtype}{list(old.shape)}"
                    f" by one of {value.dtype}{list(value.shape)}",
                    "A program keeps the shape and dtype of its tensors: step this optimizer in eager mode.",
                )
        with torch.no_grad():
            # clones, because two tensors may have been swapped
            values = [value.clone() if len(pairs) > 1 and _shares(value) else value for _, value, _ in pairs]
            for (old, _, _), value in zip(pairs, values):
                old.copy_(value)

    def _changed_options(self, index: Any, optimizer: Any, groups_before: Any) -> None:
        """Record the options in param_groups that step() changed.

        They are results of the program, and inputs from the next capture on.
        """
        unseen, pairs = set(), []
        for g, (group, before) in enumerate(zip(optimizer.param_groups, groups_before)):
            for path, value in leaves({k: v for k, v in group.items() if k != "params"}):
                old, key = found_at(before, path), path[0]
                if value is old:
                    continue
                if isinstance(value, torch.Tensor) and isinstance(old, torch.Tensor):
                    pairs.append((old, value, f"option {key!r}"))
                    put_at(group, path, old)
                elif len(path) != 1 or not self._follow_option(index, g, key, value, old, key in before):
                    _refuse_changed_option(optimizer, key, value, old)
                elif key not in before:
                    unseen.add(key)
        self._write(optimizer, pairs)
        unseen -= {key for _, key, _ in self.new_options.get(index, ())}
        if unseen:
            self.live.setdefault(index, set()).update(unseen)
            self.created_live_options.setdefault(index, set()).update(unseen)

    def _follow_option(self, index: Any, g: Any, key: Any, value: Any, old: Any, existed: Any) -> Any:
        """Follow an option that step() set to another value; return False if a program cannot."""
        if isinstance(value, RecordedTensor):
            if not existed:
                self.new_options.setdefault(index, []).append((g, key, value))
            return not existed
        is_computed, is_scalar = isinstance(value, HostScalar), type(value) in (int, float)
        if (is_computed or is_scalar) and (isinstance(old, HostScalar) or not existed):
            self.serves_one_call = self.serves_one_call or is_scalar and not existed
            location = GroupOption(index, g, (key,))
            self.state_values.append(StateValue(location, value.node if is_computed else value))
            return True
        if isinstance(value, (HostScalar, int, float)) and type(old) in (int, float):
            if type(value) is not type(old) or value != old:
                raise MoreNumbers(index, key)
            return True
        return False

    def _evaluate(self, node: Any) -> Any:
        """Return the real initial value of a state tensor that the step created.

        Its node is evaluated without any gradient.
        """
        if not hasattr(self, "_real"):
            lifted = self.recorder.lifted.values()
            self._real = {lifted_node: tensor.detach() for tensor, lifted_node, _ in lifted}
        if node in self._real:
            return self._real[node]
        if node in self.trace.value_of:
            return self.trace.value_of[node]
        if node.op == "get_attr":
            return self.recorder.constants[node.target].clone()
        info = node.meta.get("tensor")
        if info is not None and 0 in info.shape:  # the placement does not include this rank
            return _empty_like(info)
        if node.op != "call_function" or node.target not in _BEGINNINGS:
            raise _NeedsGradient
        args = node.args
        if facts_of(node.target).reads_layout_only and args[0] not in self._real:  # zeros_like(grad)
            args = (_empty_like(args[0].meta["tensor"]), *args[1:])
        args, kwargs = self._evaluated(args), {k: self._evaluated(v) for k, v in node.kwargs.items()}
        return node.target(*args, **kwargs).detach()

    def _evaluated(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            return self._evaluate(a)
        return type(a)(self._evaluated(x) for x in a) if isinstance(a, (list, tuple)) else a


def _without_symbols(value: Any) -> Any:
    """Copy nested lists and dicts, with None for each tensor that a run computes."""
    if isinstance(value, dict):
        return {k: _without_symbols(v) for k, v in value.items()}
    if type(value) is list:
        return [_without_symbols(v) for v in value]
    return None if isinstance(value, torch.Tensor) and isinstance(memory_of(value), RecordedTensor) else value


def _has_changed(value: Any, before: Any, elements_before: Mapping[int, list[Any]]) -> bool:
    """Whether step() changed an object that is no tensor and no number, for example a tuple of numbers."""
    if isinstance(value, (torch.Tensor, HostScalar, *_FIXED)):
        return False
    if value is not before:
        return type(value) is not type(before) or value != before
    elements = elements_before.get(id(value))
    return elements is not None and not (
        len(elements) == len(value) and all(map(operator.is_, elements, value))
    )


def elements_of_others(states: Mapping[Any, dict[Any, Any]]) -> dict[int, list[Any]]:
    """Return {id: elements} of the sets and deques in a state, which is no list and no dict."""
    values = (value for state in states.values() for _, value in leaves(state))
    return {id(value): list(value) for value in values if isinstance(value, (set, deque))}


def _empty_like(info: Any) -> Any:
    return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=info.device)


def _refuse_changed_option(optimizer: Optimizer, key: Any, value: Any, old: Any) -> None:
    """Raise if the changed option is a tensor, a scalar or a string; other objects may change."""
    is_plain = type(value) in (int, float, bool, str) and value != old
    if isinstance(value, (torch.Tensor, HostScalar)) or is_plain:
        raise CaptureError(
            f"{type(optimizer).__name__}.step() changes its option {key!r} in a way that a program cannot"
            " follow",
            "Keep tensors and counters in optimizer.state[param], or step this optimizer in eager mode.",
        )


# --------------------------------------------------------------------------- state under other keys
# A program cannot have state that an optimizer keeps under another key than a parameter.
Aside = list[tuple[torch.optim.Optimizer, dict[Any, Any]]]


def take_foreign_state(state: StateMap) -> Aside:
    """Take values under other keys than parameters out of the state of each optimizer, and return them.

    A parameter that left both the model and the optimizer may have left its state behind.
    """
    return [
        (o, {k: o.state.pop(k) for k, v in list(o.state.items()) if _is_foreign(state, k, v)})
        for o, _ in state.optimizers
    ]


def _is_foreign(state: StateMap, key: Any, value: Any) -> bool:
    return not isinstance(value, dict) or isinstance(key, torch.Tensor) and state.name_of(key) is None


def foreign_keys_of(error: KeyError | TypeError, aside: Aside) -> list[Any]:
    """Return the keys that step() may have missed when it raised the error."""
    return list(error.args[:1]) if isinstance(error, KeyError) else [k for _, kept in aside for k in kept]


def refuse_foreign_state(state: StateMap, aside: Aside, missed: Iterable[Any] = ()) -> None:
    """Raise if step() made state under other keys than parameters, or missed a key that was taken out."""
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
