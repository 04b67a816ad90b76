"""Helpers that read a graph's job message."""


def value(attribute):
    """The number, text or list of a setting of an operator."""
    found = getattr(attribute, attribute.WhichOneof("value"))
    return list(getattr(found, "val", getattr(found, "dim", ()))) if hasattr(found, "FIELDS") else found
