"""oneflow.utils.data against results of OneFlow 0.9.0 (recorded in the tests), and its names."""

import collections
import subprocess
import sys

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.utils.data as data

# recorded from OneFlow 0.9.0: what default_collate made of each batch
COLLATED = [
    ([1, 2], torch.tensor([1, 2])),
    ([1.5, 2], torch.tensor([1.5, 2.0], dtype=torch.float64)),
    ([np.float64(1), np.float64(2)], torch.tensor([1.0, 2.0], dtype=torch.float32)),
    ([np.float32(1)], torch.tensor([1.0])),
    ([np.ones(2)], torch.ones(1, 2, dtype=torch.float64)),
    ([np.ones(2, np.float32)], torch.ones(1, 2)),
    ([np.int32(3)], torch.tensor([3], dtype=torch.int32)),
    ([True, False], torch.tensor([True, False])),
    (["a", "b"], ["a", "b"]),
    ([b"x"], [b"x"]),
    ([(1, 2.0), (3, 4.0)], [torch.tensor([1, 3]), torch.tensor([2.0, 4.0], dtype=torch.float64)]),
    (
        [{"a": np.float64(1), "b": np.ones(1)}],
        {"a": torch.tensor([1.0]), "b": torch.ones(1, 1, dtype=torch.float64)},
    ),
]


def _same(a, b):
    if isinstance(b, torch.Tensor):
        return a.dtype is b.dtype and torch.equal(a, b)
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in b)
    if isinstance(b, list) and b and not isinstance(b[0], (str, bytes)):
        return type(a) is list and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@pytest.mark.parametrize("batch,expected", COLLATED, ids=[str(b) for b, _ in COLLATED])
def test_default_collate(batch, expected):
    assert _same(data.default_collate(batch), expected)
    from oneflow.utils.data.dataloader import default_collate

    assert _same(default_collate(batch), expected)


def test_default_collate_refuses():
    for bad in (None, np.array("x")):
        with pytest.raises(TypeError, match="default_collate"):
            data.default_collate([bad])


class Squares(data.Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        return np.float64(i * i), {"i": i, "x": np.full(2, i, np.float32)}


@pytest.mark.parametrize("workers", [0, 2])
def test_loader(workers):
    loader = data.DataLoader(Squares(), batch_size=4, num_workers=workers, prefetch_factor=2)
    batches = list(loader)
    assert [b[0].tolist() for b in batches] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81, 100]]
    assert batches[0][0].dtype is torch.float32 and batches[1][1]["x"][:, 1].tolist() == [4, 5, 6, 7]
    assert len(loader) == 3 and isinstance(loader, torch.utils.data.DataLoader)
    assert len(list(data.DataLoader(Squares(), 4, False, drop_last=True))) == 2


def test_loader_arguments():
    assert [b[0] for b in data.DataLoader(Squares(), batch_size=None)][3] == 9
    with pytest.raises(ValueError, match="prefetch_factor"):
        data.DataLoader(Squares(), prefetch_factor=3)
    with pytest.raises(ValueError, match="persistent_workers"):
        data.DataLoader(Squares(), persistent_workers=True)
    flow.manual_seed(3)
    a = [b[1]["i"].item() for b in data.DataLoader(Squares(), shuffle=True)]
    flow.manual_seed(3)
    b = [b[1]["i"].item() for b in data.DataLoader(Squares(), shuffle=True)]
    assert a == b and sorted(a) == list(range(11)) and a != sorted(a)
    custom = data.DataLoader(Squares(), batch_size=2, collate_fn=lambda samples: len(samples))
    assert list(custom) == [2, 2, 2, 2, 2, 1]


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, 6, step)


@pytest.mark.parametrize("workers", [0, 1])
def test_next_of_the_iterator(workers):
    batches = iter(data.DataLoader([1, 2, 3], batch_size=2, num_workers=workers))
    assert batches.next().tolist() == [1, 2] and next(batches).tolist() == [3]
    with pytest.raises(StopIteration):
        batches.next()


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable(workers):
    actual = [
        x for batch in data.DataLoader(Stream(), batch_size=2, num_workers=workers) for x in batch.tolist()
    ]
    assert sorted(actual) == [0, 1, 2, 3, 4, 5]


def test_samplers():
    class Odd(data.Sampler):
        def __init__(self, source):
            super().__init__(source)
            self.source = source

        def __iter__(self):
            return iter(range(1, len(self.source), 2))

        def __len__(self):
            return len(self.source) // 2

    odd = Odd(Squares())
    assert [b[1]["i"].tolist() for b in data.DataLoader(Squares(), batch_size=3, sampler=odd)] == [
        [1, 3, 5],
        [7, 9],
    ]
    assert isinstance(torch.utils.data.RandomSampler([1]), data.Sampler) and issubclass(
        data.BatchSampler, data.Sampler
    )
    for kind in (data.Sampler, data.DataLoader, data.DistributedSampler, data.Dataset):
        # class Typed(Sampler[int]), as timm has it
        assert issubclass(type("Typed", kind[int].__mro_entries__(()), {}), kind)
    assert not isinstance([1], data.Sampler) and not isinstance(data.RandomSampler([1]), Odd)
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, True)) == [[0, 1], [2, 3]]
    assert sorted(data.SubsetRandomSampler([3, 5])) == [3, 5]
    with pytest.raises(TypeError, match="replacement"):
        data.RandomSampler(range(3), replacement=1)


def test_distributed_sampler(monkeypatch):
    assert list(data.distributed.DistributedSampler(range(5), shuffle=False)) == [0, 1, 2, 3, 4]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    sampler = data.DistributedSampler(range(5), shuffle=False)
    assert list(sampler) == [1, 3, 0] and len(sampler) == 3
    shuffled = data.DistributedSampler(range(8))
    first = list(shuffled)
    shuffled.set_epoch(1)
    assert list(shuffled) != first and list(data.DistributedSampler(range(8))) == first


def test_split_and_concat():
    parts = data.random_split(range(6), [4, 2], generator=flow.Generator().manual_seed(1))
    assert sorted(x for p in parts for x in p) == list(range(6))
    both = data.ConcatDataset([data.TensorDataset(torch.arange(2)), data.TensorDataset(torch.arange(2, 5))])
    assert len(both) == 5 and both[4][0].item() == 4
    assert data.Subset(both, [1])[0][0].item() == 1


def test_names_and_paths():
    import oneflow.utils.data.dataset
    import oneflow.utils.data.decorator
    from oneflow.utils.data._utils.worker import ExceptionWrapper

    assert oneflow.utils.data.dataset.ChainDataset is torch.utils.data.ChainDataset
    assert isinstance(ExceptionWrapper, type)
    for name in (
        "functional_datapipe guaranteed_datapipes_determinism non_deterministic IterDataPipe"
        " _DatasetKind random_split sampler dataloader"
    ).split():
        assert getattr(data, name) is not None
    assert (
        data.DataLoader.check_worker_number_rationality
        is torch.utils.data.DataLoader.check_worker_number_rationality
    )
    assert collections.Counter(data.__dir__())["DataLoader"] == 1


def test_torch_dialect_collates_as_torch():
    code = """
import numpy as np, oneflow as flow, torch
flow.set_dialect("torch")
assert flow.utils.data.DataLoader is torch.utils.data.DataLoader
assert flow.utils.data.default_collate([np.float64(1)]).dtype is torch.float64
flow.set_dialect("oneflow")
assert flow.utils.data.default_collate([np.float64(1)]).dtype is torch.float32
"""
    subprocess.run([sys.executable, "-c", code], check=True)
