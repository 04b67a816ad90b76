"""Build the compiled libraries of the package. setup.py calls `command_class`. To build by hand:

    python csrc/build.py [--force] [--sanitize] [--cuda-check]

- oneflow_compat/_ext.so holds the custom operators. It uses torch's stable ABI and no Python headers, so one
  library serves torch 2.11 and later and every Python. CPU kernels are compiled once for each instruction
  set, and the best one is chosen at run time. CUDA kernels need nvcc and a CUDA build of torch.
- oneflow_compat/_graph/guards/_guards.abi3.so tests the guards of graphs, and
  oneflow_compat/_fast_method.abi3.so calls the methods of torch's classes that OneFlow extends. They use
  Python's limited API and nothing of torch.
- oneflow_compat/_runs-torch-VERSION.so calls several operators of a graph without Python. It uses torch's C++
  API, so it serves this release of torch only.

Without a compiler nothing is built, and the package uses plain-torch functions. ONEFLOW_BUILD_EXT=0 skips the
build, `cpu` leaves out the CUDA kernels, and `require` turns a failure into an error. CXX names the compiler,
CUDA_HOME the folder of nvcc. MAX_JOBS limits the number of parallel compilers.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SOURCES = HERE / "csrc"
TARGET = "0x020b000000000000"  # TORCH_TARGET_VERSION: the oldest torch the library runs on, 2.11
CAPABILITIES = {
    "default": ("-DCPU_CAPABILITY=DEFAULT", "-DCPU_CAPABILITY_DEFAULT"),
    "avx2": ("-DCPU_CAPABILITY=AVX2", "-DCPU_CAPABILITY_AVX2", "-mavx2", "-mfma", "-mf16c"),
    "avx512": (
        "-DCPU_CAPABILITY=AVX512",
        "-DCPU_CAPABILITY_AVX512",
        "-mavx512f",
        "-mavx512bw",
        "-mavx512vl",
        "-mavx512dq",
        "-mfma",
        "-mf16c",
    ),
}
GPUS = ("80", "90")
# The symbols of Python and torch come from the process that loads the library. The macOS linker needs a flag
# for that.
LOADED_LATER = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
GUARDS = Path("_graph") / "guards" / "_guards.abi3.so"  # in the package
METHOD = Path("_fast_method.abi3.so")
RUNS = "_runs-torch-{}.so"


def compiler():
    """Return the command of the C++ compiler, or None."""
    command = shlex.split(os.environ.get("CXX") or "c++")
    return command if shutil.which(command[0]) else None


def _units(cuda):
    """Return (source, is CUDA, flags) of every object file, in the order of linking.

    The linker keeps the first copy of an inline function, so objects compiled without instruction-set flags
    come first.
    """
    stable = (f"-DTORCH_TARGET_VERSION={TARGET}",)
    units = [
        (SOURCES / "ops.cpp", False, stable),
        (SOURCES / "cpu" / "register.cpp", False, stable),
        (SOURCES / "cpu" / "updates.cpp", False, stable),
        (SOURCES / "cpu" / "blocks.cpp", False, stable),
        (SOURCES / "cpu" / "recurrent.cpp", False, stable),
        (SOURCES / "cpu" / "detection.cpp", False, stable + ("-O3",)),
        (SOURCES / "cpu" / "sequences.cpp", False, stable + ("-O3",)),
        (SOURCES / "cpu" / "matmul.cpp", False, stable + ("-O3",)),
        (SOURCES / "cpu" / "exact_matmul.cpp", False, stable + ("-O3",)),
        (SOURCES / "cpu" / "convolution.cpp", False, stable + ("-O3",)),
        (SOURCES / "cpu" / "best.cpp", False, ()),
    ]
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    for name, flags in CAPABILITIES.items():  # default first
        if name == "default" or x86:
            units.append((SOURCES / "cpu" / f"kernels_{name}.cpp", False, ("-O3", *flags)))
    if cuda:
        units += [(path, True, stable) for path in sorted((SOURCES / "cuda").glob("*.cu"))]
    return units


def _nvcc():
    home = os.environ.get("CUDA_HOME")
    found = Path(home) / "bin" / "nvcc" if home else shutil.which("nvcc")
    return str(found) if found and Path(found).exists() else None


def _command(source, is_cuda, flags, target, sanitize):
    from torch.utils.cpp_extension import include_paths

    includes = [f"-I{p}" for p in include_paths()]
    if is_cuda:
        gencode = [f"-gencode=arch=compute_{g},code=sm_{g}" for g in GPUS] + [
            f"-gencode=arch=compute_{GPUS[-1]},code=compute_{GPUS[-1]}"
        ]
        return [
            _nvcc(),
            "-std=c++20",
            "-O3",
            "-DUSE_CUDA",
            "--expt-relaxed-constexpr",
            "-Xcompiler=-fPIC,-fvisibility=hidden",
            *gencode,
            *flags,
            *includes,
            "-c",
            str(source),
            "-o",
            str(target),
        ]
    extra = (
        (
            "-O1",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=undefined",
            "-fno-omit-frame-pointer",
            "-g1",
        )
        if sanitize
        else ()
    )
    return [
        *compiler(),
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wno-unknown-pragmas",
        "-DNDEBUG",
        *flags,
        *extra,
        *includes,
        "-c",
        str(source),
        "-o",
        str(target),
    ]


def _run(label, command, steps):
    began = time.time()
    done = subprocess.run(command, capture_output=True, text=True)
    steps.append(label)
    if done.returncode:
        raise RuntimeError(f"{label} failed:\n{' '.join(command)}\n{done.stdout}{done.stderr}")
    print(f"oneflow._ext {len(steps):2d}: {label} {time.time() - began:.1f} s", flush=True)


def _compile(units, folder, sanitize):
    folder.mkdir(parents=True, exist_ok=True)
    headers = max(p.stat().st_mtime for p in SOURCES.rglob("*.h"))
    cuda_headers = max(p.stat().st_mtime for p in SOURCES.rglob("*.cuh"))
    steps, jobs, objects = [], [], []
    for source, is_cuda, flags in units:
        target = folder / (source.name + ".o")
        objects.append(str(target))
        newest = max(
            source.stat().st_mtime, headers, Path(__file__).stat().st_mtime, cuda_headers if is_cuda else 0
        )
        if not target.exists() or target.stat().st_mtime < newest:
            jobs.append(
                (source.relative_to(SOURCES).as_posix(), _command(source, is_cuda, flags, target, sanitize))
            )
    if any(label.endswith(".cu") for label, _ in jobs):
        print(
            f"oneflow._ext: also compiling the CUDA kernels with {_nvcc()}, which takes minutes;"
            " ONEFLOW_BUILD_EXT=cpu leaves them out, ONEFLOW_BUILD_EXT=0 compiles nothing",
            file=sys.stderr,
            flush=True,
        )
    with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", os.cpu_count() or 1))) as pool:
        list(pool.map(lambda job: _run(*job, steps), jobs))
    return objects, steps


def environments_torch():
    """Return torch. In an isolated build of pip, import it from the target environment."""
    try:
        import torch
    except ImportError:
        for folder in site.getsitepackages([sys.prefix, sys.base_prefix]):
            site.addsitedir(folder)
        import torch
    return torch


def _builds_cuda(torch):
    has_cuda = torch.version.cuda is not None and _nvcc() is not None
    return has_cuda and os.environ.get("ONEFLOW_BUILD_EXT") != "cpu"


def build(output: Path, work: Path, force=False, sanitize=False):
    """Compile what is out of date and link the library to `output`. Return True if there is a library."""
    torch = environments_torch()
    if compiler() is None:
        print(
            "oneflow._ext: no C++ compiler (CXX); the package will use its plain-torch functions",
            file=sys.stderr,
        )
        return False
    if force:
        shutil.rmtree(work, ignore_errors=True)
    cuda = _builds_cuda(torch)
    objects, steps = _compile(_units(cuda), work, sanitize)
    if steps or not output.exists():
        _link(objects, output, cuda, sanitize, steps)
    return True


def _link(objects, output, cuda, sanitize, steps):
    from torch.utils.cpp_extension import library_paths

    link = [
        *compiler(),
        "-shared",
        *objects,
        "-o",
        str(output),
        *(f"-L{p}" for p in library_paths(device_type="cuda" if cuda else "cpu")),
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        *LOADED_LATER,
    ]
    link += (
        ["-ltorch_cuda"] if cuda else []
    )  # which needs, and so finds, the CUDA runtime that torch was built with
    link += ["-fsanitize=address,undefined"] if sanitize else []
    _run("link " + output.name, link, steps)


def build_guards(output: Path):
    """Compile the guard test of nn.Graph. Return False if there is no compiler or no Python.h."""
    headers = (SOURCES / "guards").iterdir()
    return _build_of_python(
        output, SOURCES / "guards.cpp", headers, "guards", "graphs test their guards in Python, slower"
    )


def build_method(output: Path):
    """Compile the methods of torch's classes. Return False if there is no compiler or no Python.h."""
    return _build_of_python(
        output,
        SOURCES / "method.cpp",
        (),
        "method",
        "extended methods of tensors are called in Python, slower",
    )


