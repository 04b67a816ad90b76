"""layers.categorical_ordinal_encoder: codes, the table in its variable, and what a call costs."""

import time

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow.compatible.single_client as flow


def encoder(ids, capacity, name="CategoricalOrdinalEncoder", job="job"):
    return job_of(
        lambda b: flow.layers.categorical_ordinal_encoder(b, capacity=capacity, name=name), [ids], name=job
    )


def variable(suffix):
    return next(blob.numpy() for name, blob in flow.get_all_variables().items() if name.endswith(suffix))


def encoded_by_oneflow(table, size, ids):
    """OneFlow's algorithm, one id after the other: linear probing from `id mod capacity`, id as size_t."""
    capacity, codes = len(table) // 2, []
    for value in ids.reshape(-1).tolist():
        row = value % 2**64 % capacity
        while value and table[2 * row] not in (0, value):
            row = (row + 1) % capacity
        if value and table[2 * row] == 0:
            size[0] += 1
            table[2 * row : 2 * row + 2] = value, size[0]
        codes.append(table[2 * row + 1] if value else 0)
    return np.array(codes).reshape(ids.shape)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("largest", [40, 2**31 - 1])
def test_codes_and_table_equal_those_of_linear_probing(dtype, largest):
    rng = np.random.default_rng(largest)
    job = encoder(np.zeros((4, 8), dtype), capacity=97)
    table, size = np.zeros(2 * 97, dtype), np.zeros(1, dtype)
    for _ in range(3):
        ids = rng.integers(-largest, largest, (4, 8)).astype(dtype)
        ids[0, :3] = 0, ids[1, 0], -1
        codes = job(ids)
        np.testing.assert_array_equal(codes, encoded_by_oneflow(table, size, ids))
        assert codes.dtype == dtype
        np.testing.assert_array_equal(variable("Table"), table)
        np.testing.assert_array_equal(variable("Size"), size)


def test_a_table_can_be_filled_to_its_last_row():
    rng = np.random.default_rng(0)
    ids = rng.choice(10**6, 64, replace=False) + 1
    job = encoder(ids[:16], capacity=64)
    table, size = np.zeros(128, np.int64), np.zeros(1, np.int64)
    for part in ids.reshape(4, 16):
        np.testing.assert_array_equal(job(part), encoded_by_oneflow(table, size, part))
    np.testing.assert_array_equal(variable("Table"), table)
    assert sorted(np.concatenate([job(part) for part in ids.reshape(4, 16)])) == list(range(1, 65))


def test_a_full_table_is_refused_and_nothing_is_added():
    job = encoder(np.zeros(4, np.int64), capacity=3)
    assert job(np.array([7, 9, 7, 0])).tolist() == [1, 2, 1, 0]
    assert job(np.array([9, 4, 7, 4])).tolist() == [2, 3, 1, 3]
    with pytest.raises(ValueError, match="more than 3 distinct values: 3 are stored, found 3 new"):
        job(np.array([1, 2, 3, 4]))
    assert job(np.array([4, 9, 0, 0])).tolist() == [3, 2, 0, 0]


def test_a_loaded_table_is_followed():
    job = encoder(np.zeros(2, np.int64), capacity=3)
    assert job(np.array([5, 6])).tolist() == [1, 2]
    saved = {name: blob.numpy().copy() for name, blob in flow.get_all_variables().items()}
    assert job(np.array([7, 6])).tolist() == [3, 2]
    table = next(name for name in saved if name.endswith("Table"))
    saved[table][saved[table] == 5] = 8  # both are 2 mod 3
    flow.load_variables(saved)
    assert job(np.array([8, 6])).tolist() == [1, 2]
    assert job(np.array([5, 8])).tolist() == [3, 1]


def test_a_checkpoint_continues_in_a_new_session(tmp_path):
    ids = np.array([3, 8, 13, -2])  # 3, 8 and 13 are 3 mod 5
    assert encoder(ids, capacity=5)(ids).tolist() == [1, 2, 3, 4]
    flow.checkpoint.save(str(tmp_path / "model"))
    flow.clear_default_session()
    job = encoder(ids, capacity=5)
    flow.load_variables(flow.checkpoint.get(str(tmp_path / "model")))
    assert job(np.array([13, -2, 18, 3])).tolist() == [3, 4, 5, 1]


def test_two_jobs_share_one_table_and_names_tell_tables_apart():
    ids = np.array([4, 2])
    encode, again, apart = (
        encoder(ids, 8),
        encoder(ids, 8, job="again"),
        encoder(ids, 8, "Items", job="apart"),
    )
    assert encode(ids).tolist() == [1, 2]
    assert again(np.array([9, 2])).tolist() == [3, 2]
    assert apart(np.array([2, 9])).tolist() == [1, 2]
    assert encode(np.array([9, 1])).tolist() == [3, 4]


def test_several_tables_in_one_job():
    def job(a, b):
        return (
            flow.layers.categorical_ordinal_encoder(a, capacity=4, name="A"),
            flow.layers.categorical_ordinal_encoder(b, capacity=4, name="B"),
        )

    a, b = np.array([5, 6]), np.array([6, 5], np.int32)
    call = job_of(job, [a, b])
    assert [r.tolist() for r in call(a, b)] == [[1, 2], [1, 2]]
    assert [r.tolist() for r in call(a[::-1].copy(), b)] == [[2, 1], [1, 2]]


def test_a_call_does_not_sort_its_whole_table():
    """With a table of 400,000 values each call took 15 to 75 ms to sort them."""
    ids = np.random.default_rng(0).choice(2**62, 400_000, replace=False) + 1
    job = encoder(ids[:20_000], capacity=ids.size)
    for start in range(0, ids.size, 20_000):
        job(ids[start : start + 20_000])
    table = variable("Table").copy()

    def cost(call):
        begin = time.process_time()
        call()
        return time.process_time() - begin

    calls, sorts = [], []
    for _ in range(5):
        calls.append(cost(lambda: job(ids[-20_000:])))
        sorts.append(cost(lambda: torch.from_numpy(table[::2].copy()).sort()))
    assert min(calls) < min(sorts)  # 5 ms and 25 ms with one thread
    np.testing.assert_array_equal(job(ids[-20_000:]), np.arange(380_001, 400_001))
