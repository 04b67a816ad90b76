"""The modules that a mock must not import a second time."""

from __future__ import annotations


class MockEnableDisableMixin:
    """`hazard_list`: modules, and packages with all they hold, that DynamicMockModule.from_package leaves as
    they are.
    """

    hazard_list: list[str] = []

    @classmethod
    def is_safe_module(cls, module_key: str) -> bool:
        """May the module `module_key` be imported again?"""
        return not any(module_key == k or module_key.startswith(f"{k}.") for k in cls.hazard_list)
