"""Run frames as instrumented copies of their code, through torch's frame evaluation hook (PEP 523)."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar

from torch._C._dynamo import eval_frame
from torch._C._dynamo.guards import RootGuardManager

from .bytecode import VERSION
from .instructions import LAYOUT
from .instrument import instrument
from .policy import Policy, policy_of

_DYNAMO = "torch._dynamo.eval_frame"
_OPTIMIZED = 1  # a function's code; class bodies and modules keep their names in a dict
_GENERATOR = 0x20
_ASYNCHRONOUS = 0x80 | 0x100 | 0x200
_ACTION, _STRATEGY = eval_frame._FrameAction, eval_frame._FrameExecStrategy
_RUN = _STRATEGY(_ACTION.DEFAULT, _ACTION.DEFAULT)
_SKIP = _STRATEGY(_ACTION.SKIP, _ACTION.DEFAULT)
_SKIP_BELOW = _STRATEGY(_ACTION.SKIP, _ACTION.SKIP)

# id(code) -> (code, instrumented copy); the copies of a process are made once
_copies: dict[Any, Any] = {}


class _GuardManager:
    """What torch keeps with a copy: conditions under which it runs. There are none."""

    def __init__(self) -> None:
        self.root = RootGuardManager()
        self.diff_guard_root = self.cache_entry = self.extra_state = None


class _GuardedCode:
    def __init__(self, code: CodeType) -> None:
        self.code, self.guard_manager = code, _GuardManager()
        self.compile_id = self.trace_annotation = "observed by oneflow"


class _Decision:
    """The answer to torch's question how to run a frame."""

    skip_reason = None

    def __init__(self, strategy: Any, guarded_code: Any = None, apply_to_code: bool = True) -> None:
        self.frame_exec_strategy, self.guarded_code = strategy, guarded_code
        self.apply_to_code = apply_to_code


class observed_frames:
    """A context in which frames of this thread run instrumented.

    `unobserved(code, globals)` is called for the frames that do not.

    An interrupt may leave it without its end. What it replaced in torch has no effect after the next context.
    """

    entered: ClassVar[observed_frames | None] = None

    def __init__(self, hooks: Any, unobserved: Any) -> None:
        self.hooks, self.unobserved = hooks, unobserved
        self.codes: dict[Any, Any] = {}

    def __enter__(self) -> Any:
        self.setters: dict[Any, Any] = {}
        self.thread = threading.get_ident()
        # a library may time garbage collection: this is not code of build(), whoever calls gc.collect()
        self.of_collector = {id(getattr(callback, "__code__", None)) for callback in gc.callbacks}
        self._keep_on()
        decide: Any = self._decide  # it returns a tuple, and torch declares a class
        self.before = eval_frame.set_eval_frame(decide)
        observed_frames.entered = self
        return self

    def __exit__(self, *exc: Any) -> None:
        observed_frames.entered = None
        eval_frame.set_eval_frame(self.before)
        for name, original in self.setters.items():
            setattr(sys.modules[_DYNAMO], name, original)
        for code in self.codes.values():
            eval_frame.reset_code(code)  # torch.compile compiles it again if it meets it again

    def make_visible(self, code: CodeType) -> None:
        """Undo what torch.compile may have noted for this code: that its frames run without a question."""
        if id(code) not in self.codes:
            eval_frame.reset_code(code)

    def leave_out(self, code: CodeType) -> None:
        """Frames of this code run as they are: a generator of it started before build()."""
        if id(code) in self.codes:
            eval_frame.set_code_exec_strategy(code, _SKIP)

    def _decide(self, frame: Any, cache_entry: Any, frame_state: Any) -> _Decision:
        code = frame.f_code
        self.codes[id(code)] = code
        policy = Policy.NONE_BELOW if id(code) in self.of_collector else policy_of(code, frame.f_globals)
        if policy is Policy.NONE:
            if not self.setters:
                self._keep_on()
            return _Decision(_SKIP)
        if policy is Policy.NONE_BELOW:
            return _Decision(_SKIP_BELOW)
        if not code.co_flags & _OPTIMIZED or code.co_flags & _ASYNCHRONOUS:
            self.unobserved(code, frame.f_globals)
            return _Decision(_SKIP)
        if code.co_flags & _GENERATOR and (frame.f_lasti > LAYOUT.fresh or VERSION < (3, 11)):
            # it started before; or 3.10, where only its own frame yields
            self.unobserved(code, frame.f_globals)
            return _Decision(_SKIP, apply_to_code=VERSION < (3, 11))
        return _Decision(_RUN, _GuardedCode(self._copy(code, policy)))

    def _copy(self, code: CodeType, policy: Any) -> Any:
        entry = _copies.get(id(code))  # the code is kept, so that no other code gets its id
        if entry is None:
            entry = _copies[id(code)] = code, instrument(code, self.hooks, policy is Policy.USER)
        eval_frame.set_code_exec_strategy(entry[1], _SKIP)
        return entry[1]

    def _keep_on(self) -> None:
        """Functions that torch.compile leaves out (torch._disable_dynamo) do not switch the hook off."""
        module = sys.modules.get(_DYNAMO)
        if module is None or not hasattr(module, "_maybe_set_eval_frame"):  # not imported, or not fully
            return

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def keep_on(new: Any) -> Any:
                is_on = observed_frames.entered is self and threading.get_ident() == self.thread
                return self._decide if is_on else original(new)

            return keep_on

        for name in ("set_eval_frame", "_maybe_set_eval_frame"):
            self.setters[name] = getattr(module, name)
            setattr(module, name, make(self.setters[name]))


def skip_hooks(functions: Any) -> None:
    """The hooks themselves run without a question."""
    for function in functions:
        eval_frame.set_code_exec_strategy(function.__code__, _SKIP_BELOW)
