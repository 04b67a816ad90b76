"""flow.experimental.F: today's oneflow._C."""

import importlib


def __getattr__(name):
    return getattr(importlib.import_module(__package__.split(".")[0] + "._C"), name)
