"""Build of the import packages `oneflow` (from oneflow_compat/) and `oneflow_autotest` (from autotest/)."""
import re
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "csrc"))
from build import command_class  # noqa: E402


def packages(name, folder):
    return [name] + [f"{name}.{p}" for p in find_packages(str(HERE / folder))]


setup(
    name="oneflow-compat",
    version=re.search(r'__version__ = "([^"]+)"', (HERE / "oneflow_compat" / "version.py").read_text()).group(1),
    description="OneFlow programs, old and new, on PyTorch; nn.Graph: a whole training step as one compiled program",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    package_dir={"oneflow": "oneflow_compat", "oneflow_autotest": "autotest"},
    packages=packages("oneflow", "oneflow_compat") + packages("oneflow_autotest", "autotest"),
    package_data={"oneflow": ["mock_torch/startup/*.py"]},
    install_requires=["torch>=2.11", "numpy"],
    extras_require={
        "autotest": ["pytest>=7.4", "hypothesis>=6.90"],
        "data": ["pillow", "opencv-python-headless"],
        "embedding": ["lmdb"],
        "onerec": ["flatbuffers", "xxhash"],
        "safetensors": ["safetensors"],
        "demo": ["flowvision", "scikit-learn", "matplotlib", "tqdm"],
    },
    entry_points={"pytest11": ["oneflow_autotest.pytest_plugin = oneflow_autotest.pytest_plugin"]},
    zip_safe=False,
    # The library of custom kernels: no Python in it, so one wheel serves every Python 3 from 3.10 on.
    ext_modules=[Extension("oneflow._ext", [], py_limited_api=True)],
    cmdclass={"build_ext": command_class()},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
