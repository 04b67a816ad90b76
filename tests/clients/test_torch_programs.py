"""Programs written for PyTorch, with `import oneflow as torch` in place of `import torch`."""

import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import oneflow as torch
import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow.utils.data import DataLoader, Dataset


# --------------------------------------------------------------------------- a small GPT
class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x, flash):
        B, T, C = x.size()
        q, k, v = (
            t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.attn(x).split(C, dim=2)
        )
        if flash:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            y = F.softmax(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")), dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self, vocabulary=17, width=16, heads=2, length=8):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(vocabulary, width),
                wpe=nn.Embedding(length, width),
                h=nn.ModuleList([CausalSelfAttention(width, heads, length) for _ in range(2)]),
                ln_f=nn.LayerNorm(width),
            )
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._start)

    def _start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None, flash=True):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = x + block(x, flash)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = (
            None
            if targets is None
            else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        )
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, count, temperature=1.0, top_k=3):
        for _ in range(count):
            logits = self(idx[:, -8:])[0][:, -1, :] / temperature
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


def test_nanogpt_like_training(tmp_path):
    torch.manual_seed(1337)
    data = np.arange(400, dtype=np.uint16) % 17
    data.tofile(tmp_path / "train.bin")
    memory = np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r")
    model = GPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        fused=False,
    )
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    context = torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16)
    losses = []
    for step in range(40):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1, (step + 1) / 5)
        ix = torch.randint(len(memory) - 8, (8,))
        x = torch.stack([torch.from_numpy((memory[i : i + 8]).astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((memory[i + 1 : i + 9]).astype(np.int64)) for i in ix])
        with context:
            _, loss = model(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 40,
        "config": {"lr": 1e-2},
    }
    torch.save(checkpoint, tmp_path / "ckpt.pt")
    loaded = torch.load(tmp_path / "ckpt.pt", map_location="cpu")
    again = GPT()
    again.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    x = torch.arange(8).unsqueeze(0)
    assert torch.equal(again(x)[0], model(x)[0]) and torch.allclose(
        again(x, flash=False)[0], again(x)[0], atol=1e-5
    )
    assert model.generate(torch.zeros((1, 1), dtype=torch.long), 5).shape == (1, 6)


# --------------------------------------------------------------------------- parts of torch
def test_functional_transforms():
    from oneflow.func import functional_call, grad, hessian, jacrev, vmap

    x = torch.randn(5, 3)
    w = torch.randn(3)
    assert torch.allclose(vmap(torch.dot, in_dims=(0, None))(x, w), x @ w, atol=1e-6)
    assert torch.allclose(grad(lambda w: (w**3).sum())(w), 3 * w**2) and torch.allclose(
        hessian(lambda w: (w**2).sum())(w), 2 * torch.eye(3)
    )
    assert torch.allclose(jacrev(lambda w: x @ w)(w), x)
    layer = nn.Linear(3, 2)
    parameters = dict(layer.named_parameters())

    def loss(parameters, x, y):
        return F.mse_loss(functional_call(layer, parameters, (x.unsqueeze(0),)).squeeze(0), y)

    each = torch.func.vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, torch.randn(5, 2))
    assert each["weight"].shape == (5, 2, 3)


def test_distributions():
    import oneflow.distributions as D

    torch.manual_seed(0)
    normal = D.Normal(torch.zeros(2, requires_grad=True), torch.ones(2))
    normal.rsample((3,)).sum().backward()
    assert D.kl_divergence(normal, D.Normal(1.0, 1.0)).tolist() == [0.5, 0.5]
    policy = D.Categorical(logits=torch.tensor([0.0, math.log(3.0)]))
    assert torch.allclose(policy.log_prob(torch.tensor(1)).exp(), torch.tensor(0.75)) and policy.sample(
        (4,)
    ).shape == (4,)
    assert D.Independent(D.Bernoulli(probs=torch.full((3,), 0.5)), 1).log_prob(
        torch.ones(3)
    ).item() == pytest.approx(3 * math.log(0.5))
    assert D.TransformedDistribution(D.Normal(0.0, 1.0), [D.transforms.TanhTransform()]).sample().abs() < 1
    assert D.MultivariateNormal(torch.zeros(2), torch.eye(2)).entropy().item() == pytest.approx(
        math.log(2 * math.pi * math.e), rel=1e-5
    )


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {
            "x": torch.tensor([i, i * i], dtype=torch.float32),
            "name": f"n{i}",
            "worker": -1
            if torch.utils.data.get_worker_info() is None
            else torch.utils.data.get_worker_info().id,
        }


