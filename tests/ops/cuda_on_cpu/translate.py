"""Build build/_ext_cuda_on_cpu.so: the library of custom operators, with the kernels of csrc/cuda in place of
the CPU kernels. The emulation of cuda_runtime.h runs them. tests/ops/test_cuda_on_cpu.py runs the operator
tests on it. Operators without a kernel in csrc/cuda keep their CPU kernels.

    python tests/ops/cuda_on_cpu/translate.py [--sanitize]
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import build as ext


def _closing(text, at, pair):
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if not depth:
            return i
    raise ValueError(f"no {pair[1]} for {text[at : at + 60]!r}")


def _kernel_name(text, end):
    """Where the kernel's name, with its template arguments, begins that ends before `end`."""
    at, depth, brackets = end, 0, 0
    while depth or at == end and text[at - 1] == ">":
        at -= 1
        brackets += (text[at] == ")") - (text[at] == "(")
        if not brackets:  # a > b in brackets is a comparison
            depth += (text[at] == ">") - (text[at] == "<")
    return at - len(re.search(r"\w+$", text[:at]).group())


def translate(text):
    """CUDA source as C++: launches become calls of emulated::launch, registrations go to the CPU's dispatch
    key.
    """
    while "<<<" in text:
        opening = text.index("<<<")
        start, close = _kernel_name(text, opening), text.index(">>>", opening)
        arguments = close + 3
        if text[arguments] != "(":
            raise ValueError(f"a launch without arguments: {text[start : arguments + 20]!r}")
        end = _closing(text, arguments, "()")
        parts = [
            text[opening + 3 : close],
            f"[](auto... a) {{ {text[start:opening]}(a...); }}",
            text[arguments + 1 : end],
        ]
        call = f"emulated::launch({', '.join(p for p in parts if p)})"
        text = text[:start] + call + text[end + 1 :]
    return text.replace("(oneflow, CUDA, m)", "(oneflow, CPU, m)")


def main(sanitize):
    name = "cuda_on_cpu_sanitized" if sanitize else "cuda_on_cpu"
    folder, output = ROOT / "build" / name, ROOT / "build" / f"_ext_{name}.so"
    objects, steps = ext._compile(ext._units(False), folder, sanitize)
    flags = (
        f"-DTORCH_TARGET_VERSION={ext.TARGET}",
        f"-I{HERE}",
        f"-I{ext.SOURCES / 'cuda'}",
        "-Werror=unused-result",
    )
    headers = max(
        p.stat().st_mtime for p in (*HERE.glob("*.*"), *ext.SOURCES.rglob("*.h"), *ext.SOURCES.rglob("*.cuh"))
    )
    for source in sorted((ext.SOURCES / "cuda").glob("*.cu")):
        target = folder / f"{source.stem}.cu.o"
        objects.append(str(target))  # after the CPU's: of two registrations the later holds
        if not target.exists() or target.stat().st_mtime < max(headers, source.stat().st_mtime):
            translated = folder / f"{source.stem}.cu.cpp"
            translated.write_text(
                f'#include "torch_devices.h"\n#line 1 "{source}"\n' + translate(source.read_text())
            )
            ext._run(
                f"cuda/{source.name} as C++", ext._command(translated, False, flags, target, sanitize), steps
            )
    if steps or not output.exists():
        ext._link(objects, output, False, sanitize, steps)


if __name__ == "__main__":
    main("--sanitize" in sys.argv)
