"""Modules that a mock must not import a second time."""


class MockEnableDisableMixin:
    """`hazard_list` names modules and packages that DynamicMockModule.from_package does not import again."""

    hazard_list: list[str] = []

    @classmethod
    def is_safe_module(cls, module_key: str) -> bool:
        """Return True if the module `module_key` may be imported again."""
        return not any(module_key == k or module_key.startswith(f"{k}.") for k in cls.hazard_list)
