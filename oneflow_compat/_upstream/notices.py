"""Suppress a warning of torch that does not concern users of this package.

`torch.utils.cpp_extension`, which inductor imports, logs a warning on a machine with a CUDA compiler and
without a GPU, although no CUDA code is compiled there. Checked with torch 2.11 to 2.14.
"""

import logging


def is_of_use(record: logging.LogRecord) -> bool:
    """Return False for the warning about a CUDA compiler without a GPU."""
    return not str(record.msg).startswith("No CUDA runtime is found")


def install() -> None:
    """Suppress the warning. Other messages of the module are still logged."""
    logging.getLogger("torch.utils.cpp_extension").addFilter(is_of_use)
