"""A notice of torch that tells a user of this package nothing.

`torch.utils.cpp_extension`, which inductor imports, logs a warning on a machine with a CUDA compiler and
without a GPU, although no CUDA code is compiled there. Checked with torch 2.11 to 2.14.
"""

from __future__ import annotations

import logging


def is_of_use(record: logging.LogRecord) -> bool:
    """Return False for the notice about a CUDA compiler without a GPU."""
    return not str(record.msg).startswith("No CUDA runtime is found")


def install() -> None:
    """Leave the notice out; other messages of the module are logged as before."""
    logging.getLogger("torch.utils.cpp_extension").addFilter(is_of_use)
