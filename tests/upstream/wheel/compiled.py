"""Run a step in eager mode and by flow.compile_step, and compare every outcome."""

import re
import warnings

from outcomes import outcome_of

import oneflow as flow

AS_PROGRAM, IN_EAGER_MODE = "as one program", "in eager mode, with a warning"


def compared(make, calls, backend="aten"):
    """Run steps of two equal states, and return how the compiled one ran.

    `make()` returns a step and the function that returns its state. `calls` are functions that return the
    arguments of each call. AssertionError if an outcome, a written argument, the random state or the state
    differs.
    """
    eager, eager_state = make()
    step, state = make()
    compiled = flow.compile_step(step, backend=backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, arguments in enumerate(calls):
            expected, actual = (outcome_with(f, arguments()) for f in (eager, compiled))
            assert actual == expected, f"call {number}"
            left, right = (outcome_of(f) for f in (eager_state, state))
            assert left == right, f"state after call {number}"
    return IN_EAGER_MODE if any("eager" in str(warning.message) for warning in caught) else AS_PROGRAM


def state_of(optimizer):
    """Return the state of each parameter, whose keys a program may create in another order."""
    return [dict(sorted(state.items())) for state in optimizer.state_dict()["state"].values()]


def outcome_with(step, arguments):
    """Return the outcome of a call. Results of a graph require no gradient, because backward() has run."""
    outcome = outcome_of(lambda: step(*arguments), arguments)
    return re.sub(r" requires_grad=\w+", "", outcome)
