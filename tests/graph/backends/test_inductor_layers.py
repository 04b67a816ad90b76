"""The inductor backend against the aten backend: layers, losses and optimizers."""

import copy
import time

import pytest
import torch
from inductor_cases import assert_backends_agree, results_of_backend, rows, sgd
from time_limits import seconds
from torch import nn

import oneflow as flow

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]


def step(self, x):
    loss = self.m(x).pow(2).mean()
    loss.backward()
    return loss


def test_micro_batches_update_running_statistics():
    assert_backends_agree(
        step,
        lambda: {"m": nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))},
        rows(4, 6),
        sgd,
        accumulation=2,
    )


def test_convolutions():
    make = lambda: {
        "m": nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.AdaptiveAvgPool2d(1),
        )
    }
    assert_backends_agree(step, make, rows(2, 3, 8, 8), sgd)


def test_recurrent():
    def build(self, x):
        loss = self.m(x)[0].pow(2).mean()
        loss.backward()
        return loss

    assert_backends_agree(
        build, lambda: {"m": nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True)}, rows(2, 4, 6), sgd
    )


def test_packed_sequences():
    def build(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(
            x * 2, torch.tensor([2, 4, 3]), batch_first=True, enforce_sorted=False
        )
        out, lengths = nn.utils.rnn.pad_packed_sequence(self.m(packed)[0], batch_first=True)
        loss = out.pow(2).mean()
        loss.backward()
        return loss, out, lengths

    assert_backends_agree(
        build, lambda: {"m": nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True)}, rows(3, 4, 6), sgd
    )


def test_mixup():
    def build(self, x):
        outputs = self.m(x)
        loss = (0.7 * outputs + 0.3 * outputs[torch.randperm(4)]).square().mean()
        loss.backward()
        return loss

    assert_backends_agree(build, lambda: {"m": nn.Linear(6, 3)}, rows(4, 6), sgd)


