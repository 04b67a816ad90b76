"""Helpers that read a graph's job message."""


def value(attribute):
    """The number, text or list of a setting of an operator."""
    setting = getattr(attribute, attribute.WhichOneof("value"))
    return (
        list(getattr(setting, "val", getattr(setting, "dim", ()))) if hasattr(setting, "FIELDS") else setting
    )
