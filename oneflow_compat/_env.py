"""Every environment variable the package reads, in one place (table in docs/environment.md).

Values are read on use, never at import, and nothing is ever written.
"""

from __future__ import annotations

import os

# name: (default, meaning)
VARIABLES = {
    "ONEFLOW_EXT": ("1", "0: do not load the library of custom kernels, run plain torch"),
    "ONEFLOW_EXT_PATH": ("", "path of another library of custom kernels, such as a sanitizer build"),
    "ONEFLOW_DIALECT": (
        "oneflow",
        "whose behavior is used if OneFlow and torch disagree: oneflow, torch or oneflow-0.9",
    ),
    "ONEFLOW_DISABLE_MOCK_TORCH": ("", "1: oneflow.mock_torch.enable() redirects nothing"),
    "ONEFLOW_GRAPH_BACKEND": (
        "",
        "default backend of nn.Graph: aten, inductor, auto, ...; empty: auto with a C++ compiler, else aten",
    ),
    "ONEFLOW_GRAPH_BLOCKS": (
        "",
        (
            "kernels for float32 products and convolutions of inductor's programs on the CPU: 1: oneDNN's"
            " block kernels, 0: torch's; empty: the faster ones (oneDNN's on AVX-512 processors of other"
            " vendors than Intel)"
        ),
    ),
    "ONEFLOW_GRAPH_KEEP_MEMORY": (
        "1",
        (
            "0: memory freed by a large program on the CPU goes back to the system in each call, as in eager"
            " mode"
        ),
    ),
    "CXX": ("", "C++ compiler of inductor; empty: the first installed of g++, clang++ and c++"),
    "ATEN_CPU_CAPABILITY": (
        "",
        "default, avx2 or avx512: instruction set of torch's kernels and ours; empty: the processor's widest",
    ),
    "GLIBC_TUNABLES": (
        "",
        (
            "if this variable or `MALLOC_..._THRESHOLD_` configures malloc, ONEFLOW_GRAPH_KEEP_MEMORY has"
            " no effect"
        ),
    ),
    "ONEFLOW_CACHE_DIR": (
        "",
        (
            "folder of compiled programs, which only the user may write; empty: oneflow/programs in"
            " XDG_CACHE_HOME"
        ),
    ),
    "ONEFLOW_CACHE_SIZE": (
        "1024",
        "largest size of that folder in MiB; the least recently used programs are removed; 0: keep none",
    ),
    "ONEFLOW_QUIET": ("", "1: no lines on stderr when a graph is compiled, no progress bar of downloads"),
    "ONEFLOW_LOGS": (
        "",
        (
            "recompiles: a line on stderr with the reason for each program after a graph's first one;"
            " tracebacks: errors in build() keep the frames of the engine; separated by commas"
        ),
    ),
    "ONEFLOW_DEBUG_MODE": (
        "",
        "1: each training graph writes its learning rates to log/HOST/PID-train_step2lr.csv",
    ),
    "ONEFLOW_CPU_FOR_CUDA": (
        "",
        "1: without a CUDA device, what names one runs on the CPU, with one warning",
    ),
    "ONEFLOW_LEGACY_CPU": ("", "the same for job functions only"),
    "RANK": ("0", "number of this process, set by the launcher"),
    "LOCAL_RANK": ("0", "number of this process on its node, set by the launcher"),
    "WORLD_SIZE": ("1", "number of processes, set by the launcher"),
    "LOCAL_WORLD_SIZE": ("", "number of processes on this node, set by the launcher"),
    "MASTER_ADDR": ("", "address of the process that the others connect to, set by the launcher"),
    "MASTER_PORT": ("", "port of that process, set by the launcher"),
    "ONEFLOW_TIMEOUT_SECONDS": (
        "",
        (
            "how long a rank waits for the others in a collective call; empty: torch's timeout, 30 minutes"
            " on the CPU"
        ),
    ),
    "ONEFLOW_CHECK_COLLECTIVES": (
        "1",
        "0: ranks do not compare their arguments before a collective call sends data",
    ),
    "ONEFLOW_HOME": ("", "folder of oneflow.hub's downloads; empty: oneflow in XDG_CACHE_HOME"),
    "XDG_CACHE_HOME": ("", "the user's cache folder; empty: ~/.cache"),
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": (
        "",
        "1: oneflow.load without weights_only loads any class, as torch.load does; only for files you trust",
    ),
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD": (
        "",
        "1: every oneflow.load uses weights_only=True, like torch.load",
    ),
    "ONEFLOW_TEST_DEVICE_NUM": ("1", "devices a test may use, read by oneflow.unittest"),
    "ONEFLOW_TEST_CPU_ONLY": ("", "tests run on the CPU only, read by oneflow.unittest"),
    "ONEFLOW_TEST_NODE_NUM": ("", "nodes a test may use, read by oneflow.unittest"),
    "ONEFLOW_TEST_NODE_LIST": (
        "",
        (
            "addresses of the nodes, separated by commas; their number is used if ONEFLOW_TEST_NODE_NUM is"
            " not set"
        ),
    ),
    "ONEFLOW_TEST_ENABLE_EAGER": ("", "1: oneflow.unittest.env.eager_execution_enabled() is true"),
    "ONEFLOW_TEST_ENABLE_TYPING_CHECK": ("", "1: oneflow.unittest.env.typing_check_enabled() is true"),
    "ONEFLOW_TEST_DATASET_DIR": (
        "/dataset",
        "folder of the data sets that oneflow.unittest.dataset_dir() names",
    ),
}


def get(name: str) -> str:
    """Return the value of a variable listed in VARIABLES, or its default."""
    return os.environ.get(name, VARIABLES[name][0])


def is_given(name: str) -> bool:
    """Whether the environment has this variable of VARIABLES, even an empty one."""
    return name in os.environ


def get_int(name: str) -> int:
    value = get(name)
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"environment variable {name} must be a whole number, found {value!r}") from None


def is_set(name: str) -> bool:
    """True for any value but the empty one, "0", "false", "off" and "no"."""
    return get(name).lower() not in ("", "0", "false", "off", "no")
