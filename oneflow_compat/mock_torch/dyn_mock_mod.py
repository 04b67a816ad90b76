"""A mock of torch for one package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .mock_importer import enable
from .mock_utils import MockEnableDisableMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class DynamicMockModule(ModuleType):
    """A package imported again with torch mocked, kept apart from the one in sys.modules."""

    def __init__(self, pkg_name: str, obj_entity: Any, main_pkg_enable: Callable[..., Any]) -> None:
        super().__init__(pkg_name)
        self.__dict__.update(_entity=obj_entity, _enable=main_pkg_enable)

    @classmethod
    def from_package(
        cls,
        main_pkg: str,
        *,
        lazy: bool = True,
        verbose: bool = False,
        extra_dict: dict[str, str] | None = None,
        required_dependencies: Sequence[str] = [],
    ) -> DynamicMockModule:
        """Import `main_pkg` again under the mock, then restore the former entries of sys.modules."""

        def guard() -> Any:
            return enable(
                lazy=lazy,
                verbose=verbose,
                extra_dict=extra_dict,
                main_pkg=main_pkg,
                required_dependencies=required_dependencies,
            )

        def afresh() -> Any:
            packages = (main_pkg, *required_dependencies)
            return [
                k
                for k in sys.modules
                if k.split(".")[0] in packages and MockEnableDisableMixin.is_safe_module(k)
            ]

        kept = {k: sys.modules.pop(k) for k in afresh()}
        try:
            with guard():
                entity = importlib.import_module(main_pkg)
        finally:
            for k in afresh():
                del sys.modules[k]
            sys.modules.update(kept)
        return cls(main_pkg, entity, guard)

    def __getattr__(self, name: str) -> Any:
        with self._enable():
            return getattr(self._entity, name)

    def hijack(self, module_name: str, obj: Any) -> None:
        """Set the attribute "a.b.c" of the package to `obj`."""
        *path, last = module_name.split(".")
        owner = self._entity
        for part in path[1:] if path and path[0] == self.__name__ else path:
            owner = getattr(owner, part)
        setattr(owner, last, obj)
