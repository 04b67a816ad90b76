"""Embeddings for the tests of oneflow.one_embedding."""

import pytest
import torch

import oneflow as flow

oe = flow.one_embedding
needs_lmdb = pytest.param(
    "ssd",
    marks=pytest.mark.skipif(
        not __import__("importlib").util.find_spec("lmdb"), reason="needs the package lmdb"
    ),
)
STORES = ["device", "host", needs_lmdb]
UNIFORM = oe.make_table_options(oe.make_uniform_initializer(-1, 1))


def options(kind, path, size_factor=1, storage_dim=-1):
    if kind == "device":
        return oe.make_device_mem_store_options(str(path), 10000, size_factor, storage_dim)
    if kind == "host":
        return oe.make_cached_host_mem_store_options(1, str(path), 10000, size_factor, storage_dim)
    return oe.make_cached_ssd_store_options(1, str(path), None, size_factor, storage_dim)


def embedding(path, kind="device", size_factor=1, tables=(UNIFORM,), dim=4, **more):
    return oe.MultiTableEmbedding(
        "e", dim, flow.float, flow.int64, list(tables), options(kind, path, size_factor), **more
    )


class Net(torch.nn.Module):
    def __init__(self, e):
        super().__init__()
        self.e, self.l = e, torch.nn.Linear(8, 1)
        with torch.no_grad():
            self.l.weight.fill_(0.3)

    def forward(self, ids):
        return self.l(self.e(ids).flatten(1))
