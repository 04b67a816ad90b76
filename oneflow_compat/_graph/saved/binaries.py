"""The folder `compiled` of a saved graph: the machine code of its programs, beside program.json.

Machine code from a file runs with the user's rights, so a loaded graph reads this folder only if load_graph
was told to trust it. A binary fits if it was compiled from the same region, for the same instruction set, and
with the same versions.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import TYPE_CHECKING, Any

from ..compile import has_compiler, program_cache
from ..compile.inductor.compiler import Plan, compile_region, plan_for
from ..compile.notices import Announcement
from ..compile.program_cache.store import Store
from ..config import Config
from ..program.program import Program

if TYPE_CHECKING:
    from ..compile.inductor.regions import CompiledRegion
    from ..program.program import CompiledFunction

FOLDER = "compiled"
# Facts that must be equal. A binary for other threads or settings computes the same results.
_MUST_FIT = ("oneflow", "kernels", "torch", "python", "machine", "instructions")


def binary_plans(programs: list[Program]) -> list[Plan]:
    """Return how each program that has a binary is compiled. RuntimeError: there is no compiler for one."""
    plans = []
    for program in programs:
        plan = plan_for(program, Config()) if not program.unknown_sizes else None
        if plan is not None and plan.request is not None:
            plans.append(plan)
            if not has_compiler() and not program_cache.is_kept(plan.request):
                raise RuntimeError(
                    f"save: compiled=True of graph {program.name} needs a C++ compiler, and no g++ or clang++"
                    " is on the PATH; install one, set CXX to its path, or save without compiled=True"
                )
            continue
        warnings.warn(
            f"save: a program of graph {program.name} has no binary that can be saved (it is for a GPU, has"
            " sizes that depend on values, or calls operators of your own); it is compiled where it is"
            " loaded",
            stacklevel=5,
        )
    return plans


def save_binaries(plans: list[Plan], folder: str) -> None:
    """Write the binary of each plan. Programs that are not compiled yet are compiled."""
    store = Store(os.path.join(folder, FOLDER), private=False)
    keys: set[str] = set()
    for plan in plans:
        request = plan.request
        assert request is not None  # binary_plans left out the others
        keys.update(request.keys)
        program_cache.copy(request, store)
        if program_cache.find(request, store) is None:
            with Announcement(plan.program.name, plan.operators) as notice:
                compile_region(plan.region, plan.infos, (), notice, request, store)
    for entry in store.entries():
        if entry.key not in keys:
            store.remove(entry)


def remove_binaries(folder: str) -> None:
    """Remove the binaries of an older save."""
    if os.path.isdir(os.path.join(folder, FOLDER)):
        Store(os.path.join(folder, FOLDER), private=False).clear()
        with contextlib.suppress(OSError):  # the folder may hold files of the user
            os.rmdir(os.path.join(folder, FOLDER))


class SavedBinaries:
    """The binaries of a saved graph from a folder that the user trusts."""

    def __init__(self, folder: str) -> None:
        self.store = Store(os.path.join(folder, FOLDER), create=False, private=False)

    def function_for(self, program: Program, backend: str) -> CompiledFunction | None:
        """Return the function over the slot values, or None if no binary fits. A warning says why none does.

        `backend`: what runs the program then.
        """
        plan = plan_for(program, Config()) if not program.unknown_sizes else None
        if plan is None or plan.request is None:
            return None
        functions: list[CompiledRegion] = []
        unfit: list[str] = []
        for entry in self.store.entries():
            if entry.record["region"] == plan.request.region_key:
                differences = _differences(entry.record["environment"], plan.request.environment)
                whole = None if differences else self.store.find(entry.key)
                function = program_cache.load_entry(self.store, whole) if whole is not None else None
                if function is not None:
                    functions.append(function)
                else:
                    unfit += differences or ["its library is damaged or could not be loaded"]
        if functions:
            return plan.program_with(*functions)
        reasons = "; ".join(dict.fromkeys(unfit)) or "none is of this program"
        warnings.warn(
            f"graph {program.name}: no binary in {self.store.folder} fits ({reasons}); the {backend} backend"
            " runs it",
            stacklevel=5,
        )
        return None


def _differences(saved: dict[str, Any], here: dict[str, Any]) -> list[str]:
    return [f"{k}: saved with {saved[k]}, here {here[k]}" for k in _MUST_FIT if saved.get(k) != here[k]]
