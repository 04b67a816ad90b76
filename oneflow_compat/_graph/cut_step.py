"""A compiled step whose first and last lines run in Python, and the lines between as a program.

    def train_step(x, y):
        lam = np.random.beta(0.4, 0.4)                                       # a lead
        optimizer.zero_grad()
        loss = lam * F.cross_entropy(model(x), y)                            # the head
        loss.backward()
        optimizer.step()
        if loss.item() < best.loss:                                          # the tail
            best.keep(loss.item(), model)
        return loss

The engine cuts a step at a statement that no program can hold: it needs the value of a tensor, prints, or
calls code that no guard follows. If it comes before the first use of a parameter, a lead ends with it: the
first lines run in Python, and what the head takes from them are arguments of the program. Else a tail begins
with the statement, unless backward() comes later.
The parts run in the order of the step, each after all effects of those before it, so an error in one of them
leaves what eager mode leaves.

The cuts lie between statements of the step's own body. A tensor whose backward() has not run cannot cross
them, because programs do not continue histories. Then the values that the step branches on are outcomes that
the program assumes and tests (capture/values/symbolic_sizes.py).
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .errors import GraphTypeError, RaisedInBuild, TooManyBranches, first_line
from .explanations import of_lead, of_tail
from .program.pytree import positional_names
from .step_source import Head, StepSource, ending_of, has_history
from .step_syntax import KEPT, RETURNED

if TYPE_CHECKING:
    from .errors import CaptureError
    from .explanations import Explanation

_Step = Callable[..., Any]
_MOST_MOVES = 3  # each costs a capture


def variables_of_head(result: object) -> dict[str, Any] | None:
    """Return the variables that the tail takes from a head, or None for the result of a step."""
    ending = ending_of(result)
    return ending[1] if ending is not None and ending[0] != RETURNED else None


@dataclass(frozen=True)
class Adapted:
    """What changed after a capture raised an error."""

    branches_on_floats: bool
    is_tried_again: bool  # whether the call is captured again; else it runs in eager mode


class CutStep:
    """A step, whole or cut into leads, a head and a tail.

    `given(function, first)` makes a function with fewer arguments of the step, which come after the `first`.
    """

    def __init__(self, step: _Step, given: Callable[[_Step, int], _Step]) -> None:
        self.step, self._given = step, given
        self.leads: list[_Step] = []
        self._takes: tuple[str, ...] = ()  # variables of the leads that are the first arguments of the head
        self._unused: frozenset[str] = frozenset()  # parameters of the step that the head does not use
        self.rest: _Step = step  # all lines behind the leads
        self._start = 0  # index of the first statement of the head
        self._function = given(step, 0)
        self._names = positional_names(self._function)  # names of the caller's arguments
        # mark of a head -> its tail, and the variables that the head binds
        self._tails: dict[str, tuple[_Step, frozenset[str]]] = {}
        self.is_cut = False  # before a tail
        self._index: int | None = None  # index of the first statement of the tail
        self._moves = 0  # how often a tail was made longer
        self._refused: set[int] = set()  # statements before which a cut was taken back
        self._refused_leads: set[int] = set()  # the same for statements that ended a lead
        self.explanations: dict[str, Explanation] = {}  # explanations of the lead and of the tail
        self._facts = _facts_of(step)
        self.cause = ""  # the error that led to the last cut
        self._reasons: dict[str, str] = {}  # error -> why calls run in eager mode

        @functools.wraps(self._function)
        def build(*args: Any, **kwargs: Any) -> Any:
            return self._function(*args, **kwargs)

        self.build: Any = build  # captures and eager calls run this: the step, or its head

    @functools.cached_property
    def _source(self) -> StepSource | None:
        return StepSource.of(getattr(self.step, "__func__", self.step))

    def adapt(self, error: CaptureError, branches_on_floats: bool) -> Adapted | None:
        """Cut at the statement that raised an error, or let the step branch on floats.

        Return None if the step stays as it is: then the call runs in eager mode.
        """
        if isinstance(error, (RaisedInBuild, TooManyBranches)):
            return None
        cut = Adapted(branches_on_floats, is_tried_again=True)
        index = self._index_of(error)
        if index is not None and error.is_before_model and self._cut_behind(index, error):
            return cut
        if index is not None and self._cut_before(index, error, behind_update=not branches_on_floats):
            return cut
        if self.is_cut and self._cut_earlier():
            return cut
        if branches_on_floats and not self.is_cut:
            return None
        if self.is_cut:
            reason = f"{self.cause}\n  It cannot run behind the program: {first_line(error)}"
            self._reasons.update(dict.fromkeys([self.cause, str(error)], reason))
        self.join()
        return Adapted(branches_on_floats=True, is_tried_again=not branches_on_floats)

    def adapt_to_raise(self, error: RaisedInBuild) -> bool:
        """Cut before the last lines if one of them raised an error in the capture, and not in eager mode."""
        index = self._index_of(error)
        return index is not None and self._cut_before(index, error, behind_update=True)

    def _index_of(self, error: CaptureError) -> int | None:
        """Return the index of the statement that raised an error, or that uses an argument of another type.

        None: it is not known, or not in the head.
        """
        source = self._source
        if source is None:
            return None
        if isinstance(error, GraphTypeError) and error.argument is not None:
            index = source.use_of(error.argument, self._start)
        else:
            index = source.index_of(error)
        is_in_head = index is not None and self._start <= index < (self._index or index + 1)
        return index if is_in_head else None

    def reason_of(self, error: CaptureError) -> str:
        """Return why a call runs in eager mode, given the error of its capture."""
        return self._reasons.get(str(error), str(error))

    def _cut_before(self, index: int, error: CaptureError, behind_update: bool) -> bool:
        """Let a tail begin with the statement that raised an error. Return False if that is not possible.

        `behind_update`: only if the tail calls no backward() and no step() itself.
        """
        source = self._source
        if source is None or index == self._start or index in self._refused:
            return False
        is_early = behind_update and source.updates_from(index) or source.is_before_backward(index)
        if is_early or not self._cut(source, self._start, index):
            return False
        self.cause = str(error)
        self.explanations["tail"] = of_tail(error, source.location_of(index))
        return True

    def _cut_earlier(self) -> bool:
        """Let the tail begin one statement earlier, because what crosses the cut has no place in a program.

        thread = Thread(target=log.flush)                                # the tail begins here
        thread.start()                                                   # and not here
        """
        source, index = self._source, self._index
        if source is None or index is None or self._moves == _MOST_MOVES:
            return False
        if index - 1 <= self._start or source.updates_from(index - 1):
            return False
        self._refused.add(index)
        if not self._cut(source, self._start, index - 1):
            return False
        self._moves += 1
        self.explanations["tail"] = replace(self.explanations["tail"], location=source.location_of(index - 1))
        return True

    def _cut_behind(self, index: int, error: CaptureError) -> bool:
        """Let a lead end with the statement that raised an error. Return False if that is not possible."""
        source, start = self._source, index + 1
        if source is None or index in self._refused_leads or not source.may_lead(start, error):
            return False
        lead, rest = source.lead(self._start, start), source.rest(start)
        if lead is None or rest is None or not self._cut(source, start, self._index):
            return False
        self.leads.append(self._bound(lead))
        self.rest = self._bound(rest)
        self.cause = str(error)
        self.explanations["lead"] = of_lead(error, source.location_of(index))
        return True

    def _cut(self, source: StepSource, start: int, index: int | None) -> bool:
        """Let the head be the statements from `start` to `index`. Return False if that is not possible."""
        mark = f"{start} {len(self._tails)}"
        tail = source.tail(index) if index is not None else None
        if index is not None and tail is None:
            return False
        head = source.head(start, index, mark, isinstance(self.step, types.MethodType))
        if head is None:
            return False
        if tail is not None:
            self._tails[mark] = self._bound(tail), head.binds
        self._set_head(head)
        self._facts = _facts_of(self.step)
        self._start, self._index, self.is_cut = start, index, index is not None
        return True

    def _set_head(self, head: Head) -> None:
        self._function = self._bound(head.function, len(head.takes))
        self._takes, self._unused = head.takes, head.unused
        if head.takes:
            first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in head.parameters]
            others = inspect.signature(self._given(self.step, 0)).parameters.values()
            self.build.__signature__ = inspect.Signature([*first, *others])

    def _bound(self, part: types.FunctionType, first: int = 0) -> _Step:
        """Return a part as what is called with the caller's arguments, behind the `first` ones."""
        if isinstance(self.step, types.MethodType):
            return self._given(types.MethodType(part, self.step.__self__), first)
        return self._given(part, first)

    def is_changed(self) -> bool:
        """Whether the step has other code or defaults than its parts, which are then dropped."""
        if self._facts == _facts_of(self.step):
            return False
        self.join()
        self.drop_leads()
        self._refused.clear()
        self._refused_leads.clear()
        self._facts = _facts_of(self.step)
        vars(self).pop("_source", None)
        return True

    def join(self) -> None:
        """Take the cut before the tail back, for good."""
        if self._index is not None:
            self._refused.add(self._index)
        self._index, self.is_cut = None, False
        self.explanations.pop("tail", None)
        source = self._source
        if not self.leads or source is None or not self._cut(source, self._start, None):
            self._function, self._takes, self._unused = self._given(self.step, 0), (), frozenset()

    def drop_leads(self) -> None:
        """Take the cut behind the leads back, for good: a value of theirs is none that a program takes."""
        self._refused_leads.add(self._start - 1)
        self.leads, self._start, self.rest = [], 0, self.step
        self.explanations.pop("lead", None)
        vars(self.build).pop("__signature__", None)
        self.join()

    def taken_from(self, variables: dict[str, Any]) -> list[Any]:
        """Return the values of the leads' variables that are the first arguments of the head."""
        return [variables[name] for name in self._takes]

    def used(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the caller's arguments, with None for those that the head does not use."""
        if not self._unused:
            return args, kwargs
        unused = [name in self._unused for name in self._names]
        args = (*(None if no else value for no, value in zip(unused, args)), *args[len(unused) :])
        return args, {name: None if name in self._unused else value for name, value in kwargs.items()}

    def finish(
        self, result: object, variables: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what the step returns, given what build() returned; run the tail of a head.

        `variables`: those of the leads.
        """
        ending = ending_of(result)
        if ending is None:
            return result
        mark, value = ending
        if mark == RETURNED:
            return value
        tail, binds = self._tails[mark]
        kept = {name: v for name, v in variables.items() if name not in binds} if variables else {}
        return tail(*args, **kwargs, **{KEPT: {**kept, **value}})


class LeadingLines:
    """The lines of one call that run before its program."""

    def __init__(self, cut: CutStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._cut, self._args, self._kwargs = cut, args, kwargs
        self._count = 0  # number of leads that have run
        self._rest = cut.rest  # behind these
        self.variables: dict[str, Any] = {}
        self.returned: tuple[Any] | None = None  # the result of the step, if a line has returned

    def run(self) -> None:
        """Run the leads that have not run yet."""
        self._rest = self._cut.rest
        while self.returned is None and self._count < len(self._cut.leads):
            lead = self._cut.leads[self._count]
            self._count += 1
            ending = ending_of(lead(*self._args, **self._kwargs, **{KEPT: self.variables}))
            assert ending is not None, "a lead ends with a mark"
            if ending[0] == RETURNED:
                self.returned = (ending[1],)
            else:
                self.variables = ending[1]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the arguments of the head, or None if a program cannot take the variables of the leads."""
        try:
            values = self._cut.taken_from(self.variables)
        except KeyError:  # a line has not bound it
            return None
        args, kwargs = self._cut.used(self._args, self._kwargs)
        return None if has_history(values) else ((*values, *args), kwargs)

    def run_rest(self) -> Any:
        """Run all other lines in Python."""
        return self._rest(*self._args, **self._kwargs, **{KEPT: self.variables})


def _facts_of(step: _Step) -> tuple[Any, ...]:
    """Return what assignments to the attributes of a function change."""
    function = getattr(step, "__func__", step)
    parts = "__code__", "__defaults__", "__kwdefaults__"
    return tuple(getattr(function, part, None) for part in parts)
