"""A mock of torch for one package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .mock_importer import enable
from .mock_utils import MockEnableDisableMixin


class DynamicMockModule(ModuleType):
    """A package imported again with torch mocked, kept apart from the one in sys.modules."""

    def __init__(self, pkg_name, obj_entity, main_pkg_enable):
        super().__init__(pkg_name)
        self.__dict__.update(_entity=obj_entity, _enable=main_pkg_enable)

    @classmethod
    def from_package(cls, main_pkg, *, lazy=True, verbose=False, extra_dict=None, required_dependencies=[]):
        """Import `main_pkg` again under the mock, then restore the former entries of sys.modules."""

        def guard():
            return enable(
                lazy=lazy,
                verbose=verbose,
                extra_dict=extra_dict,
                main_pkg=main_pkg,
                required_dependencies=required_dependencies,
            )

        def afresh():
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

    def __getattr__(self, name):
        with self._enable():
            return getattr(self._entity, name)

    def hijack(self, module_name: str, obj):
        """Set the attribute "a.b.c" of the package to `obj`."""
        *path, last = module_name.split(".")
        owner = self._entity
        for part in path[1:] if path and path[0] == self.__name__ else path:
            owner = getattr(owner, part)
        setattr(owner, last, obj)
