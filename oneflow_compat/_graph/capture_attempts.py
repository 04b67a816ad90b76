"""Capture build() until an attempt succeeds.

An attempt makes assumptions that let one program serve many calls. If build() fails under one of them, the
assumption is dropped and build() is captured again. The methods of CaptureAttempts are nested in this order:

1. `captured`: dimensions of arguments that vary are symbols. Otherwise they are numbers.
2. `_with_numbers`: Python numbers that build() reads and that change are inputs. Otherwise constants.
3. `_with_options`: options of optimizers that build() reads are inputs. Otherwise they are constants.
4. `_with_branches`: each branch on a size has the outcome of the last call, or a guessed one. Otherwise it
   has the other outcome. Last, sizes that depend on values are known numbers.

What an attempt teaches is kept in `Assumptions` (assumptions.py), so that the next capture begins with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._signals import error_of_handler
from .argument_sizes import BACKENDS_WITH_NOTES, remembered_sizes
from .assumptions import DependentSizes
from .branch_search import MAX_BRANCHED, BranchSearch
from .capture.capture import Capture
from .capture.side_effects.survivors import refuse_kept_numbers, settle_survivors
from .capture.update.optimizer_state import MoreNumbers
from .capture.update.steps_of_build import FoundOptimizer
from .errors import CaptureError, NumbersFound, NumbersNeeded, RaisedInBuild, SizesNeeded, ViewsNeeded
from .explanations import Explanation, of_constant_options, of_specialization, of_static_sizes
from .program.live_numbers import NumberNeeded
from .program.pytree import argument_names, tree_flatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .argument_sizes import SymbolicDims
    from .assumptions import Assumptions
    from .config import Config
    from .definition import GraphDefinition
    from .program.captured import Captured
    from .program.locations import GroupOption
    from .program.symbolic import Branch
    from .signature import Signature


# captures that a call may cost if each ends because no program can hold build(): the call runs in eager mode
_MAX_REFUSALS = 2
_WITH_SYMBOLS = {"aten", "inductor", "auto"}  # backends that compile programs with symbols


class CaptureAttempts:
    """The attempts to capture build() for one call."""

    def __init__(
        self,
        definition: GraphDefinition,
        assumptions: Assumptions,
        key: Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        config: Config,
    ) -> None:
        self.definition, self.assumptions = definition, assumptions
        self.key, self.args, self.kwargs, self.config = key, args, kwargs, config

    def captured(self) -> Captured:
        """Return what the first successful attempt captured. Raise the error of build() if none succeeds."""
        assumptions, key = self.assumptions, self.key
        # the explanation of a failure; the error would hold this frame
        failure: Explanation | None = None
        excluded: set[tuple[int, int]] = set()  # (index, dimension) that this call needs as numbers
        while failure is None and (dims := self._symbolic_dims(excluded)):
            try:
                return self._with_numbers(dims)
            except SizesNeeded as needed:
                fixed = assumptions.argument_sizes.fix(key, needed.specializations)
                excluded |= {(item.argument, item.dim) for item in needed.specializations}
                for item in needed.specializations:
                    assumptions.explain(of_specialization(item, item in fixed))
            except Exception as error:
                if error_of_handler(error) is not None:
                    raise
                failure = of_static_sizes(error)
        captured = self._with_numbers({})
        if failure is not None:  # the symbols were at fault, and not build() itself
            assumptions.argument_sizes.keep_static(key)
            assumptions.explain(failure)
        return captured

    def _symbolic_dims(self, excluded: set[tuple[int, int]]) -> SymbolicDims:
        """Return the dimensions of flat arguments that the next attempt has as symbols."""
        definition, assumptions, config = self.definition, self.assumptions, self.config
        leaves, spec = tree_flatten((self.args, self.kwargs))
        names = argument_names(spec, definition.argument_names) if isinstance(config.dynamic, dict) else ()
        dynamic = config.dynamic if config.backend in _WITH_SYMBOLS and not config.cudagraph else False
        if dynamic is not False and config.backend in BACKENDS_WITH_NOTES:
            assumptions.argument_sizes.expect(self.key, lambda family: remembered_sizes(definition, family))
        return assumptions.argument_sizes.symbolic_dims(self.key, leaves, dynamic, names, excluded)

    def _with_numbers(self, dims: SymbolicDims) -> Captured:
        """Capture build() with these dimensions as symbols; Python numbers that change are inputs."""
        numbers = self.assumptions.numbers
        while True:
            try:
                return self._with_options(dims)
            except NumbersFound:
                pass
            except NumbersNeeded as needed:
                numbers.fix(needed.identities)
            except SizesNeeded:
                raise
            except Exception as error:
                if not numbers.inputs or error_of_handler(error) is not None:
                    raise
                break
        inputs = numbers.fix_all()
        try:
            return self._with_numbers(dims)
        except BaseException:
            numbers.unfix(inputs)
            raise

    def _with_options(self, dims: SymbolicDims) -> Captured:
        """Capture build() with these dimensions as symbols; options of optimizers are inputs, if possible."""
        assumptions = self.assumptions
        inputs: set[GroupOption] = set()
        try:
            return self._with_branches(dims, inputs)
        except (SizesNeeded, NumbersFound, NumbersNeeded):
            raise
        except Exception as error:
            if inputs <= assumptions.constant_options or error_of_handler(error) is not None:
                raise
            explanation = of_constant_options(error)
        before = set(assumptions.constant_options)
        assumptions.constant_options |= inputs
        try:
            captured = self._with_branches(dims, inputs)
        except BaseException:
            assumptions.constant_options = before
            raise
        assumptions.explain(explanation)
        return captured

    def _with_branches(self, dims: SymbolicDims, inputs: set[GroupOption]) -> Captured:
        """Capture build(). Add the options of optimizers that are inputs to `inputs`.

        The outcome of a branch on sizes may be a guess. If build() raises after such a branch, the other
        outcome is captured, and the program tests it.

        build() may also raise with unknown sizes in any case, because it needs their values, or the same
        values in every call. Then each set of sizes gets its own program.
        """
        search = BranchSearch(self.assumptions.branches)
        try:
            captured, capture = self._first_that_captures(dims, inputs, search)
        finally:
            # a traceback that holds this frame is a cycle, which would keep the arguments
            search.errors.clear()
        fakes, numbers, kept = capture.recorder.fakes, capture.recorder.numbers, capture.observed.kept_number
        capture.recorder.release()
        del capture  # the recorder of the capture holds fake tensors, too
        refuse_kept_numbers(numbers, captured, kept)
        return settle_survivors(fakes, self.definition.name, captured, self.config.ends_capture)

    def _first_that_captures(
        self, dims: SymbolicDims, inputs: set[GroupOption], search: BranchSearch
    ) -> tuple[Captured, Capture]:
        """Capture build() with one outcome of branches after another, until it does not raise."""
        definition, assumptions = self.definition, self.assumptions
        dependent_sizes = assumptions.dependent_sizes
        while True:
            capture = Capture(
                definition, assumptions, self.args, self.kwargs, self.config, search.outcomes, dims
            )
            capture.option_inputs = inputs
            try:
                return capture.run(), capture
            except MoreNumbers as request:
                assumptions.add_live_options(request.optimizer, {request.key})
            except ViewsNeeded:
                assumptions.rows_are_views = True
            except FoundOptimizer as found:
                self._add_optimizer(found)
            except (SizesNeeded, NumberNeeded, NumbersFound, NumbersNeeded):
                raise
            except Exception as error:
                if error_of_handler(error) is not None:
                    raise
                if not self._prepare_retry(error, search, capture.recorder.sizes.branches):
                    assumptions.dependent_sizes = dependent_sizes  # build() fails with numbers, too
                    raise search.errors[0]

    def _add_optimizer(self, found: FoundOptimizer) -> None:
        optimizers = self.definition.optimizers
        assert isinstance(optimizers, list), "a build() that steps its optimizers has a list of them"
        optimizers.append((found.optimizer, None))

    def _prepare_retry(self, error: Exception, search: BranchSearch, branches: Mapping[Branch, bool]) -> bool:
        """Whether another capture may succeed after this error of build(), which took these branches.

        It does not raise itself: its frame in the traceback of the error would be a cycle.
        """
        assumptions = self.assumptions
        has_symbols = assumptions.has_symbols_for_dependent_sizes
        is_refusal = isinstance(error, CaptureError) and not isinstance(error, RaisedInBuild)
        if is_refusal and has_symbols:
            assumptions.dependent_sizes = DependentSizes.NUMBERS_ONLY
            return True
        tries = _MAX_REFUSALS if is_refusal and self.config.ends_capture else MAX_BRANCHED
        if search.turn_last_guess(error, branches, tries):
            return True
        if has_symbols:
            assumptions.dependent_sizes = DependentSizes.NUMBERS_ONLY
            search.restart()
            return True
        return False
