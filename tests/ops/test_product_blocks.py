"""oneflow::exact_product: products with ATen's bits, in blocks where these are faster."""

import contextlib
import os
import subprocess
import sys

import pytest
import torch

from oneflow._kernels import _ext


def unavailable():
    if _ext.status() != "loaded":
        return "needs the kernel library (csrc/build.py)"
    if not torch.ops.oneflow.product_blocks(None, torch.ones(64, 500), torch.ones(500, 64))[0]:
        return "no rule of blocks fits torch's products on this processor"
    return ""


pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())
ops = torch.ops.oneflow
DEPTHS = [1, 63, 64, 192, 193, 383, 384, 1000]


def have_equal_bits(a, b):
    return bool(((a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())).all())


def of_aten(addend, a, b):
    if addend is None:
        return torch.bmm(a, b) if a.dim() == 3 else torch.mm(a, b)
    return torch.baddbmm(addend, a, b) if a.dim() == 3 else torch.addmm(addend, a, b)


def in_blocks(addend, a, b):
    """The product in the blocks that fit, even if ATen is faster; and exact_product's."""
    depth, _ = ops.product_blocks(addend, a, b)
    result = ops.product_in_blocks(addend, a, b, depth) if depth else None
    return result, ops.exact_product(addend, a, b)


def is_exact(addend, a, b):
    """Whether exact_product has ATen's bits, and the blocks have them, if any do."""
    expected = of_aten(addend, a, b)
    blocks, result = in_blocks(addend, a, b)
    return have_equal_bits(result, expected) and (blocks is None or have_equal_bits(blocks, expected))


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def layouts(rows, columns):
    """A matrix by rows, by columns, with gaps, at other addresses, and with gaps in its rows."""
    yield torch.randn(rows, columns)
    yield torch.randn(columns, rows).t()
    yield torch.randn(rows, columns + 3)[:, :columns]
    yield torch.randn(columns, rows + 5)[:, 5:].t()
    yield torch.randn(rows, 2 * columns)[:, ::2]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("count", [1, 2])
def test_layouts_bit_for_bit(depth, count):
    torch.manual_seed(depth)
    with threads(count):
        for a in layouts(70, depth):
            for b in layouts(depth, 300):
                assert is_exact(None, a, b)
                assert is_exact(torch.randn(300), a, b)


FEW = [(1, 300), (2, 300), (3, 64), (300, 1), (300, 4), (64, 15), (17, 16), (4, 4)]


@pytest.mark.parametrize("m, n", FEW)
def test_few_rows_and_columns_bit_for_bit(m, n):
    for depth in DEPTHS:
        a, b = torch.randn(m, depth), torch.randn(depth, n)
        assert is_exact(None, a, b)
        assert is_exact(torch.randn(n), a, b)
        assert is_exact(None, b.t(), a.t())


ADDENDS = {
    "row": lambda: torch.randn(300),
    "one row": lambda: torch.randn(1, 300),
    "column": lambda: torch.randn(70, 1),
    "number": lambda: torch.randn(()),
    "matrix": lambda: torch.randn(70, 300),
    "matrix by columns": lambda: torch.randn(300, 70).t(),
}


@pytest.mark.parametrize("name", ADDENDS)
def test_addends_bit_for_bit(name):
    for depth in (64, 300, 500):
        assert is_exact(ADDENDS[name](), torch.randn(70, depth), torch.randn(depth, 300))
        assert is_exact(ADDENDS[name](), torch.randn(70, depth), torch.randn(300, depth).t())


@pytest.mark.parametrize("count", [1, 2])
def test_batches_bit_for_bit(count):
    a, b = torch.randn(5, 40, 70), torch.randn(5, 70, 33)
    heads = torch.randn(40, 5, 70).transpose(0, 1)
    with threads(count):
        for x in (a, heads, torch.randn(5, 70, 40).mT, torch.randn(1, 40, 70).expand(5, 40, 70)):
            for y in (b, torch.randn(5, 33, 70).mT, torch.randn(10, 70, 33)[::2]):
                assert is_exact(None, x, y)
                assert is_exact(torch.randn(5, 40, 33), x, y)
                assert is_exact(torch.randn(33), x, y)


