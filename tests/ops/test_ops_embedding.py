"""one_embedding's operators on a store, which is selected by the name of its embedding."""

import pytest
import torch

import oneflow as flow
from oneflow import one_embedding as oe

C = flow._C


def embedding_in(path, name="ops", tables=(1.0, 2.0)):
    options = oe.make_device_mem_store_options(str(path), 100, size_factor=2)
    return oe.MultiTableEmbedding(
        name,
        3,
        flow.float,
        flow.int64,
        [oe.make_table_options(oe.make_constant_initializer(v)) for v in tables],
        options,
    )


def test_lookup_and_put(tmp_path):
    e = embedding_in(tmp_path)
    ids, tables, count = (
        torch.tensor([7, 8, 9, 0]),
        torch.tensor([0, 1, 1, 0], dtype=torch.uint8),
        torch.tensor([3], dtype=torch.int32),
    )
    rows, embeddings = C.one_embedding_lookup(
        count, ids, tables, flow.float32, flow.bfloat16, 6, 3, "ops", "", ""
    )
    assert (
        embeddings.dtype == flow.bfloat16
        and embeddings[:, 0].tolist() == [1, 2, 2, 0]
        and rows.shape == (4, 6)
    )
    C.one_embedding_embedding_put(count, ids, rows + 5, "ops", 6)
    again, _ = C.one_embedding_lookup(count, ids, tables, flow.float32, flow.float32, 6, 3, "ops", "", "")
    assert torch.equal(again[:3], rows[:3] + 5) and not again[3].any()
    assert torch.equal(e(torch.tensor([[7, 8]])), again[None, :2, :3])
    empty, _ = C.one_embedding_lookup(
        torch.tensor([0]), ids[:0], tables[:0], flow.float32, flow.float32, 6, 3, "ops", "", ""
    )
    assert empty.shape == (0, 6)


@pytest.mark.parametrize("how", ["autograd", "by hand"])
def test_fused_lookup_trains_the_rows(tmp_path, how):
    e = embedding_in(tmp_path, how, (1.0,))
    optimizer = oe.Optimizer(flow.optim.SGD(e.parameters(), lr=0.5), [e])
    ids = torch.tensor([[4, 5], [4, 6]])
    actual = C.one_embedding_fused_lookup(e.shadow, ids, None, flow.float32, how, 6, 3, False, 1, "")
    assert torch.equal(actual, torch.ones(2, 2, 3))
    if how == "autograd":
        actual.sum().backward()
    else:
        C.one_embedding_fused_lookup_grad(ids, torch.ones(2, 2, 3), how, 6, 3)
    optimizer.step()
    assert C.one_embedding_fused_lookup(e.shadow, ids, None, flow.float32, how, 6, 3, False, 1, "")[
        ..., 0
    ].tolist() == [[0, 0.5], [0, 0.5]]


def test_errors_name_the_value_found(tmp_path):
    e = embedding_in(tmp_path)
    ids = torch.tensor([1, 2])
    with pytest.raises(RuntimeError, match="no one_embedding is called 'other', found .*'ops'"):
        C.one_embedding_fused_lookup(e.shadow, ids, None, flow.float32, "other", 6, 3, False, 1, "")
    with pytest.raises(
        RuntimeError, match="rows of 6 numbers, 3 of them the embedding; found line_size 5, embedding_size 3"
    ):
        C.one_embedding_lookup(torch.tensor([2]), ids, None, flow.float32, flow.float32, 5, 3, "ops", "", "")
    with pytest.raises(RuntimeError, match="from 0 to the 2 ids given, found 3"):
        C.one_embedding_lookup(torch.tensor([3]), ids, None, flow.float32, flow.float32, 6, 3, "ops", "", "")
    with pytest.raises(RuntimeError, match=r"2 rows of 6 numbers are needed, found \(2, 5\)"):
        C.one_embedding_embedding_put(torch.tensor([2]), ids, torch.ones(2, 5), "ops", 6)
    with pytest.raises(RuntimeError, match=r"ids \(2,\) need gradients of 3 numbers each, found \(2, 4\)"):
        C.one_embedding_fused_lookup_grad(ids, torch.ones(2, 4), "ops", 6, 3)
