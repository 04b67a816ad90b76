"""Which tensors of one memory share elements, against the bytes that they lie in."""

import random

import pytest
import torch

from oneflow._graph.program.memory import overlapping


def bytes_of(tensor):
    """The positions of all bytes of a tensor in its storage."""
    size = tensor.element_size()
    base = torch.arange(tensor.untyped_storage().nbytes() // size)
    elements = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return {e * size + k for e in elements.flatten().tolist() for k in range(size)}


def a_view(base, source):
    dims = source.randint(0, 3)
    shape = [source.choice((0, 1, 1, 2, 3, 4)) for _ in range(dims)]
    stride = [source.choice((0, 1, 1, 2, 3, 4, 7, 14)) for _ in range(dims)]
    return base.as_strided(shape, stride, source.randint(0, 30))


@pytest.mark.parametrize("other_dtype", [torch.float32, torch.float64, torch.int16])
def test_tensors_that_share_bytes_overlap(other_dtype):
    source, base = random.Random(0), torch.zeros(240)
    other, shared, separate, found_apart = base.view(other_dtype), 0, 0, 0
    for _ in range(3000):
        a, b = a_view(base, source), a_view(other, source)
        found = overlapping([a, b])
        if bytes_of(a) & bytes_of(b):
            shared += 1
            assert found == {0, 1}, (a.shape, a.stride(), a.storage_offset(), b.shape, b.stride())
        else:
            separate += 1
            found_apart += not found
    assert shared > 100 and found_apart > 0.9 * separate


MATRIX, BATCH = torch.zeros(7, 14), torch.zeros(4, 6, 5)
APART = {
    "rows": (MATRIX[:2], MATRIX[2:]),
    "columns": (MATRIX[:, :7], MATRIX[:, 7:]),
    "columns of another row": (MATRIX[:, :7], MATRIX[3:4, 8:]),
    "even and odd": (MATRIX[:, ::2], MATRIX[:, 1::2]),
    "parts of a batch": (BATCH[:, :2], BATCH[:, 2:]),
    "nothing": (MATRIX, MATRIX[:0]),
}


@pytest.mark.parametrize("tensors", APART.values(), ids=APART)
def test_parts_without_a_common_element_are_apart(tensors):
    assert overlapping(tensors) == set()


def test_the_positions_of_the_overlapping_tensors_are_returned():
    assert overlapping([MATRIX[:2], MATRIX[4:], MATRIX[5], MATRIX[:, 20:]]) == {1, 2}


def test_a_row_lies_in_its_matrix_with_gaps():
    x = MATRIX[:, :7]
    assert overlapping([x, x[6:7]]) == {0, 1}
