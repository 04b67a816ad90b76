"""Build the import packages `oneflow` (from oneflow_compat/) and `oneflow_autotest` (from autotest/).

Metadata is in pyproject.toml. This file holds what TOML cannot say: the packages of two folders, the C++
library, and the README without the links that only work in the repository.
"""

import os
import re
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "csrc"))
from build import command_class

WITH_KERNELS = (
    os.environ.get("ONEFLOW_BUILD_EXT", "1") != "0"
)  # without them the wheel is pure Python, for any platform


def packages(name, folder):
    return [name] + [f"{name}.{p}" for p in find_packages(str(HERE / folder))]


def readme_for_package_index():
    """Return README.md without pictures and relative links, which lead nowhere on an index."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!\w+://)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!\w+://|#)[^)]*\)", r"\1", text)


setup(
    long_description=readme_for_package_index(),
    long_description_content_type="text/markdown",
    packages=packages("oneflow", "oneflow_compat") + packages("oneflow_autotest", "autotest"),
    # The library of custom kernels: no Python in it, so one wheel serves every Python 3 from 3.10 on.
    ext_modules=[Extension("oneflow._ext", [], py_limited_api=True)] if WITH_KERNELS else [],
    cmdclass={"build_ext": command_class()},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if WITH_KERNELS else {},
)
