"""DLRM on synthetic clicks: one_embedding tables of any ids, a bottom and a top network, dot interactions.

    python docs/examples/dlrm.py                        # eager, rows in memory
    python docs/examples/dlrm.py --graph                # the same step as an nn.Graph
    python docs/examples/dlrm.py --store ssd            # rows on disk (needs lmdb), a snapshot, and a restart from it

A hidden model makes the clicks from the ids and the dense features; the area under the ROC curve on
fresh data shows how much of it was learnt (0.5 is guessing).
"""
import argparse
import tempfile
import time

import numpy as np

import oneflow as flow
import oneflow.nn as nn

TABLES, DENSE = 8, 4


class Clicks:
    """An endless stream of (dense, ids, label): ids are large sparse int64 numbers, different in every table."""

    def __init__(self, seed, vocabulary=200):
        self.random, self.vocabulary = np.random.RandomState(seed), vocabulary
        hidden = np.random.RandomState(7)
        self.ids = hidden.randint(0, 2**62, (TABLES, vocabulary)) // TABLES * TABLES + np.arange(TABLES)[:, None]
        self.effect, self.slope = hidden.randn(TABLES, vocabulary), hidden.randn(DENSE)

    def batch(self, size):
        picks = (self.random.rand(size, TABLES) ** 2 * self.vocabulary).astype(int)  # some ids are frequent
        dense = self.random.randn(size, DENSE).astype(np.float32)
        score = self.effect[np.arange(TABLES), picks].sum(1) + dense @ self.slope
        label = (self.random.rand(size) < 1 / (1 + np.exp(-score))).astype(np.float32)
        ids = self.ids[np.arange(TABLES), picks]
        return flow.tensor(dense), flow.tensor(ids), flow.tensor(label).reshape(-1, 1)


class DLRM(nn.Module):
    pairs: flow.Tensor

    def __init__(self, path, store, dim=16):
        super().__init__()
        if store == "ssd":
            options = flow.one_embedding.make_cached_ssd_store_options(cache_budget_mb=16, persistent_path=path, size_factor=3)
        else:
            options = flow.one_embedding.make_device_mem_store_options(persistent_path=path, capacity=100_000, size_factor=3)
        table = flow.one_embedding.make_table_options(flow.one_embedding.make_uniform_initializer(-0.05, 0.05))
        self.embedding = flow.one_embedding.MultiTableEmbedding(
            "clicks", embedding_dim=dim, dtype=flow.float, key_type=flow.int64, tables=[table] * TABLES, store_options=options
        )
        self.bottom = nn.Sequential(nn.Linear(DENSE, 32), nn.ReLU(), nn.Linear(32, dim), nn.ReLU())
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(dim * (TABLES + 1) + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        row, column = np.tril_indices(TABLES + 1, -1)
        self.register_buffer("pairs", flow.tensor(row * (TABLES + 1) + column), persistent=False)

    def forward(self, dense, ids):
        rows = self.embedding(ids)
        features = flow.cat([self.bottom(dense).unsqueeze(1), rows], dim=1)
        dots = flow.matmul(features, features.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(flow.cat([features.flatten(1), dots], dim=1))


def area_under_curve(score, label):
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(1, len(score) + 1)
    positive = label.sum()
    return (rank[label == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))


def evaluate(model, clicks, size=4000):
    dense, ids, label = clicks.batch(size)
    with flow.no_grad():
        score = model(dense, ids)
    return area_under_curve(score.numpy().ravel(), label.numpy().ravel())


def train(model, clicks, steps, graph, backend="aten", batch_size=256):
    optimizer = flow.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.BCEWithLogitsLoss()
    if graph:

        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model, self.criterion = model, criterion
                self.add_optimizer(optimizer)
                self.config.set_backend(backend)

            def build(self, dense, ids, label):
                loss = self.criterion(self.model(dense, ids), label)
                loss.backward()
                return loss

        step = TrainStep()
    else:
        rows = flow.one_embedding.Optimizer(optimizer, [model.embedding])

        def step(dense, ids, label):
            loss = criterion(model(dense, ids), label)
            loss.backward()
            rows.step()
            rows.zero_grad()
            return loss

    losses = []
    for i in range(steps):
        losses.append(step(*clicks.batch(batch_size)).item())
        if i % 50 == 0:
            print(f"step {i:4d}  loss {losses[-1]:.4f}")
    return losses


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", action="store_true", help="train with nn.Graph")
    parser.add_argument("--backend", default="aten", help="backend of nn.Graph")
    parser.add_argument("--store", choices=["memory", "ssd"], default="memory")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    flow.manual_seed(0)
    with tempfile.TemporaryDirectory() as path:
        model = DLRM(path, options.store)
        before = evaluate(model, Clicks(seed=2))
        start = time.perf_counter()
        train(model, Clicks(seed=1), options.steps, options.graph, options.backend)
        seconds = time.perf_counter() - start
        after = evaluate(model, Clicks(seed=2))
        print(f"{options.steps} steps in {seconds:.1f} s; area under the curve {before:.3f} -> {after:.3f}; {len(model.embedding.store)} rows")
        model.embedding.save_snapshot("done")
        dense_weights = {k: v for k, v in model.named_parameters()}
        model.embedding.close()
        fresh = DLRM(path, options.store)
        fresh.load_state_dict(dense_weights, strict=False)
        fresh.embedding.load_snapshot("done")
        restarted = evaluate(fresh, Clicks(seed=2))
        print(f"restarted from the snapshot: {restarted:.3f}")
        fresh.embedding.close()
    return before, after, restarted


if __name__ == "__main__":
    main()
