"""The differences of one cell: what is recorded of a known one, and whether another one is the same.

A known difference names the samples that differ. Of each it holds the text of the difference, with the number
of elements and the largest distance, and a summary of the candidate's result.
"""

from __future__ import annotations

import math
import re
from typing import Any

Difference = dict[str, str]  # "sample", "text", "result"
Differences = list[Difference]
KnownDifferences = dict[str, dict[str, Differences]]  # name -> column -> its differences

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?![\w.])")
RELATIVE = 1e-2  # kernels of another machine round otherwise; the distances of a known difference may follow
ABSOLUTE = 1e-6
SHOWN = 240  # characters of a text


def difference(sample: str, detail: str, result: object) -> Difference:
    """Return what is recorded of one sample that differs."""
    text = " ".join(line.strip() for line in detail.splitlines()[:2])
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return {"sample": sample, "text": text[:SHOWN], "result": summary(result)[:SHOWN]}


def summary(x: Any) -> str:
    """Return the kind of a result and weighted means of its sizes, which differ if a value does."""
    import torch

    if isinstance(x, torch.Tensor):
        return _tensor_summary(x)
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k}: {summary(v)}" for k, v in x.items()) + "}"
    if isinstance(x, (tuple, list)):
        return "[" + ", ".join(summary(e) for e in x) + "]"
    if isinstance(x, Exception):
        return type(x).__name__
    return repr(x) if isinstance(x, (bool, int, float, complex, str, type(None))) else type(x).__name__


def _tensor_summary(t: Any) -> str:
    import torch

    t = t.detach().cpu()
    form = f"{str(t.dtype).rpartition('.')[2]} {tuple(t.shape)}"
    if t.is_meta or not t.numel():
        return form
    dense = t.to_dense() if t.layout != torch.strided else t
    wide = torch.view_as_real(dense.to(torch.complex128)) if dense.is_complex() else dense.double()
    values = wide.resolve_neg().flatten()
    finite = torch.isfinite(values)
    weights = 1 + torch.arange(len(values), dtype=torch.float64) % 7 / 7
    sizes = torch.where(finite, values, 0).abs() * weights
    # The two means sum up numbers of one sign, so that no rounding is magnified.
    means = sizes.mean().item(), torch.where(values > 0, sizes, 0).mean().item()
    special = "" if finite.all() else f", {int((~finite).sum())} not finite"
    return f"{form}, means {means[0]:.6g} and {means[1]:.6g}{special}"


def is_same(a: Differences, b: Differences) -> bool:
    """Whether two lists name the same samples, with the same texts and results up to rounding."""
    return len(a) == len(b) and all(
        x["sample"] == y["sample"] and same_text(x["text"], y["text"]) and same_text(x["result"], y["result"])
        for x, y in zip(a, b)
    )


def same_text(a: str, b: str) -> bool:
    """Whether two texts are equal, up to the last digits of the numbers in them."""
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    return all(map(_is_close, NUMBER.findall(a), NUMBER.findall(b)))


def _is_close(a: str, b: str) -> bool:
    """Whether two numbers are equal, floats up to rounding."""
    if a.isdigit() and b.isdigit():
        return a == b
    return math.isclose(float(a), float(b), rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def changes(known: Differences | None, now: Differences, explanation: str) -> str:
    """Return how the differences of a cell are other ones than the known ones of `explanation`, in a line."""
    if known is None:
        return f"differs, and no known difference of this cell is recorded ({explanation})"
    before, after = ({d["sample"]: d for d in side} for side in (known, now))
    lines = [f"{sample or 'the case'} differs, too" for sample in after if sample not in before]
    lines += [f"{sample or 'the case'} no longer differs" for sample in before if sample not in after]
    for sample, d in after.items():
        was = before.get(sample)
        if was is not None and not is_same([was], [d]):
            key = "result" if same_text(was["text"], d["text"]) else "text"
            lines.append(f"{sample or 'the case'}: the {key} was {was[key]!r}, is {d[key]!r}")
    return f"differs in another way than {explanation}: {'; '.join(lines[:3])}"
