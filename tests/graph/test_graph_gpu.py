"""nn.Graph on a GPU: the aten backend and CUDA graphs are bitwise equal to eager, inductor is close; random
numbers, loss scaling, saving.
"""

import copy
import os

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import oneflow as flow

DEVICE = "cuda"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts: cuBLAS sums in one order
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(autouse=True)
def one_way_to_compute(monkeypatch):
    """cuDNN's fastest kernels may sum in another order in each call, in eager mode as well."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


class MLP(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 5))

    batch = staticmethod(lambda: (torch.randn(16, 20), torch.randint(5, (16,))))


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.MaxPool2d(2), nn.Dropout2d(0.2), nn.GroupNorm(2, 8),
            nn.Flatten(), nn.Linear(8 * 25, 5),
        )  # fmt: skip

    batch = staticmethod(lambda: (torch.randn(4, 3, 12, 12), torch.randint(5, (4,))))


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, **options):
        super().__init__()
        self.layer = kind(6, 16, 2, batch_first=True, **options)
        self.out = nn.Linear(32 if options.get("bidirectional") else 16, 5)

    def forward(self, x):
        return self.out(F.dropout(self.layer(x)[0][:, -1], 0.3, self.training))

    batch = staticmethod(lambda: (torch.randn(4, 7, 6), torch.randint(5, (4,))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm, self.qkv, self.up, self.down, self.out = (
            nn.Embedding(40, 32),
            nn.LayerNorm(32),
            nn.Linear(32, 96),
            nn.Linear(32, 64),
            nn.Linear(64, 32),
            nn.Linear(32, 40),
        )

    def forward(self, ids):
        h = self.tokens(ids)
        b, t, c = h.shape
        q, k, v = self.qkv(self.norm(h)).view(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(
            torch.ones(t, t, device=h.device).triu(1).bool(), float("-inf")
        )
        h = h + (F.dropout(scores.softmax(-1), 0.1, self.training) @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(h + F.dropout(self.down(F.gelu(self.up(h))), 0.1, self.training)).flatten(0, 1)

    batch = staticmethod(lambda: (torch.randint(40, (2, 9)), torch.randint(40, (18,))))


MODELS = {
    "mlp": MLP,
    "conv": Net,
    "lstm": Recurrent,
    "gru": lambda: Recurrent(nn.GRU, bidirectional=True),
    "rnn": lambda: Recurrent(nn.RNN),
    "gpt": GPT,
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2), "fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
    "clipped": lambda p: flow.optim.Adam([{"params": list(p), "lr": 1e-2, "clip_grad_max_norm": 0.1, "clip_grad_norm_type": 2.0}]),
}  # fmt: skip


def trainer(model, optimizer, scaler=None, amp=None, scheduler=None, **config):
    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer, lr_sch=scheduler)
            self.config.set_backend(config.pop("backend", "aten"))
            if scaler is not None:
                self.set_grad_scaler(scaler)
            if amp is not None:
                self.config.enable_amp(True, dtype=amp)
            for name, value in config.items():
                getattr(self.config, name)(value)

        def build(self, x, y):
            loss = F.cross_entropy(self.model(x).float(), y)
            loss.backward()
            return loss

    return Train()


def batches_of(make, count=10):
    torch.manual_seed(1)
    model = make().to(DEVICE)
    return model, [
        tuple(t.to(DEVICE) for t in (getattr(make, "batch", None) or model.batch)()) for _ in range(count)
    ]


def eager_steps(model, optimizer, batches, amp=None, scaler=None):
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=amp, enabled=amp is not None):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            if any("clip_grad_max_norm" in g for g in optimizer.param_groups):
                torch.nn.utils.clip_grad_norm_(list(model.parameters()), 0.1)
            optimizer.step()
        losses.append(loss.detach())
    return losses


def state_of(optimizer):
    return [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]


def both(name, make_optimizer, same, amp=None, scaler=None, count=10, **config):
    """Eager and graph from one start, the same seed: losses, weights, statistics and optimizer state."""
    model, batches = batches_of(MODELS[name], count)
    other = copy.deepcopy(model)
    a, b = make_optimizer(model.parameters()), make_optimizer(other.parameters())
    scalers = scaler() if scaler else None, scaler() if scaler else None
    torch.manual_seed(5)
    expected = eager_steps(model, a, batches, amp, scalers[0])
    graph = trainer(other, b, scalers[1], amp, **config)
    torch.manual_seed(5)
    losses = [graph(*batch) for batch in batches]
    for step, (e, f) in enumerate(zip(expected, losses)):
        assert same(e, f), f"loss of step {step}: eager {e.item()!r}, graph {f.item()!r}"
    for (key, e), f in zip(model.state_dict().items(), other.state_dict().values()):
        assert same(e, f), f"{key}: {(e - f).abs().max().item()} apart"
    for e, f in zip(state_of(a), state_of(b)):
        assert same(e.to(f.device), f)
    return graph, scalers


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_aten_is_eager_bit_for_bit(model, optimizer):
    both(model, OPTIMIZERS[optimizer], torch.equal)


@pytest.mark.parametrize("amp", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_autocast_is_eagers_bit_for_bit(model, amp):
    both(model, OPTIMIZERS["adamw"], torch.equal, amp)


@pytest.mark.parametrize("model", ["mlp", "conv", "lstm", "gpt"])
def test_a_cuda_graph_gives_the_same_numbers(model):
    both(model, OPTIMIZERS["adamw"], torch.equal, enable_cudagraph=True)


def no_dropout(make):
    model = make().eval()
    for part in model.modules():
        part.training = not isinstance(part, (nn.Dropout, nn.Dropout2d)) and part is not model
    return model


@pytest.mark.parametrize("model", ["mlp", "conv", "lstm", "gpt"])
@pytest.mark.parametrize("cudagraph", [False, True])
def test_inductor_is_close(model, cudagraph, monkeypatch):
    """Without dropout, because inductor samples other masks. Only three steps, because rounding errors
    grow.
    """
    monkeypatch.setitem(MODELS, model, lambda make=MODELS[model]: no_dropout(make))
    close = lambda a, b: torch.allclose(a.float(), b.float(), rtol=1e-3, atol=1e-4)
    both(model, OPTIMIZERS["sgd"], close, count=3, backend="inductor", enable_cudagraph=cudagraph)


def test_auto_changes_to_inductor_and_keeps_training():
    model, batches = batches_of(MLP, 1)
    graph = trainer(model, OPTIMIZERS["sgd"](model.parameters()), backend="auto")
    losses = [graph(*batches[0]).item() for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


# -- random numbers ----------------------------------------------------------------------
def drawn(p=0.5, **config):
    class Draw(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend(config.pop("backend", "aten"))
            for name, value in config.items():
                getattr(self.config, name)(value)

        def build(self, x):
            return F.dropout(x, p) + torch.rand_like(x)

    return Draw()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"enable_cudagraph": True},
        {"backend": "inductor"},
        {"backend": "inductor", "enable_cudagraph": True},
    ],
    ids=str,
)
def test_each_call_draws_new_numbers_and_a_seed_repeats_them(config):
    graph, x = drawn(**config), torch.ones(1000, device=DEVICE)
    graph(x)
    flow.manual_seed(3)
    first, second = graph(x), graph(x)
    flow.manual_seed(3)
    assert torch.equal(graph(x), first) and torch.equal(graph(x), second) and not torch.equal(first, second)


@pytest.mark.parametrize("config", [{}, {"enable_cudagraph": True}], ids=str)
def test_the_numbers_are_eagers_and_leave_the_generator_where_eager_does(config):
    graph, x = drawn(**config), torch.ones(1000, device=DEVICE)
    torch.manual_seed(4)
    expected = [F.dropout(x, 0.5) + torch.rand_like(x) for _ in range(3)]
    state = torch.cuda.get_rng_state()
    torch.manual_seed(4)
    assert all(torch.equal(graph(x), e) for e in expected) and torch.equal(torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize("backend", ["aten", "auto", "inductor"])
def test_recomputed_dropout_is_the_same_dropout(backend):
    w, x = nn.Parameter(torch.ones(64, 64, device=DEVICE)), torch.ones(64, 64, device=DEVICE)

    class Recomputed(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.add_optimizer(torch.optim.SGD([w], lr=0.1))
            self.config.set_backend(backend)

        def build(self, x):
            y = checkpoint(lambda t: F.dropout(t * w, 0.5).square().square(), x, use_reentrant=False)
            y.sum().backward()
            return y

    graph = Recomputed()
    for _ in range(4):
        before = w.detach().clone()
        y = graph(x)
        assert torch.equal(y != 0, w.detach() != before)


def test_dropout_between_recurrent_layers_trains():
    model, batches = batches_of(lambda: Recurrent(nn.LSTM, dropout=0.4), 1)
    graph = trainer(model, OPTIMIZERS["adamw"](model.parameters()))
    losses = [graph(*batches[0]).item() for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0] and len(set(losses[:5])) == 5


def test_packed_sequences():
    layer, x, lengths = (
        nn.LSTM(4, 8, batch_first=True).to(DEVICE),
        torch.randn(3, 6, 4, device=DEVICE),
        torch.tensor([6, 4, 1]),
    )

    def run(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)[0]

    class Packed(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.config.set_backend("aten")

        def build(self, x, lengths):
            return run(x, lengths)

    assert torch.equal(Packed()(x, lengths), run(x, lengths))


# -- loss scaling --------------------------------------------------------------------------
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "fused"])
def test_a_dynamic_scale_follows_eager_through_overflow(optimizer):
    """The first scales overflow float16: those steps change nothing, and the scale shrinks as eager's does."""
    graph, (a, b) = both(
        "mlp",
        OPTIMIZERS[optimizer],
        torch.equal,
        torch.float16,
        lambda: torch.amp.GradScaler(DEVICE, init_scale=2.0**24, growth_interval=3),
        count=14,
    )
    assert a.get_scale() == b.get_scale() < 2.0**24


