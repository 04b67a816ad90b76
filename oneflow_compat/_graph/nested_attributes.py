from typing import Any

"""Nested attributes."""


def get_nested_attribute(owning_object: Any, attrs_chain: Any) -> Any:
    """The value at the end of a chain of attribute names.

    ["a", "b"] gives owning_object.a.b, and "a" gives owning_object.a.
    """
    for name in [attrs_chain] if isinstance(attrs_chain, str) else attrs_chain:
        owning_object = getattr(owning_object, name)
    return owning_object


def SetProtoMessageAttribute(message: Any, attr_name: Any, value: Any) -> None:
    """message.attr_name = value."""
    setattr(message, attr_name, value)
