"""Time, first-result time and peak memory of training steps and inference: nn.Graph against torch eager and torch.compile.

    python tests/benchmarks/graph.py [--models mlp,resnet18,...] [--variants eager,aten,...] [--optimizer sgd|adamw]
                                     [--rounds 20] [--batch small|large] [--inference] [--json out.json] [--device cpu|cuda]

Rounds are interleaved over the variants and medians are printed, so that a change of the machine's load hits
all alike. Numbers are comparable within one run only.
"""
import argparse
import copy
import json
import statistics
import time

import torch
from torch import nn

import oneflow as flow


def mlp():
    layers = []
    for _ in range(3):
        layers += [nn.Linear(256, 256, bias=False), nn.BatchNorm1d(256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def classes(model, x, y):
    out = model(x)
    return nn.functional.cross_entropy(getattr(out, "logits", out), y)


def language(model, ids):
    return model(input_ids=ids, labels=ids, use_cache=False).loss if "use_cache" in model.forward.__code__.co_varnames else model(input_ids=ids, labels=ids).loss


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(1000, 64), nn.LSTM(64, 64, 2, batch_first=True), nn.Linear(64, 1000)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def recurrent_loss(model, ids):
    return nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def flowvision(name):
    def make():
        import flowvision.models

        return getattr(flowvision.models, name)()

    return make


def transformer(config, model, **sizes):
    def make():
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**sizes)).train()

    return make


def images(size):
    return lambda n: (torch.randn(n, 3, size, size), torch.randint(0, 10, (n,)))


def tokens(vocabulary, length):
    return lambda n: (torch.randint(0, vocabulary, (n, length)),)


GPT = dict(vocab_size=1000, n_embd=128, n_layer=4, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
BERT = dict(vocab_size=1000, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, max_position_embeddings=64,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip

# name: (model, loss, batch of n, small n, large n)
MODELS = {
    "mlp": (mlp, classes, lambda n: (torch.randn(n, 256), torch.randint(0, 10, (n,))), 16, 512),
    "resnet18": (flowvision("resnet18"), classes, images(64), 2, 16),
    "resnet50": (flowvision("resnet50"), classes, images(64), 2, 16),
    "mobilenet_v2": (flowvision("mobilenet_v2"), classes, images(64), 2, 16),
    "gpt2": (transformer("GPT2Config", "GPT2LMHeadModel", **GPT), language, tokens(1000, 32), 2, 16),
    "bert": (transformer("BertConfig", "BertForMaskedLM", **BERT), language, tokens(1000, 32), 2, 16),
    "lstm": (Recurrent, recurrent_loss, tokens(1000, 16), 2, 32),
}
OPTIMIZERS = {
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **k),
    "adamw": lambda p, **k: torch.optim.AdamW(p, lr=1e-4, **k),
}


def eager_step(model, optimizer, loss_of):
    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def variant(name, model, make_optimizer, loss_of, inference):
    """A callable step(*batch) of one variant."""
    if name.startswith("graph"):
        backend = name.split("-")[1]

        class G(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.m = model
                if not inference:
                    self.add_optimizer(make_optimizer(model.parameters()))
                self.config.set_backend(backend)
                if "cudagraph" in name:
                    self.config.enable_cudagraph(True)

            def build(self, *batch):
                loss = loss_of(self.m, *batch)
                if not inference:
                    loss.backward()
                return loss

        return G()
    mode = {"mode": "reduce-overhead"} if "reduce" in name else {}
    compiled = torch.compile(model, **mode) if name.startswith("compile") and "step" not in name else model
    if inference:
        def run(*batch):
            with torch.no_grad():
                return loss_of(compiled, *batch)

        return torch.compile(run, **mode) if "step" in name else run
    step = eager_step(compiled, make_optimizer(model.parameters(), fused=True), loss_of)
    return torch.compile(step, **mode) if "step" in name else step


VARIANTS = ("eager", "compile", "compile-step", "graph-aten", "graph-inductor")


def measure(model_name, args):
    make, loss_of, batch_of, small, large = MODELS[model_name]
    torch.manual_seed(0)
    base = make()
    base.train(not args.inference)
    base.to(args.device)
    batch = tuple(t.to(args.device) for t in batch_of(small if args.batch == "small" else large))
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)
    steps, result = {}, {}
    for name in args.variants:
        torch._dynamo.reset()
        step = variant(name, copy.deepcopy(base), OPTIMIZERS[args.optimizer], loss_of, args.inference)
        start = time.perf_counter()
        step(*batch)
        sync()
        result[name] = {"first_s": time.perf_counter() - start}
        steps[name] = step
        for _ in range(2):
            step(*batch)
    times = {name: [] for name in steps}
    for _ in range(args.rounds):
        for name, step in steps.items():
            sync()
            start = time.perf_counter()
            step(*batch)
            sync()
            times[name].append(time.perf_counter() - start)
    for name, samples in times.items():
        result[name]["median_ms"] = statistics.median(samples) * 1e3
        result[name]["min_ms"] = min(samples) * 1e3
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="mlp,lstm,gpt2")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--optimizer", default="sgd", choices=sorted(OPTIMIZERS))
    parser.add_argument("--batch", default="small", choices=["small", "large"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.variants = args.variants.split(",")
    print(f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads, {args.optimizer}, {args.batch} batch, {'inference' if args.inference else 'training'}")
    table = {}
    for model in args.models.split(","):
        table[model] = measure(model, args)
        for name, row in table[model].items():
            print(f"{model:14} {name:16} {row['median_ms']:10.3f} ms (min {row['min_ms']:.3f})   first {row['first_s']:.2f} s", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"torch": torch.__version__, "args": vars(args), "results": table}, file, indent=1)


if __name__ == "__main__":
    main()