def test_fused_update_under_a_scaler():
    close = lambda a, b: torch.allclose(a.float(), b.float(), rtol=1e-3, atol=1e-4)
    both(
        "mlp",
        OPTIMIZERS["sgd"],
        close,
        None,
        lambda: torch.amp.GradScaler(DEVICE, init_scale=2.0**8),
        count=4,
        allow_fuse_model_update_ops=True,
    )


# -- state ---------------------------------------------------------------------------------
def test_eager_and_graph_steps_mix():
    model, batches = batches_of(MLP)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    graph = trainer(model, optimizer)
    graph(*batches[0])
    eager_steps(model, optimizer, batches[1:3])
    graph(*batches[3])
    assert {s["step"].item() for s in optimizer.state.values()} == {4.0}


def test_a_model_that_moves_is_captured_again():
    model, batches = batches_of(MLP, 1)
    x, y = batches[0]

    class Infer(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model.eval().cpu()
            self.config.set_backend("aten")

        def build(self, x):
            return self.model(x)

    graph = Infer()
    here = graph(x.cpu())
    model.to(DEVICE)
    there = graph(x)
    assert there.device.type == DEVICE and torch.allclose(there.cpu(), here, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", DEVICE])
def test_a_saved_program_is_loaded_on_either_device(target, tmp_path):
    from oneflow._graph.saved.package import load

    model, batches = batches_of(MLP, 1)
    x, y = batches[0]
    graph = trainer(model.eval(), OPTIMIZERS["adamw"](model.parameters()))
    graph(x, y)
    graph.save(str(tmp_path / "p"))
    loaded = load(str(tmp_path / "p"), map_location=target)
    expected = graph(x, y)
    actual = loaded(x.to(target), y.to(target))
    assert actual.device.type == target and torch.allclose(actual.cpu(), expected.cpu(), atol=1e-5)


def test_checkpoints_hold_cuda_tensors(tmp_path):
    model, batches = batches_of(MLP, 2)
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    graph = trainer(model, optimizer)
    graph(*batches[0])
    flow.save(model.state_dict(), str(tmp_path / "model"))
    flow.save({"graph": graph.state_dict()}, str(tmp_path / "graph.pt"))
    for place, expected in ((None, DEVICE), ("cpu", "cpu")):
        state = flow.load(str(tmp_path / "model"), **({"map_location": place} if place else {}))
        assert all(
            torch.equal(v.cpu(), state[k].cpu()) and state[k].device.type == expected
            for k, v in model.state_dict().items()
        )
    expected = graph(*batches[1])
    model.load_state_dict(flow.load(str(tmp_path / "model")))
    again = trainer(model, OPTIMIZERS["adamw"](model.parameters()))
    again.load_state_dict(flow.load(str(tmp_path / "graph.pt"))["graph"])
    assert again(*batches[1]).device.type == expected.device.type


def test_fused_kernels_of_rewritten_compositions_are_close():
    """A masked softmax that is long enough for the kernel, forward and backward, on the aten backend."""
    model, _ = batches_of(GPT, 1)
    batches = [
        (torch.randint(40, (2, 64), device=DEVICE), torch.randint(40, (128,), device=DEVICE))
        for _ in range(3)
    ]
    other = copy.deepcopy(model.eval())
    plain, fused = (trainer(m, OPTIMIZERS["sgd"](m.parameters())) for m in (model, other))
    fused.config._engine.fuse_compositions = fused.config._engine.fuse_add_to_output = True
    close = lambda a, b: torch.allclose(a, b, rtol=2e-3, atol=2e-4)
    assert all(close(plain(*batch), fused(*batch)) for batch in batches)
    assert {"oneflow::masked_softmax", "oneflow::masked_softmax_backward"} <= {
        getattr(n.target, "_name", "").split(".")[0] for n in fused._engine.program.graph.nodes
    }
    for a, b in zip(model.state_dict().values(), other.state_dict().values()):
        assert close(a, b)
