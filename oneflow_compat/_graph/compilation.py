"""From a call that no program serves to the entry that does: capture, passes, compiler."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .._errors import OneFlowError
from .._signals import error_of_handler, run_waiting_handlers, second_interrupt_acts_at_once
from .._upstream.missing import error_of
from .argument_sizes import BACKENDS_WITH_NOTES, remember_sizes
from .call.entry import Entry
from .capture_attempts import CaptureAttempts
from .compile import compiler_for, default_backend
from .errors import warn_user
from .explanations import of_static_sizes
from .program import passes

if TYPE_CHECKING:
    from .assumptions import Assumptions
    from .config import Config
    from .definition import GraphDefinition
    from .program.captured import Captured
    from .program.program import CompiledFunction, Program
    from .signature import Signature


class Compilation:
    """Makes the entries of one graph."""

    def __init__(self, definition: GraphDefinition, config: Config, assumptions: Assumptions) -> None:
        self._definition = definition
        self._name = definition.name
        self._config = config
        self._assumptions = assumptions

    def entry(
        self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], may_run_eagerly: bool
    ) -> Entry | None:
        """Capture build() for this call, and compile the program.

        None: only the symbols in the program keep it from being compiled, and the next capture has none.
        `may_run_eagerly`: an error of the capture may lead to a call in eager mode.
        """
        backend = self._config.backend or default_backend()
        config = self._config.resolved(backend)
        config = replace(config, ends_capture=may_run_eagerly or self._definition.steps_in_build)
        compiler_for(backend)  # a missing package is an error before anything is captured
        start = time.perf_counter()
        attempts = CaptureAttempts(self._definition, self._assumptions, key, args, kwargs, config)
        try:
            captured = attempts.captured()
        except (ImportError, AttributeError) as error:
            explained = error_of(f"graph {self._name}", error)  # torch may lack a name that the program needs
            if explained is error:
                raise
            raise explained from error
        try:
            program = self._finish_stage("capture", start, captured.program)
            entry = self._compiled_entry(key, captured.with_program(program), config)
        except BaseException as error:
            captured.effects.undo_capture(captured.live)
            of_handler = error_of_handler(error)
            if of_handler is not None and of_handler is not error:  # a compiler may wrap what it meets
                raise of_handler from None
            raise
        if entry is None:
            captured.effects.undo_capture(captured.live)
        else:
            entry.note_arguments(args, kwargs)
        return entry

    def _compiled_entry(self, key: Signature, captured: Captured, config: Config) -> Entry | None:
        """Compile a captured program. Return None if only the symbols in it keep it from being compiled."""
        program = captured.program
        key_of_entry = self._key_of_entry(key, program, config)
        if config.check:
            program.check()
        overlaps = captured.guards.overlaps
        try:
            if not overlaps:  # passes may move a write across a read of the same memory
                with torch._C._DisableAutocast():  # the casts are in the program
                    program = passes.run(program, config, config.on_stage)
            if captured.guards.serves_one_call or overlaps:  # not worth compiling
                config = replace(config, backend="aten")
            run_waiting_handlers()
            with torch._C._DisableAutocast(), second_interrupt_acts_at_once():
                program, run = self._compile(program, config)
        except Exception as error:
            if error_of_handler(error) is not None or not self._assume_less(key, captured, error):
                raise
            return None
        run_waiting_handlers()
        return Entry(key_of_entry, captured.with_program(program), run)

    def _key_of_entry(self, key: Signature, program: Program, config: Config) -> Signature:
        """Return the key of a program in the cache: without the sizes, if it serves many."""
        if program.dimensions is None:
            return key
        family = self._assumptions.argument_sizes.key_of(key)
        if config.backend in BACKENDS_WITH_NOTES:
            remember_sizes(self._definition, family, self._assumptions.argument_sizes.varied(key))
        return family

    def _assume_less(self, key: Signature, captured: Captured, error: Exception) -> bool:
        """Make numbers or sizes of the next capture constants. Return False if this one had no symbols."""
        if captured.live.numbers:
            self._assumptions.numbers.fix_all()
        elif captured.program.dimensions is not None:
            self._assumptions.argument_sizes.keep_static(key)
            self._assumptions.explain(of_static_sizes(error, "compiled"))
        else:
            return False
        return True

    def _compile(self, program: Program, config: Config) -> tuple[Program, CompiledFunction]:
        """Compile a program. Return the program with this stage in its history, and the function.

        If the compiler fails, and the user named no backend, the aten backend runs the program.
        """
        backend, start = config.backend or default_backend(), time.perf_counter()
        try:
            run = compiler_for(backend)(program, config)
        except Exception as error:
            if error_of_handler(error) is not None:
                raise
            cause = error_of(f"the {backend} backend", error)
            message = f"{type(cause).__name__}: {cause}".split("\n", 1)[0]
            if backend == "inductor" and self._config.backend is not None:
                raise OneFlowError(
                    f"graph {self._name}: the inductor backend could not compile it ({message});"
                    " set_backend('auto') or 'aten' runs it"
                ) from error
            if self._config.backend is not None or backend == "aten":
                raise
            warn_user(
                f"graph {self._name}: the {backend} backend could not compile it ({message});"
                " it runs on the aten backend"
            )
            run, backend = compiler_for("aten")(program, config), "aten"
        return self._finish_stage(f"compile {backend}", start, program), run

    def _finish_stage(self, stage: str, start: float, program: Program) -> Program:
        """Report a stage that began at `start`. Return the program with the stage in its history."""
        seconds = time.perf_counter() - start
        if self._config.on_stage is not None:
            self._config.on_stage(stage, seconds, program)
        return program.with_(history=(*program.history, (stage, seconds, program.count())))
