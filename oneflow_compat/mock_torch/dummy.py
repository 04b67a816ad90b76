"""Placeholders for names that neither library has (lazy mode), and the text of their errors."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

error_msg = (
    " is not implemented: it is in neither oneflow nor torch, so it cannot be used under oneflow.mock_torch"
)


class DummyModule(ModuleType):
    """A placeholder that has every attribute and is empty and false. Calling, indexing or entering it raises
    an error that names the missing module.
    """

    def __init__(self, name: str, verbose: bool = False) -> None:
        super().__init__(name)
        self.__dict__["_verbose"] = verbose
        if verbose:
            print(f"mock_torch: {name} is not there, a placeholder stands for it")

    def __getattr__(self, name: str) -> DummyModule:
        if name in ("__path__", "__all__", "__file__", "__wrapped__"):
            raise AttributeError(name)
        return DummyModule(f"{self.__name__}.{name}", self.__dict__["_verbose"])

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"{self.__name__}{error_msg}")

    __call__ = __enter__ = __exit__ = __getitem__ = __setitem__ = _refuse

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __subclasscheck__(self, sub: type) -> bool:
        return False

    def __instancecheck__(self, obj: object) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)