def start_worker(number):
    """A worker may get it by pickle, so it is no lambda."""


def test_loader_with_workers_and_samplers():
    batches = list(
        DataLoader(
            Squares(), batch_size=4, num_workers=2, worker_init_fn=start_worker, persistent_workers=False
        )
    )
    assert torch.cat([b["x"] for b in batches])[:, 1].tolist() == [i * i for i in range(10)] and batches[0][
        "name"
    ] == ["n0", "n1", "n2", "n3"]
    assert set(torch.cat([b["worker"] for b in batches]).tolist()) == {0, 1}
    sampler = torch.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], 4)
    assert list(sampler) == [1, 1, 1, 1]


def test_custom_function_hooks_and_checkpoint():
    from oneflow.utils.checkpoint import checkpoint, checkpoint_sequential

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, low):
            ctx.save_for_backward(x)
            ctx.low = low
            return x.clamp(min=low)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, False)
            return g * (x > ctx.low), None

    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: Clip.apply(v, 0.0), (x.double().detach().requires_grad_(),))
    body, seen = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), []
    body[0].register_full_backward_hook(lambda module, gi, go: seen.append(go[0].shape))
    handle = body.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
    plain = torch.autograd.grad(body(Clip.apply(x, 0.0)).sum(), x)[0]
    handle.remove()
    for way in (
        lambda v: checkpoint(body, v, use_reentrant=False),
        lambda v: checkpoint_sequential(body, 2, v, use_reentrant=False),
    ):
        assert torch.equal(torch.autograd.grad(way(Clip.apply(x, 0.0)).sum(), x)[0], plain)
    assert seen


def test_optimizers_and_schedules_only_torch_has():
    p = nn.Parameter(torch.ones(3))
    for name, options in {
        "RAdam": {},
        "NAdam": {},
        "Adamax": {},
        "Rprop": {},
        "ASGD": {},
        "Adafactor": {},
    }.items():
        optimizer = getattr(torch.optim, name)([p], lr=0.01, **options)
        before = p.detach().clone()
        (p**2).sum().backward()
        optimizer.step()
        assert not torch.equal(before, p.detach()), name
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=10)
    ema = torch.optim.swa_utils.AveragedModel(
        nn.Linear(2, 2), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer.step(), schedule.step(), ema.update_parameters(nn.Linear(2, 2))
    assert 0 < optimizer.param_groups[0]["lr"] < 0.2


def test_compile_traces_a_model_whole():
    model = GPT()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = torch.arange(8).unsqueeze(0)
    assert torch.equal(compiled(x)[0], model(x)[0])
    compiled(x, x)[1].backward()
    assert model.lm_head.weight.grad is not None


def test_other_modules_of_torch_are_reached():
    import oneflow.fx as fx
    import oneflow.nn.utils.parametrize as parametrize
    from oneflow.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
    from oneflow.profiler import ProfilerActivity, profile, record_function

    rows = pad_sequence([torch.ones(3, 2), torch.ones(1, 2)], batch_first=True)
    out, _ = nn.GRU(2, 4, batch_first=True)(
        pack_padded_sequence(rows, torch.tensor([3, 1]), batch_first=True)
    )
    assert pad_packed_sequence(out, batch_first=True)[0].shape == (2, 3, 4)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert (
        parametrize.is_parametrized(layer) and nn.utils.parameters_to_vector(layer.parameters()).numel() == 8
    )
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert [n.op for n in traced.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    with profile(activities=[ProfilerActivity.CPU]) as run, record_function("mine"):
        traced(torch.ones(1, 2))
    assert any(e.key == "mine" for e in run.key_averages())
    assert torch.jit.trace(layer, torch.ones(1, 2))(torch.ones(1, 2)).shape == (1, 2)
    assert (
        torch.linalg.svd(torch.eye(2)).S.tolist() == [1.0, 1.0]
        and torch.fft.rfft(torch.ones(4))[0].item() == 4
    )
    assert (
        torch.special.expit(torch.zeros(1)).item() == 0.5
        and torch.einsum("ij,jk->ik", torch.eye(2), torch.ones(2, 2)).sum().item() == 4
    )
    assert torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2)).to_dense()[0, 1].item() == 2.0
    assert torch.version.cuda is None or "." in torch.version.cuda
    assert (
        torch.vmap(lambda v: v * 2)(torch.ones(2)).tolist() == [2.0, 2.0]
        and torch.finfo(torch.float32).eps < 1e-6
    )


