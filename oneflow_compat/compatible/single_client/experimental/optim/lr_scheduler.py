"""Today's oneflow.optim.lr_scheduler."""

import importlib


def __getattr__(name):
    return getattr(importlib.import_module(__package__.split(".")[0] + ".optim.lr_scheduler"), name)
