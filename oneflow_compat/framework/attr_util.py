"""Nested attributes."""


def get_nested_attribute(owning_object, attrs_chain):
    """(value, the object that owns it, last name) of a chain of attribute names: ["a", "b"] is owning_object.a.b."""
    owner, last = owning_object, None
    for name in attrs_chain[:-1] if not isinstance(attrs_chain, str) else []:
        owner = getattr(owner, name)
    last = attrs_chain if isinstance(attrs_chain, str) else attrs_chain[-1]
    return getattr(owner, last), owner, last


def SetProtoMessageAttribute(message, attr_name, value):
    """message.attr_name = value."""
    setattr(message, attr_name, value)
