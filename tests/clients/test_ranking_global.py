"""DLRM as RecommenderSystems writes it: one_embedding inside a module made global, train and eval graphs,
loss scaling.
"""

import numpy as np
import pytest

import oneflow as flow
import oneflow.nn as nn

PLACEMENT = flow.env.all_device_placement("cpu")


class Interaction(nn.Module):
    def __init__(self, width, fields):
        super().__init__()
        size = width + sum(range(fields + 1))
        self.output_size = (size + 7) // 8 * 8
        self.padding = self.output_size - size

    def forward(self, x, y):
        return flow._C.fused_dot_feature_interaction(
            [x.view(x.shape[0], 1, x.shape[1]), y],
            output_concat=x,
            self_interaction=False,
            output_padding=self.padding,
        )


class DLRM(nn.Module):
    def __init__(self, path, name):
        super().__init__()
        self.bottom = nn.FusedMLP(5, [16], 8)
        scales = np.sqrt(1 / np.array([50] * 4))
        self.embedding = flow.one_embedding.MultiTableEmbedding(
            name,
            embedding_dim=8,
            dtype=flow.float,
            key_type=flow.int64,
            tables=[
                flow.one_embedding.make_table_options(
                    flow.one_embedding.make_uniform_initializer(low=-s, high=s)
                )
                for s in scales
            ],
            store_options=flow.one_embedding.make_cached_ssd_store_options(
                cache_budget_mb=8, persistent_path=str(path), capacity=200
            ),
        )
        self.interaction = Interaction(8, 4)
        self.top = nn.FusedMLP(self.interaction.output_size, [16], 1, skip_final_activation=True)

    def forward(self, dense, sparse):
        dense = self.bottom(flow.log(dense + 1.0))
        return self.top(self.interaction(dense, self.embedding(sparse)))


class TrainGraph(nn.Graph):
    def __init__(self, module, loss, optimizer, scheduler, scaler):
        super().__init__()
        self.module, self.loss = module, loss
        self.add_optimizer(optimizer, lr_sch=scheduler)
        self.config.allow_fuse_model_update_ops(True)
        if scaler is not None:
            self.config.enable_amp(True)
            self.set_grad_scaler(scaler)

    def build(self, labels, dense, sparse):
        loss = flow.mean(self.loss(self.module(dense, sparse), labels))
        loss.backward()
        return loss.to("cpu")


class EvalGraph(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, dense, sparse):
        return self.module(dense, sparse).sigmoid().to("cpu")


@pytest.mark.parametrize("scaler", [None, "overflowing"])
@pytest.mark.parametrize("make_global", [False, True], ids=["local", "global"])
def test_rows_train(make_global, scaler, tmp_path):
    flow.manual_seed(0)
    draw = np.random.RandomState(0)
    dense, sparse = (
        draw.randint(0, 5, (128, 5)).astype("float32"),
        draw.randint(0, 50, (128, 4)) + np.arange(4) * 100,
    )
    labels = (sparse[:, :1] % 2 == 0).astype("float32")  # known from the first field alone
    batch = [flow.tensor(a) for a in (labels, dense, sparse)]
    module = DLRM(tmp_path / "store", f"dlrm_{make_global}_{scaler}")
    if make_global:
        module.to_global(PLACEMENT, flow.sbp.broadcast)
        batch = [t.to_global(placement=PLACEMENT, sbp=flow.sbp.split(0)) for t in batch]
    optimizer = flow.optim.SGD(module.parameters(), lr=1.0)
    warmup = flow.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    decay = flow.optim.lr_scheduler.PolynomialLR(
        optimizer, decay_batch=200, end_learning_rate=0, power=2.0, cycle=False
    )
    scheduler = flow.optim.lr_scheduler.SequentialLR(
        optimizer=optimizer, schedulers=[warmup, decay], milestones=[20], interval_rescaling=True
    )
    scaler = scaler and flow.amp.GradScaler(
        init_scale=2.0**30, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000
    )
    train, evaluate = (
        TrainGraph(module, nn.BCEWithLogitsLoss(reduction="none"), optimizer, scheduler, scaler),
        EvalGraph(module),
    )
    before = evaluate(*batch[1:])
    for _ in range(150):
        loss = train(*batch)
    scores = evaluate(*batch[1:])
    assert before.shape == scores.shape == (128, 1) and scores.is_global == make_global
    if make_global:
        scores = scores.to_local()
    assert flow.roc_auc_score(flow.tensor(labels), scores).item() > 0.95 and loss.item() < 0.5