def in_a_fresh_process(code):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("first", ["", "import einops"], ids=["after oneflow", "before oneflow"])
@pytest.mark.parametrize(
    "in_eager", ["", "compute(torch.ones(2, 4))"], ids=["in build() only", "in eager, too"]
)
def test_einops_in_a_graph_needs_no_warning(first, in_eager):
    pytest.importorskip("einops")
    in_a_fresh_process(f"""
        {first}
        import warnings, torch, oneflow as flow
        from einops import einsum, pack, rearrange, reduce
        from einops.layers.torch import Rearrange

        flat = Rearrange("b h -> (b h)")

        def compute(x):
            split = rearrange(x, "b (h d) -> b h d", h=2)
            return split.sum() + reduce(x, "b d -> b", "mean") + einsum(x, x, "b d, c d -> b") + pack([flat(x)], "*")[0].sum()

        class Graph(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.config.set_backend("aten")

            def build(self, x):
                return compute(x)

        {in_eager}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = Graph()
            results = [graph(torch.ones(2, 4)), graph(torch.ones(2, 4))]
        for result in results:
            assert torch.equal(result, compute(torch.ones(2, 4)))
        assert len(graph._engine.programs) == 1
    """)  # noqa: E501


@pytest.mark.parametrize("first", ["", "import einops"], ids=["after oneflow", "before oneflow"])
def test_einops_takes_its_torch_backend_and_layers(first):
    pytest.importorskip("einops")
    out = in_a_fresh_process(f"""
        {first}
        import oneflow as torch
        from einops import einsum, pack, rearrange, reduce, repeat
        from einops._backends import get_backend
        x = torch.arange(24.0).reshape(2, 3, 4)
        assert rearrange(x, "a b c -> a (b c)").shape == (2, 12) and reduce(x, "a b c -> c", "mean").shape == (4,)
        assert repeat(x, "a b c -> a b c d", d=2).shape == (2, 3, 4, 2) and pack([x, x[:, 0]], "a * c")[0].shape == (2, 4, 4)
        assert einsum(x, x, "a b c, a d c -> a b d").shape == (2, 3, 3)
        assert reduce(x.bfloat16(), "a b c -> a", "mean").dtype is torch.bfloat16
        print(get_backend(x).framework_name)
        from einops._backends import OneFlowBackend
        assert OneFlowBackend.framework_name == "oneflow"  # einops' tests look for it by this name
        from einops.layers.torch import Rearrange
        assert Rearrange("a b c -> c b a")(x).shape == (4, 3, 2)
    """)  # noqa: E501
    assert out.strip() == "torch"


