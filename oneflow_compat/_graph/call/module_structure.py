"""The structure and hooks of modules, compared before each call where build() was not observed instruction by
instruction (observe/attribute_reads.py). An observed build() has guards of all that it reads of modules.

The ordinary case costs a few passes in C over tuples of containers; the facts are compared in detail where a
length changed. torch numbers the hooks of a process: no hook was added while the next number is the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_GLOBAL_HOOKS = tuple(getattr(torch_module, f"_global{name}") for name in _HOOKS)


HookDict = Mapping[int, Callable[..., Any]]
HookFacts = tuple[tuple[tuple[int, int], ...], ...]  # (number, id of the function) of each hook, by dict


class ModuleStructure:
    """The facts about modules that a program relies on. `changed` names the fact that made holds() False."""

    def __init__(self, modules: Sequence[tuple[str, torch.nn.Module]]) -> None:
        self.modules = modules
        self._objects = [module for _, module in self.modules]
        self.facts = self._facts()
        self.changed: str | None = None
        self._note()

    def _note(self) -> None:
        """Note the lengths that stand for the facts."""
        self._hook_count = RemovableHandle.next_id
        hooks = (h for dicts in self._hook_dicts() for h in dicts if h)
        self._hooked = [(h, list(h.values())) for h in hooks]
        registries = [m.__dict__[name] for m in self._objects for name in _REGISTRIES]
        self._empty = tuple(registry for registry in registries if not registry)
        self._filled = (
            *(m.__dict__ for m in self._objects),
            *(registry for registry in registries if registry),
        )
        self._lengths = list(map(len, self._filled))
        self._types = list(map(type, self._objects))

    def _hook_dicts(self) -> Iterator[Sequence[HookDict]]:
        """Yield the dicts of hooks of all modules, and of each module."""
        yield _GLOBAL_HOOKS
        for module in self._objects:
            yield [module.__dict__[name] for name in _HOOKS]

    def holds(self) -> bool:
        """Whether every fact is as at the capture."""
        if (
            RemovableHandle.next_id != self._hook_count
            or any(self._empty)
            or [*map(len, self._filled)] != self._lengths
            or [*map(type, self._objects)] != self._types
            or any(list(hooks.values()) != before for hooks, before in self._hooked)
        ):
            facts = self._facts()
            self.changed = next((f for f, value in facts.items() if value != self.facts.get(f)), None)
            if self.changed is not None:
                return False
            self._note()
        return True

    def _facts(self) -> dict[str, object]:
        """{label: value}: equal if and only if the structure of the modules and the hooks are the same."""
        facts: dict[str, Any] = {"a hook": [hooks_of(dicts) for dicts in self._hook_dicts()]}
        for path, module in self.modules:
            attributes = module.__dict__
            name = f"{type(module).__name__} {path}".rstrip()
            facts[f"the class of {path or name}"] = type(module)
            facts[f"the forward of {name}"] = attributes.get("forward")
            facts[f"the tensors of {name}"] = [
                [(key, value is None) for key, value in attributes[registry].items()]
                for registry in ("_parameters", "_buffers")
            ]
            facts[f"the submodules of {name}"] = [
                (key, id(value)) for key, value in attributes["_modules"].items()
            ]
        return facts


def hooks_of(hook_dicts: Iterable[HookDict | None]) -> HookFacts:
    """Return the functions of some dicts of hooks, by identity; None and an empty dict count as the same."""
    return tuple(
        tuple((key, id(hook)) for key, hook in hooks.items()) if hooks else () for hooks in hook_dicts
    )