def build_runs(package: Path):
    """Compile the caller of operators for the present torch. Return False if there is no compiler."""
    torch = environments_torch()
    if compiler() is None:
        print("oneflow runs: no C++ compiler; graphs call each operator from Python, slower", file=sys.stderr)
        return False
    source, output = SOURCES / "runs.cpp", package / RUNS.format(torch.__version__)
    for other in package.glob(RUNS.format("*")):
        if other != output:
            other.unlink()
    if not output.exists() or output.stat().st_mtime < source.stat().st_mtime:
        from torch.utils.cpp_extension import include_paths, library_paths

        flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", *LOADED_LATER]
        flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
        flags += [f"-I{path}" for path in include_paths()]
        libraries = [*(f"-L{path}" for path in library_paths()), "-ltorch", "-ltorch_cpu", "-lc10"]
        _run(output.name, [*compiler(), *flags, str(source), "-o", str(output), *libraries], [])
    return True


def _build_of_python(output: Path, source: Path, included, label, fallback):
    """Compile a library that uses Python's limited API and nothing of torch."""
    headers = Path(sysconfig.get_paths()["include"])
    if compiler() is None or not (headers / "Python.h").exists():
        print(f"oneflow {label}: no C++ compiler or no Python.h; {fallback}", file=sys.stderr)
        return False
    changed = max(file.stat().st_mtime for file in (source, *included))
    if not output.exists() or output.stat().st_mtime < changed:
        flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", *LOADED_LATER]
        _run(output.name, [*compiler(), *flags, f"-I{headers}", str(source), "-o", str(output)], [])
    return True


