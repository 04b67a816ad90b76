"""The test suites that `make upstream` knows, and where their files are in the folder of checkouts."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Unit:
    """A file or folder of tests that runs in one process. `sample` is the fraction of its tests that run.

    `share` is its part of the time, relative to other units, if the time of all is limited.
    """

    path: str
    sample: float = 1.0
    share: int = 1


@dataclass(frozen=True)
class Suite:
    """The tests of one project at one version.

    `folder` is the checkout in SOURCES, `root` the folder in it where pytest runs. `device` replaces the
    device that the files of torch's own tests name, `adapter` the table of helper names that they need.
    `packages` are modules that the tests import and that this project's requirements lack. `baseline` is
    False for tests that plain torch cannot run; each of them should pass. `is_ours` is True for tests beside
    this file, which need no checkout.
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
    is_ours: bool = False


def units(paths: str, sample: float = 1.0) -> tuple[Unit, ...]:
    """Return units of one sample size: `paths` are separated by spaces."""
    return tuple(Unit(path, sample) for path in paths.split())


_TORCH_2023 = units(
    "test_autograd.py test_optim.py test_indexing.py test_view_ops.py test_type_promotion.py"
    " test_serialization.py"
    " distributions/test_transforms.py distributions/test_constraints.py test_stateless.py test_subclass.py"
    " test_numpy_interop.py test_shape_ops.py test_sort_and_select.py test_scatter_gather_ops.py"
    " test_overrides.py"
    " test_complex.py test_dlpack.py test_pruning_op.py test_namedtensor.py test_pytree.py"
) + (
    Unit("test_modules.py", 0.2),
    Unit("test_ops.py", 0.01),
    Unit("test_binary_ufuncs.py", 0.05),
    Unit("test_reductions.py", 0.1),
    Unit("test_unary_ufuncs.py", 0.02),
    Unit("test_linalg.py", 0.1),
)

# Tensors of 16 GB: each side skips these tests if little memory is free.
_WITHOUT_THE_LARGEST = ("-k", "not zeros_large and not ones_large")

SUITES: tuple[Suite, ...] = (
    Suite(
        "torch-2.13",
        "PyTorch 2.13 (copies in intel/torch-xpu-ops)",
        "torch-xpu-ops",
        units(
            "test_torch_xpu.py test_nn_xpu.py test_tensor_creation_ops_xpu.py test_testing_xpu.py"
            " test_legacy_vmap_xpu.py test_expanded_weights_xpu.py test_flop_counter_xpu.py"
        )
        + (Unit("test_custom_ops_xpu.py", 0.5), Unit("test_nestedtensor_xpu.py", 0.2)),
        root="test/xpu",
        device="cpu",
        options=_WITHOUT_THE_LARGEST,
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
    Suite(
        "captum",
        "Captum",
        "captum",
        units("tests/attr tests/metrics tests/module", 0.5),
        packages=("tqdm",),
    ),
    Suite("e3nn", "e3nn", "e3nn", units("tests", 0.05), packages=("opt_einsum_fx", "scipy")),
    Suite("entmax", "entmax", "entmax", units("entmax")),
    Suite("geoopt", "geoopt", "geoopt", units("tests", 0.02), packages=("scipy",)),
    Suite("gpytorch", "GPyTorch", "gpytorch", units("test", 0.2), packages=("linear_operator", "sklearn")),
    Suite(
        "ignite",
        "PyTorch-Ignite",
        "ignite",
        units("tests/ignite/metrics", 0.03) + units("tests/ignite/engine", 0.2),
        packages=("sklearn", "pandas"),
    ),
    Suite(
        "kornia",
        "Kornia",
        "kornia",
        units("tests/color tests/losses tests/morphology", 0.1),
        packages=("kornia_rs",),
    ),
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
    Suite(
        "pyro",
        "Pyro",
        "pyro",
        units("tests/distributions", 0.1) + units("tests/ops", 0.2) + units("tests/poutine tests/nn"),
        packages=("pyroapi", "opt_einsum"),
    ),
    Suite(
        "torch-geometric",
        "PyTorch Geometric",
        "torch-geometric",
        units("test/nn test/utils", 0.1),
        packages=("pandas",),
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
    Suite("torchsde", "torchsde", "torchsde", units("tests", 0.05), packages=("trampoline", "scipy")),
    Suite(
        "x-transformers",
        "x-transformers",
        "x-transformers",
        units("tests"),
        packages=("einx", "loguru", "torch_einops_utils"),
    ),
    Suite("zuko", "zuko", "zuko", units("tests")),
    Suite(
        "torch-wheel",
        "torch's tables of operators, layers and optimizers",
        "wheel",
        (Unit("operators.py", share=2), Unit("modules.py"), Unit("optimizers.py")),
        environment={"PYTHONPATH": "../../tools"},
        options=("--confcutdir=.",),
        seconds=600,
        is_ours=True,
    ),
    Suite(
        "torch-wheel-graph",
        "the same tables, as compiled steps",
        "wheel",
        (Unit("operator_steps.py", share=2), Unit("module_steps.py"), Unit("optimizer_steps.py")),
        environment={"PYTHONPATH": "../../tools"},
        baseline=False,
        options=("--confcutdir=.",),
        seconds=600,
        is_ours=True,
    ),
    Suite(
        "library-steps",
        "training steps of libraries, as compiled steps",
        "steps",
        units("library_steps.py"),
        environment={"PYTHONPATH": "../wheel:../../tools:../../clients"},
        baseline=False,
        options=("--confcutdir=.",),
        seconds=600,
        is_ours=True,
    ),
)
