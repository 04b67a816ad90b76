"""What stands for a missing name in lazy mode, and a mock for one package."""

from __future__ import annotations

from types import ModuleType


class DummyModule(ModuleType):
    """Any attribute of it exists, and it is empty and false; calling, indexing or entering it raises and
    names what is missing.
    """

    def __init__(self, name: str, verbose: bool = False):
        super().__init__(name)
        self.__dict__["_verbose"] = verbose
        if verbose:
            print(f"mock_torch: {name} is not there, a placeholder stands for it")

    def __getattr__(self, name):
        if name in ("__path__", "__all__", "__file__", "__wrapped__"):
            raise AttributeError(name)
        return DummyModule(f"{self.__name__}.{name}", self._verbose)

    def _refuse(self, *args, **kwargs):
        raise RuntimeError(f"{self.__name__}{_error_msg()}")

    __call__ = __enter__ = __exit__ = __getitem__ = __setitem__ = _refuse

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __subclasscheck__(self, sub):
        return False

    def __instancecheck__(self, obj):
        return False

    def __mro_entries__(self, bases):
        return (object,)


def _error_msg():
    from .messages import error_msg

    return error_msg


class DynamicMockModule(ModuleType):
    """A package imported again with torch mocked, kept apart from the one in sys.modules."""

    def __init__(self, pkg_name, obj_entity, main_pkg_enable):
        super().__init__(pkg_name)
        self.__dict__.update(_entity=obj_entity, _enable=main_pkg_enable)

    @classmethod
    def from_package(cls, main_pkg, *, lazy=True, verbose=False, extra_dict=None, required_dependencies=[]):
        """Import `main_pkg` afresh under the mock; sys.modules gets its former entries back."""
        import importlib
        import sys

        from .mock_importer import enable

        def guard():
            return enable(
                lazy=lazy,
                verbose=verbose,
                extra_dict=extra_dict,
                main_pkg=main_pkg,
                required_dependencies=required_dependencies,
            )

        from .mock_utils import MockEnableDisableMixin

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
        """Put `obj` in the place "a.b.c" inside the package."""
        *path, last = module_name.split(".")
        owner = self._entity
        for part in path[1:] if path and path[0] == self.__name__ else path:
            owner = getattr(owner, part)
        setattr(owner, last, obj)
