"""The notice that a graph keeps the modes, train() or eval(), of its first call, as graphs of OneFlow do."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from ..errors import warn_user
from . import sources
from .checkers import checker_of
from .guard import Guard

if TYPE_CHECKING:
    from ..definition import GraphDefinition

_training = operator.itemgetter("training")
_training_of_script = operator.attrgetter("training")


class ModeNotice:
    """The modes of the modules whose code reads them; `changed` tells whether one is another now."""

    def __init__(self, modes: Iterable[tuple[torch.nn.Module, bool]]) -> None:
        modes = list(modes)
        # torch.compile's module has the mode of the module inside
        readers = [
            (module, training)
            for module, training in modes
            if "training" in module.__dict__ and _reads_training(type(module))
        ]
        scripts = [(module, training) for module, training in modes if _is_script_that_reads_it(module)]
        self._modules = [module for module, _ in (*readers, *scripts)]
        self._attributes = [module.__dict__ for module, _ in readers]
        self._scripts = [module for module, _ in scripts]  # attributes of script modules lie in C++
        self._modes = [training for _, training in (*readers, *scripts)]
        self._checker = checker_of(
            Guard(sources.Item("training"), attributes, mode)
            for attributes, mode in zip(self._attributes, self._modes)
        )

    def changed(self) -> bool:
        if not self._scripts and self._checker.first_change() is None:
            return False
        modes = [*map(_training, self._attributes), *map(_training_of_script, self._scripts)]
        return modes != self._modes

    def tell(self, definition: GraphDefinition) -> None:
        """Warn that the graph keeps the modes of its first call. Name the first module that changed."""
        changed = (m for m, mode in zip(self._modules, self._modes) if m.training != mode)
        module = next(changed, None)
        if module is None:  # another thread has changed it back
            return
        now, kept = ("train()", "eval()") if module.training else ("eval()", "train()")
        warn_user(
            f"graph {definition.name}: {_label(module, definition)} was in {kept} at the first call and is in"
            f" {now} now. A graph keeps the modes of its first call, here {kept}, as in OneFlow: make another"
            " graph for the other mode."
        )


def _label(module: torch.nn.Module, definition: GraphDefinition) -> str:
    """Return the path of a module from the graph and its class, as `module 'model.1' (Dropout)`."""
    modules = definition.modules() if callable(definition.modules) else definition.modules
    paths = (
        path
        for prefix, root in modules.items()
        for path, m in root.named_modules(prefix=prefix)
        if m is module
    )
    path = next(paths, "")
    return f"module {path!r} ({type(module).__name__})" if path else f"a module {type(module).__name__}"


def _reads_training(cls: type) -> bool:
    """Whether a method of the class, or of a class that it inherits from, uses the name `training`."""
    functions = (
        value
        for base in cls.__mro__
        if base is not torch.nn.Module
        for value in vars(base).values()
        if isinstance(value, types.FunctionType)
    )
    return any("training" in function.__code__.co_names for function in functions)


def _is_script_that_reads_it(module: torch.nn.Module) -> bool:
    if not isinstance(module, torch.jit.ScriptModule) or not module._c._has_method("forward"):
        return False
    return "training" in module.code