def special_operands(depth):
    """Operands with signed zeros, infinities, NaN, denormal values, underflow and overflow."""
    torch.manual_seed(depth)
    a, b, addend = torch.randn(64, depth), torch.randn(depth, 96), torch.randn(96)
    a[::5] *= 1e-22
    b[:, ::3] *= 1e-22
    a[1::7] = torch.copysign(torch.zeros(()), a[1::7])
    a[2::9] *= 1e-40
    b[:, 4::8] *= 1e25
    a[6::10] *= 1e25
    a[8, 0], a[18, depth - 1], b[depth // 2, 10], b[0, 11] = torch.nan, torch.inf, -torch.inf, torch.nan
    addend[::4], addend[1::16], addend[5], addend[7] = -0.0, 1e-41, torch.inf, torch.nan
    return addend, a, b


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_special_values_bit_for_bit(depth, is_flushed, count):
    addend, a, b = special_operands(depth)
    torch.set_flush_denormal(is_flushed)
    try:
        with threads(count):
            assert is_exact(None, a, b)
            assert is_exact(addend, a, b)
            assert is_exact(addend, a, b.t().contiguous().t())
    finally:
        torch.set_flush_denormal(False)


def test_negative_zero_of_an_underflowing_sum():
    """MKL adds the sum of a block to +0."""
    a, b = torch.full((64, 64), 1e-30), torch.full((64, 64), -1e-30)
    depth, _ = ops.product_blocks(None, a, b)
    assert not torch.mm(a, b).signbit().any()
    assert not ops.product_in_blocks(None, a, b, depth).signbit().any()


@pytest.mark.parametrize("m, k, n", [(0, 3, 40), (3, 0, 40), (40, 300, 0), (0, 0, 0)])
def test_no_elements(m, k, n):
    a, b = torch.randn(m, k), torch.randn(k, n)
    assert torch.equal(ops.exact_product(None, a, b), torch.mm(a, b))
    assert torch.equal(ops.exact_product(torch.ones(n), a, b), torch.addmm(torch.ones(n), a, b))
    assert ops.product_blocks(None, a, b) == [0, 0]


def test_blocks_of_large_products_are_used():
    """A small product is left to ATen without a trial."""
    assert ops.product_blocks(None, torch.randn(256, 1000), torch.randn(1000, 256))[0] > 0
    assert ops.product_blocks(None, torch.randn(4, 4), torch.randn(4, 4)) == [0, 0]


def test_other_blocks_have_other_bits():
    """The comparison can fail: blocks of another size change most elements."""
    a, b = torch.randn(64, 500), torch.randn(500, 64)
    depth, _ = ops.product_blocks(None, a, b)
    assert not have_equal_bits(ops.product_in_blocks(None, a, b, depth - 8), torch.mm(a, b))


@pytest.mark.parametrize("candidates", [[100], [-100, 77], [-1]])
def test_wrong_rule_of_blocks_falls_back_to_aten(candidates):
    a, b = torch.randn(64, 500), torch.randn(500, 64)
    try:
        ops.product_rules(torch.ones(1), candidates)
        assert ops.product_blocks(None, a, b) == [0, 0]
        assert have_equal_bits(ops.exact_product(None, a, b), torch.mm(a, b))
    finally:
        ops.product_rules(torch.ones(1), [])
    assert ops.product_blocks(None, a, b)[0] > 0


def test_the_rule_that_fits_is_chosen_among_wrong_ones():
    a, b = torch.randn(64, 1000), torch.randn(1000, 64)
    depth, _ = ops.product_blocks(None, a, b)
    try:
        ops.product_rules(torch.ones(1), [100, depth, -depth, 50])
        assert ops.product_blocks(None, a, b)[0] == depth
    finally:
        ops.product_rules(torch.ones(1), [])


CHILD = """
import torch
from oneflow._kernels import _ext
_ext.status()
for depth in (64, 300, 500):
    a, b, c = torch.randn(64, depth), torch.randn(depth, 64), torch.randn(64)
    assert torch.equal(torch.ops.oneflow.exact_product(None, a, b), a @ b)
    assert torch.equal(torch.ops.oneflow.exact_product(c, a, b), torch.addmm(c, a, b))
"""


@pytest.mark.parametrize("variable", ["MKL_CBWR=COMPATIBLE", "MKL_CBWR=AVX2", "ATEN_CPU_CAPABILITY=avx2"])
def test_other_kernels_of_mkl(variable):
    """MKL reads MKL_CBWR once in a process. Its other kernels have other orders of summation."""
    name, value = variable.split("=")
    subprocess.run([sys.executable, "-c", CHILD], env={**os.environ, name: value}, check=True, timeout=120)


@pytest.mark.parametrize(
    "addend, a, b, message",
    [
        (None, torch.ones(2, 3), torch.ones(4, 2), r"b must have shape \(3, any\), found \(4, 2\)"),
        (None, torch.ones(3), torch.ones(3, 2), "a must have 2 dimensions, found 1"),
        (None, torch.ones(2, 3).double(), torch.ones(3, 2).double(), "a must have dtype float32"),
        (None, torch.ones(2, 3), torch.ones(3, 2).double(), "b must have"),
        (torch.ones(5), torch.ones(2, 3), torch.ones(3, 2), r"addend must expand to \(2, 2\), found \(5\)"),
        (torch.ones(2).double(), torch.ones(2, 3), torch.ones(3, 2), "addend must have"),
        (None, torch.ones(2, 2, 3), torch.ones(3, 3, 2), r"b must have shape \(2, 3, any\)"),
    ],
)
def test_misuse(addend, a, b, message):
    for function in (ops.exact_product, ops.product_blocks):
        with pytest.raises(RuntimeError, match=message):
            function(addend, a, b)


def test_blocks_of_no_depth_are_refused():
    with pytest.raises(RuntimeError, match="depth must be positive"):
        ops.product_in_blocks(None, torch.ones(32, 32), torch.ones(32, 32), 0)