def cuda_check(folder: Path):
    """Compile the CUDA sources with nvcc, for a machine that has it but no GPU."""
    if _nvcc() is None:
        raise SystemExit("nvcc not found: set CUDA_HOME or PATH")
    _compile([u for u in _units(True) if u[1]], folder, False)


def build_or_warn(library, fallback, function, *arguments):
    """Build one library. Warn if the build fails, because the package works without it; raise with
    ONEFLOW_BUILD_EXT=require.
    """
    try:
        function(*arguments)
    except Exception as error:
        if os.environ.get("ONEFLOW_BUILD_EXT") == "require":
            raise
        remedy = "; install torch before this package" if isinstance(error, ImportError) else ""
        print(f"{library} was not built, {fallback}: {error}{remedy}", file=sys.stderr)


def command_class():
    """Return a setuptools `build_ext` that builds the libraries."""
    from setuptools.command.build_ext import build_ext

    class BuildExtension(build_ext):
        def run(self):
            if os.environ.get("ONEFLOW_BUILD_EXT", "1") == "0":
                return
            package = HERE / "oneflow_compat" if self.inplace else Path(self.build_lib) / "oneflow"
            (package / GUARDS.parent).mkdir(parents=True, exist_ok=True)
            build_or_warn(
                "oneflow guards", "graphs test their guards in Python", build_guards, package / GUARDS
            )
            build_or_warn(
                "oneflow method",
                "extended methods of tensors are called in Python",
                build_method,
                package / METHOD,
            )
            build_or_warn(
                "oneflow runs", "graphs call each operator from Python, slower", build_runs, package
            )
            build_or_warn(
                "oneflow._ext",
                "the package uses plain-torch functions",
                build,
                package / "_ext.so",
                Path(self.build_temp),
            )

        def get_source_files(self):
            return [str(p.relative_to(HERE)) for p in SOURCES.rglob("*") if p.is_file()]

        def get_outputs(self):
            return []

    return BuildExtension


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--force", action="store_true", help="compile every file again")
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="with address and undefined-behaviour sanitizers, as build/_ext_sanitized.so",
    )
    parser.add_argument(
        "--cuda-check", action="store_true", help="only compile the CUDA sources, where nvcc is"
    )
    args = parser.parse_args()
    if args.cuda_check:
        return cuda_check(HERE / "build" / "cuda_check")
    target = HERE / "build" / "_ext_sanitized.so" if args.sanitize else HERE / "oneflow_compat" / "_ext.so"
    target.parent.mkdir(exist_ok=True)
    if not args.sanitize:
        build_guards(HERE / "oneflow_compat" / GUARDS)
        build_method(HERE / "oneflow_compat" / METHOD)
        build_runs(HERE / "oneflow_compat")
    return (
        0
        if build(
            target, HERE / "build" / ("sanitized" if args.sanitize else "ext"), args.force, args.sanitize
        )
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
