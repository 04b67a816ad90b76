"""The test suites that `make upstream` knows, and where their files are in the folder of checkouts."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Unit:
    """A file or folder of tests that runs in one process. `sample` is the fraction of its tests that run."""

    path: str
    sample: float = 1.0


@dataclass(frozen=True)
class Suite:
    """The tests of one project at one version.

    `folder` is the checkout in SOURCES, `root` the folder in it where pytest runs. `device` replaces the device
    that the files of torch's own tests name, `adapter` the table of helper names that they need. `packages` are
    modules that the tests import and that this project's requirements lack. `baseline` is False for tests that
    plain torch cannot run; each of them should pass.
    """

    name: str
    title: str
    folder: str
    units: tuple[Unit, ...]
    root: str = "."
    device: str = ""
    adapter: str = ""
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    seconds: int = 120
    baseline: bool = True


def units(paths: str, sample: float = 1.0) -> tuple[Unit, ...]:
    """Return units of one sample size: `paths` are separated by spaces."""
    return tuple(Unit(path, sample) for path in paths.split())


_TORCH_2023 = units(
    "test_autograd.py test_optim.py test_indexing.py test_view_ops.py test_type_promotion.py test_serialization.py"
    " distributions/test_transforms.py distributions/test_constraints.py test_stateless.py test_subclass.py"
    " test_numpy_interop.py"
) + (Unit("test_modules.py", 0.2), Unit("test_ops.py", 0.01), Unit("test_binary_ufuncs.py", 0.05))

SUITES: tuple[Suite, ...] = (
    Suite(
        "torch-2.13",
        "PyTorch 2.13 (copies in intel/torch-xpu-ops)",
        "torch-xpu-ops",
        units("test_torch_xpu.py test_nn_xpu.py test_tensor_creation_ops_xpu.py test_testing_xpu.py"),
        root="test/xpu",
        device="cpu",
    ),
    Suite(
        "torch-2023-04",
        "PyTorch of April 2023",
        "pytorch-2023",
        _TORCH_2023,
        root="test",
        device="cpu",
        adapter="torch-2023",
        options=("--noconftest",),
    ),
    Suite(
        "einops",
        "einops",
        "einops",
        units("einops/tests"),
        environment={"EINOPS_TEST_BACKENDS": "numpy,torch"},
    ),
    Suite("entmax", "entmax", "entmax", units("entmax")),
    Suite(
        "linear-operator",
        "linear_operator",
        "linear-operator",
        units("test"),
        packages=("jaxtyping", "mpmath"),
    ),
    Suite(
        "oneflow-0.9",
        "OneFlow 0.9 (without a comparison)",
        "oneflow",
        units("tensor") + (Unit("modules", 0.1),),
        root="python/oneflow/test",
        environment={"ONEFLOW_TEST_CPU_ONLY": "1"},
        baseline=False,
    ),
    Suite("pytorch-optimizer", "pytorch-optimizer", "pytorch-optimizer", units("tests")),
    Suite(
        "torchdiffeq",
        "torchdiffeq",
        "torchdiffeq",
        units("api_tests.py event_tests.py gradient_tests.py norm_tests.py odeint_tests.py"),
        root="tests",
        environment={"PYTHONPATH": ".."},
        packages=("scipy",),
    ),
    Suite(
        "x-transformers",
        "x-transformers",
        "x-transformers",
        units("tests"),
        packages=("einx", "loguru", "torch_einops_utils"),
    ),
    Suite("zuko", "zuko", "zuko", units("tests")),
)
