"""Where test data sets lie."""

from __future__ import annotations

import os

from .. import _env


def dataset_dir(sub_dir=None) -> str:
    """The folder of the test data sets (ONEFLOW_TEST_DATASET_DIR), or a sub-folder of it."""
    root = _env.get("ONEFLOW_TEST_DATASET_DIR")
    return root if sub_dir is None else os.path.join(root, sub_dir)
