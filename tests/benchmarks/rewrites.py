"""Measure the benefit of each rewrite of a graph: a training step with every option on, against the same step
without one pass.

    python tests/benchmarks/rewrites.py [--cases gpt2,clip,...] [--rounds 15] [--inference]
        [--device cpu|cuda]

A figure is the time without the pass divided by the time with it: 1.20 means that the step is 20% slower
without the pass. Rounds of the variants are interleaved and medians are compared. Figures are comparable
within one case only.
"""

import argparse
import copy
import statistics
import time

import torch
from torch import nn

import oneflow as flow

PASSES = (
    "fuse_activations",
    "fuse_bias_gelu",
    "fuse_dropout",
    "fuse_softmax",
    "scale_into_matmul",
    "add_to_matmul",
    "skip_overflow",
    "scale_in_update",
)


class Block(nn.Module):
    """A transformer layer with everything written out: masked attention, quick gelu, dropout."""

    def __init__(self, width, heads, p):
        super().__init__()
        self.heads, self.p = heads, p
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, masked):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = (torch.matmul(q, k.transpose(-1, -2)) * (w // self.heads) ** -0.5).masked_fill(masked, -1e9)
        weights = nn.functional.dropout(torch.softmax(scores, -1), self.p)
        x = x + nn.functional.dropout(
            self.out(torch.matmul(weights, v).transpose(1, 2).reshape(b, n, w)), self.p
        )
        h = self.up(self.norm2(x))
        return x + nn.functional.dropout(self.down(h * torch.sigmoid(1.702 * h)), self.p)


class Clip(nn.Module):
    def __init__(self, width=256, layers=4, p=0.1):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, 4, p) for _ in range(layers))

    def forward(self, x):
        n = x.shape[1]
        masked = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        for block in self.blocks:
            x = block(x, masked)
        return x


class Wide(nn.Module):
    """Hardly any computation for many parameters: the update is the step."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))

    def forward(self, x):
        return self.layers(x)


class Biased(nn.Module):
    """Feed-forward layers of a library that adds the bias apart from the product."""

    def __init__(self, width=256, layers=4):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))

    def forward(self, x):
        for up, down in zip(self.up, self.down):
            x = x + down(nn.functional.gelu(torch.matmul(x, up.weight.t()) + up.bias))
        return x


class Unrolled(nn.Module):
    """A recurrent cell in plain operators: the gradients of its weights are sums over the steps."""

    def __init__(self, width=256):
        super().__init__()
        self.x, self.h = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        h = x[:, 0]
        for t in range(x.shape[1]):
            h = torch.tanh(self.x(x[:, t]) + self.h(h))
        return h


def transformer(config, model, **sizes):
    def make():
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**sizes))

    return make


def language(model, ids):
    return model(input_ids=ids, labels=ids).loss


GPT = dict(
    vocab_size=1000,
    n_embd=256,
    n_layer=4,
    n_head=4,
    n_positions=256,
    bos_token_id=1,
    eos_token_id=1,
    pad_token_id=1,
    attn_implementation="eager",
    use_cache=False,
)
BERT = dict(
    vocab_size=1000,
    hidden_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=1024,
    max_position_embeddings=512,
    attn_implementation="eager",
)
DRY = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def ids(batch, length):
    return lambda: (torch.randint(0, 1000, (batch, length)),)


def square(model, x):
    return model(x).square().mean()


# name: (model, loss, batch)
CASES = {
    "gpt2": (transformer("GPT2Config", "GPT2LMHeadModel", **GPT), language, ids(4, 128)),
    "gpt2 small": (
        transformer("GPT2Config", "GPT2LMHeadModel", **dict(GPT, n_embd=64, n_layer=2), **DRY),
        language,
        ids(2, 32),
    ),
    "gpt2 long": (transformer("GPT2Config", "GPT2LMHeadModel", **GPT, **DRY), language, ids(1, 256)),
    "bert": (transformer("BertConfig", "BertForMaskedLM", **BERT), language, ids(4, 128)),
    "bert long": (
        transformer(
            "BertConfig", "BertForMaskedLM", **BERT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        ),
        language,
        ids(1, 512),
    ),
    "clip": (Clip, square, lambda: (torch.randn(4, 128, 256),)),
    "clip long": (lambda: Clip(layers=2, p=0.0), square, lambda: (torch.randn(1, 512, 256),)),
    "biased": (Biased, square, lambda: (torch.randn(4, 128, 256),)),
    "unrolled": (Unrolled, square, lambda: (torch.randn(16, 16, 256),)),
    "wide": (Wide, square, lambda: (torch.randn(4, 1024),)),
}


def make(model, loss_of, inference, options, skip=(), scaler=True):
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.config.set_backend("aten")
            if not inference:
                group = {
                    "params": list(model.parameters()),
                    "clip_grad_max_norm": 1.0,
                    "clip_grad_norm_type": 2.0,
                }
                self.add_optimizer(torch.optim.AdamW([group], lr=1e-4))
                self.config.allow_fuse_model_update_ops(True)
                if scaler:
                    self.set_grad_scaler(flow.amp.GradScaler())
            if options:
                self.config.allow_fuse_compositions(True, dropout=True)
                self.config.allow_fuse_add_to_output(True)
            self.config.passes(skip=skip)

        def build(self, *batch):
            loss = loss_of(self.m, *batch)
            if not inference:
                loss.backward()
            return loss

    return G()


def measure(name, args):
    construct, loss_of, batch_of = CASES[name]
    torch.manual_seed(0)
    base = construct().train(not args.inference).to(args.device)
    batch = tuple(t.to(args.device) for t in batch_of())
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)
    # of a busy machine, the thread's own time
    clock = time.perf_counter if args.device == "cuda" or torch.get_num_threads() > 1 else time.thread_time
    off = PASSES[-2:]
    steps = {
        "captured": make(copy.deepcopy(base), loss_of, args.inference, False, off),
        "all": make(copy.deepcopy(base), loss_of, args.inference, True),
    }
    steps["all"](*batch)
    shrunk = {stage: count for stage, _, count in steps["all"].program.history}
    for p in PASSES:
        if p in shrunk:
            steps[p] = make(copy.deepcopy(base), loss_of, args.inference, True, (p,))
    for step in steps.values():
        step(*batch), step(*batch)
    same = [
        n
        for n in steps
        if n in PASSES
        and [str(x.target) for x in steps[n].program.graph.nodes]
        == [str(x.target) for x in steps["all"].program.graph.nodes]
    ]
    same = [n for n in same if n not in ("scale_in_update", "skip_overflow")]
    times = {n: [] for n in steps if n not in same}
    for _ in range(args.rounds):
        for n in times:
            sync()
            start = clock()
            steps[n](*batch)
            sync()
            times[n].append(clock() - start)
    return {n: statistics.median(t) * 1e3 for n, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads, aten,"
        f" {'inference' if args.inference else 'training, AdamW, clipped, GradScaler'}"
    )
    for name in args.cases.split(","):
        measured = measure(name, args)
        whole = measured.pop("all")
        print(
            f"{name:12} {whole:9.3f} ms  all of them {measured.pop('captured') / whole:.2f}   "
            + "  ".join(f"{p} {t / whole:.2f}" for p, t in measured.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