def test_a_pair_of_modules_keeps_the_second_as_a_plain_attribute(tmp_path):
    """onediff's DualModule, reduced: the OneFlow module is a torch module here and must not become a child of
    the torch one.
    """
    folder = tmp_path / "onediff" / "infer_compiler" / "backends" / "oneflow"
    folder.mkdir(parents=True)
    (folder / "dual_module.py").write_text(
        textwrap.dedent("""
        import torch

        class DualModule(torch.nn.Module):
            def __init__(self, torch_module):
                torch.nn.Module.__init__(self)
                for name, value in dict(_torch_module=torch_module, _oneflow_module=None, _modules=torch_module._modules).items():
                    object.__setattr__(self, name, value)

            def __setattr__(self, name, value):
                if name in ["_torch_module", "_oneflow_module"]:
                    super().__setattr__(name, value)
    """)  # noqa: E501
    )
    in_a_fresh_process(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import oneflow as flow
        from onediff.infer_compiler.backends.oneflow.dual_module import DualModule
        pair = DualModule(flow.nn.Sequential(flow.nn.Linear(1, 1)))
        pair._oneflow_module = flow.nn.ReLU()
        assert isinstance(pair._oneflow_module, flow.nn.ReLU) and list(pair._modules) == ["0"]
    """)


def test_a_tracer_of_oneflow_programs_sees_modules_and_functions(tmp_path):
    """onefx's Tracer, reduced: it knows OneFlow's layers by the name of their module, and its functions from
    the modules' dicts.
    """
    (tmp_path / "onefx").mkdir()
    (tmp_path / "onefx" / "__init__.py").write_text("import oneflow")
    (tmp_path / "onefx" / "_symbolic_trace.py").write_text(
        textwrap.dedent("""
        import oneflow

        _oneflow_default_wrapped_packages = (oneflow, oneflow.nn.functional)

        class Tracer:
            def is_leaf_module(self, m, module_qualified_name):
                return m.__module__.startswith("oneflow.nn") and not isinstance(m, oneflow.nn.Sequential)
    """)
    )
    in_a_fresh_process(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from onefx._symbolic_trace import Tracer
        import oneflow as flow
        class Own(flow.nn.Module):
            pass
        leaf = lambda module: Tracer().is_leaf_module(module, "")
        assert all(map(leaf, (flow.nn.Linear(1, 1), flow.nn.AdaptiveAvgPool2d(1), flow.nn.FusedMLP(1, [1], 1))))
        assert not leaf(Own()) and not leaf(flow.nn.Sequential())
        assert vars(flow)["relu"] is flow.relu and "conv2d" in vars(flow.nn.functional)
    """)  # noqa: E501


def test_a_counter_of_operations_leaves_no_hooks(tmp_path):
    """flowflops' counting, reduced: hooks without handles, on layers whose counters are taken away at the
    end.
    """
    (tmp_path / "flowflops").mkdir()
    (tmp_path / "flowflops" / "__init__.py").touch()
    (tmp_path / "flowflops" / "flow_engine.py").write_text(
        textwrap.dedent("""
        def count(module, args, out):
            module.__flops__ += out.numel()

        def get_eager_flops(model, size):
            import oneflow
            for layer in model:
                layer.__flops__ = 0
                layer.register_forward_hook(count)
            model(oneflow.ones(size))
            return sum(layer.__dict__.pop("__flops__") for layer in model)
    """)
    )
    in_a_fresh_process(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import oneflow as flow
        from flowflops.flow_engine import get_eager_flops
        model, seen = flow.nn.Sequential(flow.nn.Linear(3, 2), flow.nn.ReLU()), []
        model[1].register_forward_hook(lambda *_: seen.append(1))
        assert get_eager_flops(model, (4, 3)) == get_eager_flops(model, (4, 3)) == 16
        model(flow.ones(4, 3))
        assert len(seen) == 3
    """)


@pytest.mark.slow
def test_transformers_runs_as_usual_after_oneflow():
    pytest.importorskip("transformers")
    out = in_a_fresh_process("""
        import oneflow as flow
        import torch
        from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
        small = dict(vocab_size=40, num_hidden_layers=2, num_attention_heads=2)
        torch.manual_seed(0)
        bert = BertForSequenceClassification(BertConfig(hidden_size=16, intermediate_size=32, max_position_embeddings=16, **small))
        gpt = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=16, vocab_size=40, bos_token_id=0, eos_token_id=0))
        ids = torch.randint(1, 40, (2, 8))
        loss = bert(input_ids=ids, labels=torch.tensor([0, 1])).loss + gpt(ids, labels=ids).loss
        loss.backward()
        print(gpt.eval().generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0).shape[0], bool(torch.isfinite(loss)))

        class Infer(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = bert.eval()
                self.config.set_backend("aten")

            def build(self, ids):
                return self.model(input_ids=ids).logits

        with torch.no_grad():
            print(torch.equal(Infer()(ids), bert(input_ids=ids).logits))
    """)  # noqa: E501
    assert out.split() == ["2", "True", "True"]
