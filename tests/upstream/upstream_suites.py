"""The test suites that `make upstream` knows, and where their files are in the folder of checkouts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A file or folder of tests that runs in one process. `sample` is the fraction of its tests that run."""

    path: str
    sample: float = 1.0


@dataclass(frozen=True)
class Suite:
    """The tests of one project at one version.

    `folder` is the checkout in SOURCES, `root` the folder in it where pytest runs. `device` replaces the device
    that the files of torch's own tests name, `adapter` the table of helper names that they need. `baseline` is False for tests that plain torch cannot run.
    """

    name: str
    title: str
    folder: str
    units: tuple[Unit, ...]
    root: str = "."
    device: str = ""
    adapter: str = ""
    options: tuple[str, ...] = ()
    seconds: int = 60
    baseline: bool = True


def units(paths: str, sample: float = 1.0) -> tuple[Unit, ...]:
    """Return units of one sample size: `paths` are separated by spaces."""
    return tuple(Unit(path, sample) for path in paths.split())


SUITES: tuple[Suite, ...] = (
    Suite(
        "torch-2.13",
        "PyTorch 2.13 (copies in intel/torch-xpu-ops, release/2.13)",
        "torch-xpu-ops",
        units("test_torch_xpu.py test_nn_xpu.py test_tensor_creation_ops_xpu.py test_testing_xpu.py"),
        root="test/xpu",
        device="cpu",
    ),
    Suite(
        "torch-2023-04",
        "PyTorch of April 2023",
        "pytorch-2023",
        units("test_autograd.py test_optim.py test_indexing.py test_view_ops.py test_type_promotion.py"),
        root="test",
        device="cpu",
        adapter="torch-2023",
        options=("--noconftest",),
    ),
)