class Spelling(nn.Module):
    """A CTC loss of padded targets, in a graph that trains."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 5)

    def forward(self, x, targets, input_lengths, target_lengths):
        scores = self.scores(x).log_softmax(-1)
        return nn.functional.ctc_loss(scores, targets, input_lengths, target_lengths)


def ctc_step(self, x, targets, input_lengths, target_lengths):
    loss = self.m(x, targets, input_lengths, target_lengths)
    loss.backward()
    return loss


def ctc_batches(lengths):
    """Batches whose longest target has these lengths; the padding is no class."""
    targets = torch.tensor([[1, 2, 2, -1], [3, 1, 4, -1]])
    input_lengths = torch.tensor([8, 7])
    return [(x, targets, input_lengths, torch.tensor([n, 2])) for (x,), n in zip(rows(8, 2, 4), lengths)]


def test_ctc_whose_targets_are_shorter_than_their_columns():
    assert_backends_agree(ctc_step, lambda: {"m": Spelling()}, ctc_batches([3, 2, 3]), sgd)


def test_ctc_with_lengths_as_lists():
    def build(self, x):
        loss = self.m(x, torch.tensor([[1, 2, 2], [3, 1, 0]]), [8, 7], [1, 2])
        loss.backward()
        return loss

    assert_backends_agree(build, lambda: {"m": Spelling()}, rows(8, 2, 4), sgd)


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_ctc_raises_for_targets_that_are_no_classes(backend):
    right, wrong = ctc_batches([3, 3])[:2]
    with pytest.raises(RuntimeError, match=r"ctc_loss\(\) targets must be classes"):
        wrong[1][0, 1] = 5
        results_of_backend(backend, ctc_step, {"m": Spelling()}, sgd, [right, wrong], {})
    wrong[1][0, 1] = -100000
    with pytest.raises(RuntimeError, match=r"ctc_loss\(\) targets must be classes"):
        results_of_backend(backend, ctc_step, {"m": Spelling()}, sgd, [wrong], {})


def test_autocast():
    make = lambda: {"m": nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1))}
    # bfloat16 has 8 bits
    assert_backends_agree(step, make, rows(4, 6), sgd, tolerance=2e-2, amp=True, amp_dtype=torch.bfloat16)


def test_two_optimizers():
    def build(self, z):
        fake = self.g(z)
        d_loss = self.d(fake.detach()).mean() - self.d(z).mean()
        d_loss.backward()
        g_loss = -self.d(fake).mean()
        for p, grad in zip(self.g.parameters(), torch.autograd.grad(g_loss, list(self.g.parameters()))):
            p.grad = grad
        return d_loss, g_loss

    make = lambda: {"g": nn.Linear(6, 6), "d": nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))}
    assert_backends_agree(build, make, rows(4, 6), lambda p: torch.optim.Adam(p, lr=0.01))


def test_sparse_embedding():
    ids = [(torch.tensor([[0, 1, 1], [2, 9, 0]]),) for _ in range(2)]
    assert_backends_agree(
        step, lambda: {"m": nn.Embedding(10, 6, sparse=True)}, ids, lambda p: torch.optim.SGD(p, lr=0.1)
    )


@pytest.mark.parametrize(
    "shape, resize",
    [
        ((2, 3, 5, 5), dict(scale_factor=2, mode="bilinear", align_corners=True)),
        ((2, 3, 5, 4), dict(size=(7, 9), mode="bicubic", align_corners=False)),
        ((1, 2, 3, 4, 4), dict(scale_factor=1.5, mode="trilinear", align_corners=False)),
        ((2, 3, 5), dict(scale_factor=2, mode="nearest")),
        ((1, 1, 2, 5), dict(scale_factor=2.3, mode="nearest")),
        ((1, 1, 3, 2, 5), dict(scale_factor=1.3, mode="nearest")),
        ((1, 2, 7), dict(scale_factor=2.3, mode="nearest")),
        ((2, 3, 8, 8), dict(size=(4, 4), mode="bilinear", antialias=True)),
    ],
    ids=lambda v: v.get("mode") if isinstance(v, dict) else "x".join(map(str, v)),
)
def test_resizing_trains(shape, resize):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(shape[1:]))

        def forward(self, x):
            return torch.nn.functional.interpolate(x * self.weight, **resize)

    assert_backends_agree(
        step, lambda: {"m": Scaled()}, rows(*shape)[:2], optimizer=lambda p: torch.optim.SGD(p, lr=0.1)
    )


def test_multilabel_margin_loss_skips_places_without_a_label():
    labels = torch.tensor([[0, -1, 1, 1], [2, 1, -1, 0]])

    def build(self, x):
        loss = nn.functional.multilabel_margin_loss(self.m(x), labels)
        loss.backward()
        return loss

    assert_backends_agree(build, lambda: {"m": nn.Linear(3, 4)}, [(torch.randn(2, 3),)], sgd)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: nn.functional.avg_pool1d(x.flatten(1)[:, :208], 2, 3, ceil_mode=True),
        lambda x: nn.functional.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
        lambda x: nn.functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
        lambda x: nn.functional.avg_pool2d(x, (3,), (2,), (1,), divisor_override=2),
        lambda x: nn.functional.avg_pool3d(x, (1, 1, 2), ceil_mode=True),
    ],
    ids=["1d", "2d", "2d padded", "2d, lists of one number", "3d"],
)
def test_windows_over_the_edge_divide_the_gradient_among_their_elements(pool):
    def build(self, x):
        pooled = pool(self.m(x).view(1, 2, 7, 6, 5)[0])
        loss = (pooled * torch.arange(float(pooled.numel())).view(pooled.shape).cos()).sum()
        loss.backward()
        return pooled

    assert_backends_agree(build, lambda: {"m": nn.Linear(5, 5)}, rows(84, 5)[:2], sgd)


def test_margin_losses_of_one_row_have_the_shape_of_the_label():
    def build(self, x):
        out = self.m(x)
        number, one = (
            nn.functional.multi_margin_loss(out, torch.tensor(label), reduction="none") for label in (1, [1])
        )
        (number + one.sum()).backward()
        return number, one

    graph = results_of_backend("inductor", build, {"m": nn.Linear(3, 4)}, sgd, [(torch.randn(3),)], {})
    assert graph[0].shape == () and graph[1].shape == (1,) and graph[0] == graph[1]


@pytest.mark.parametrize("padding", [None, 2])
def test_a_tied_embedding_gets_its_rows_into_the_gradient_of_the_last_layer(padding):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(40, 8, padding_idx=padding)
            self.mix = nn.Linear(8, 8)

        def forward(self, ids):
            return nn.functional.linear(self.mix(self.embed(ids)).tanh(), self.embed.weight)

    class Step(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
            self.config.set_backend("inductor", fx_graph_cache=False)  # so that its passes run

        def build(self, ids):
            loss = nn.functional.cross_entropy(self.model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
            return loss

    torch.manual_seed(0)
    model, ids = Tied(), torch.tensor([[1, 1, 2, 39], [0, 2, 1, 5]])
    eager = copy.deepcopy(model)
    graph, optimizer = Step(model), torch.optim.SGD(eager.parameters(), lr=0.5, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(eager(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(graph(ids), loss.detach())
    for actual, expected in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(actual, expected)
    puts = [n.target for n in graph._engine.last_entry.run.region.graph.nodes if "index_put" in str(n.target)]
    # torch 2.11: the latter
    assert [str(t) for t in puts] in (["prims._unsafe_index_put_.default"], ["aten.index_put_.default"]), (
        "written in place"
    )


def test_softshrink_keeps_nan():
    def build(self, x):
        return nn.functional.softshrink(x, 0.3)

    graph = results_of_backend(
        "inductor",
        build,
        {},
        None,
        [(torch.tensor([float("nan"), float("inf"), -float("inf"), 0.3, -0.5, 2.0, 0.1]),)],
        {},
    )
    torch.testing.assert_close(graph[0], nn.functional.softshrink(graph[1], 0.3), equal_nan=True)


def test_recomputed_batch_norm_counts_a_batch_once():
    def trained(backend):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))

        class Train(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.model.to(flow.nn.graph.GraphModule).activation_checkpointing = True
                self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
                self.config.set_backend(backend)

            def build(self, x):
                self.model(x).square().mean().backward()

        step = Train()
        for i in range(2):
            step(torch.arange(48.0).view(8, 6).sin() + i)
        return model.state_dict().values()

    for a, b in zip(trained("aten"), trained("inductor"), strict=True):
        torch.testing.assert_close(a, b)


def test_the_relative_shift_of_attention_scores_compiles_in_seconds():
    def build(self, x, mask):
        shifted = x.sin().view(2, 4, 32, 16)[:, :, 1:].reshape(2, 4, 16, 31)[..., :16]
        shifted *= mask
        return torch.autograd.grad(shifted.exp().sum(-1).square().sum(), x)[0], shifted.detach()

    x = torch.arange(4096, dtype=torch.float64).view(2, 4, 16, 32).cos().requires_grad_()
    start = time.process_time()
    assert_backends_agree(
        build, dict, [(x, torch.arange(256, dtype=torch.float64).view(16, 16).sin())], tolerance=1e-12
    )
    # It takes minutes if inductor composes the index expressions of the two views.
    assert time.process_time() - start < seconds(30)


def test_statistics_copied_from_another_layers():
    """AveragedModel with use_buffers: the copy's layer wrote the first one's statistics as well."""

    def build(self, x):
        first = self.m(x)
        self.e.running_mean.copy_(self.m.running_mean)
        return first + self.e(x)

    assert_backends_agree(build, lambda: {"m": nn.BatchNorm1d(4), "e": nn.BatchNorm1d(4)}, rows(6, 4))


@pytest.mark.parametrize("options", [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.1}], ids=["SGD", "Adagrad"])
def test_a_model_cast_after_the_first_step_trains_as_in_eager(options):
    """The optimizer's state keeps its dtype, which a fused update would read as that of the parameters."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    eager = copy.deepcopy(model)
    optimizer_class = torch.optim.SGD if "momentum" in options else torch.optim.Adagrad
    optimizer, reference = (optimizer_class(m.parameters(), **options) for m in (model, eager))

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)
            self.config.set_backend("inductor")

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    step, x = Training(), torch.randn(3, 4)
    for dtype in (torch.float32, torch.float64, torch.float64):
        model.to(dtype)
        eager.to(dtype)
        reference.zero_grad()
        expected = eager(x.to(dtype)).square().mean()
        expected.backward()
        reference.step()
        torch.testing.assert_close(step(x.to(dtype)), expected.detach())
    torch.testing.assert_close(model.weight, eager.weight)
