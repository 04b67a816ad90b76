"""Train models of public libraries eager and in nn.Graph, and print a table.

    python tests/clients/third_party.py [NAME ...]

Each program runs a few steps on random data with the same seed in both modes. A program passes if the losses
are finite and agree to a relative error of 1e-5. Libraries that are not installed are listed as missing, with
the command that installs them; so are modules that a library imports. All but libai (whose installation needs
pybind11 and --no-build-isolation): pip install flowvision einops vit-pytorch transformers safetensors Exit
status 1 if a program fails. `--backend` chooses the backend of nn.Graph.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata

import oneflow as flow
from oneflow import nn
from oneflow.nn import functional as F

CLASSES, STEPS, TOLERANCE = 10, 3, 1e-5


@dataclass(frozen=True)
class Training:
    """What a program trains: `loss(model, *batch)` on each batch, updated by the optimizer."""

    model: nn.Module
    batches: list
    loss: Callable
    optimizer: Callable = field(default=lambda parameters: flow.optim.SGD(parameters, lr=0.01, momentum=0.9))
    after_step: Callable = field(default=lambda model, step: None)


@dataclass(frozen=True)
class Program:
    """One row of the table: `make()` builds a fresh Training from the library `package`."""

    name: str
    package: str
    make: Callable[[], Training]


def pictures(size: int, count: int = STEPS, batch: int = 2) -> list:
    """Random images and class indices."""
    return [(flow.randn(batch, 3, size, size), flow.randint(0, CLASSES, (batch,))) for _ in range(count)]


def classified(model, x, y):
    out = model(x)
    return F.cross_entropy(out[0] if isinstance(out, tuple) else out, y)


# --------------------------------------------------------------------------- flowvision
def flowvision_model(name: str, size: int, **options):
    def make():
        from flowvision.models.registry import ModelCreator

        return Training(
            ModelCreator.create_model(name, pretrained=False, num_classes=CLASSES, **options),
            pictures(size),
            classified,
        )

    return make


def flowvision_recipe():
    """Parts of flowvision's training recipe: soft targets of mixed pictures and a moving average of the
    weights.
    """
    from flowvision.loss.cross_entropy import SoftTargetCrossEntropy
    from flowvision.models import resnet18
    from flowvision.utils import ModelEmaV2

    model, criterion = resnet18(num_classes=CLASSES), SoftTargetCrossEntropy()
    average = ModelEmaV2(model, decay=0.9)
    return Training(
        model,
        [soft(x, y) for x, y in pictures(32)],
        lambda model, x, y: criterion(model(x), y),
        after_step=lambda model, step: average.update(model),
    )


def soft(x, y):
    """A batch mixed with itself in reverse, and its soft targets."""
    from flowvision.data.mixup import mixup_target

    return 0.7 * x + 0.3 * x.flip(0), mixup_target(y, CLASSES, lam=0.7, smoothing=0.1, device="cpu")


def flowvision_smoothing():
    from flowvision.loss.cross_entropy import LabelSmoothingCrossEntropy
    from flowvision.models import mobilenet_v3_small

    criterion = LabelSmoothingCrossEntropy(smoothing=0.1)
    model = mobilenet_v3_small(num_classes=CLASSES)
    model.classifier[2] = nn.Identity()  # dropout samples other masks in the second run
    return Training(
        model,
        pictures(32),
        lambda model, x, y: criterion(model(x), y),
        lambda parameters: flow.optim.AdamW(parameters, lr=1e-3),
    )


# --------------------------------------------------------------------------- einops
def einops_layers():
    """A network of einops' OneFlow layers."""
    from einops.layers.oneflow import EinMix, Rearrange, Reduce

    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8),
        nn.Linear(192, 32),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=32, d=32),
        nn.GELU(),
        Reduce("b t c -> b c", "mean"),
        nn.Linear(32, CLASSES),
    )
    return Training(model, pictures(32), classified)


def einops_functions():
    """einops' functions inside forward()."""
    from einops import pack, rearrange, reduce, repeat, unpack

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.head = nn.Linear(48, 16), nn.Linear(65, 65), nn.Linear(16, CLASSES)
            self.token = nn.Parameter(flow.zeros(1, 1, 16))

        def forward(self, x):
            x = self.embed(rearrange(x, "b c (h p) (w q) -> b h w (p q c)", p=4, q=4))
            x, shapes = pack([repeat(self.token, "1 1 c -> b t c", b=x.shape[0], t=1), x], "b * c")
            x = x + rearrange(self.mix(rearrange(x, "b t c -> b c t")), "b c t -> b t c")
            token, grid = unpack(x, shapes, "b * c")
            return self.head(reduce(grid, "b h w c -> b c", "mean") + token[:, 0])

    return Training(Mixer(), pictures(32), classified)


# --------------------------------------------------------------------------- libai
@contextlib.contextmanager
def names_of_numpy_1():
    """libai 0.1.1 is written for NumPy before 1.24, which had these names."""
    import numpy

    old = {name: kind for name, kind in (("float", float), ("int", int)) if not hasattr(numpy, name)}
    vars(numpy).update(old)
    try:
        yield
    finally:
        for name in old:
            delattr(numpy, name)


def libai_gpt():
    """libai's GPT of parallel layers, on a placement of one rank; batches are global tensors."""
    with names_of_numpy_1():
        from libai.models.gpt_model import GPTLoss, GPTModel
        from libai.utils import distributed

    placement = distributed.get_layer_placement(0)
    sbp = distributed.get_nd_sbp([flow.sbp.split(0), flow.sbp.broadcast])
    model, criterion = GPTModel(2, 32, 16, 32, 2, max_seq_length=12), GPTLoss()
    tokens = [
        [flow.randint(0, 32, (4, 12)).to_global(placement, sbp) for _ in range(2)] for _ in range(STEPS)
    ]
    return Training(
        model,
        tokens,
        lambda model, ids, labels: next(iter(criterion(model(ids), labels).values())),
        lambda parameters: flow.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1),
    )


# --------------------------------------------------------------------------- libraries for PyTorch
def under_mock(module: str):
    """A library for PyTorch imported with `import torch` redirected to oneflow.

    The package's own __init__ is left out: that of vit-pytorch imports torchvision, which its models do not
    need.
    """
    from oneflow import mock_torch

    package = module.partition(".")[0]
    if package not in sys.modules:
        bare = types.ModuleType(package)
        bare.__path__ = importlib.util.find_spec(package).submodule_search_locations  # type: ignore
        sys.modules[package] = bare
    with mock_torch.enable():
        return importlib.import_module(module)


def vit_pytorch_model(module: str, cls: str, **options):
    def make():
        kind = getattr(under_mock(f"vit_pytorch.{module}"), cls)
        return Training(
            kind(num_classes=CLASSES, **options),
            pictures(32),
            classified,
            lambda parameters: flow.optim.Adam(parameters, lr=1e-3),
        )

    return make


def transformers_model(cls: str, config: str, **options):
    """A language model of transformers with random weights, trained on random tokens."""

    def make():
        transformers = importlib.import_module("transformers")
        model = getattr(transformers, cls)(getattr(transformers, config)(vocab_size=64, **options))
        tokens = [(flow.randint(0, 64, (2, 16)),) for _ in range(STEPS)]
        return Training(
            model,
            tokens,
            lambda model, ids: model(input_ids=ids, labels=ids, return_dict=False)[0],
            lambda parameters: flow.optim.AdamW(parameters, lr=1e-3),
        )

    return make


def safetensors_weights():
    """Weights written and read with safetensors, then trained."""
    from safetensors.torch import load, save

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )
    model.load_state_dict(load(save(model.state_dict())))
    return Training(model, pictures(16), classified)


PROGRAMS = (
    *(
        Program(f"flowvision {name}", "flowvision", flowvision_model(name, size))
        for name, size in (
            ("resnet18", 32),
            ("shufflenet_v2_x0_5", 32),
            ("regnet_y_400mf", 32),
            ("res2net50_26w_4s", 32),
        )
    ),
    Program("flowvision training recipe", "flowvision", flowvision_recipe),
    Program("flowvision label smoothing", "flowvision", flowvision_smoothing),
    Program("einops layers", "einops", einops_layers),
    Program("einops functions", "einops", einops_functions),
    Program("libai GPT", "libai", libai_gpt),
    Program(
        "vit-pytorch ViT",
        "vit-pytorch",
        vit_pytorch_model("vit", "ViT", image_size=32, patch_size=8, dim=32, depth=2, heads=2, mlp_dim=64),
    ),
    Program(
        "vit-pytorch SimpleViT",
        "vit-pytorch",
        vit_pytorch_model(
            "simple_vit", "SimpleViT", image_size=32, patch_size=8, dim=32, depth=2, heads=2, mlp_dim=64
        ),
    ),
    Program(
        "vit-pytorch CaiT",
        "vit-pytorch",
        vit_pytorch_model(
            "cait", "CaiT", image_size=32, patch_size=8, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=64
        ),
    ),
    Program(
        "transformers GPT-2",
        "transformers",
        transformers_model(
            "GPT2LMHeadModel",
            "GPT2Config",
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=32,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        ),
    ),
    Program(
        "transformers BERT",
        "transformers",
        transformers_model(
            "BertForMaskedLM",
            "BertConfig",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
    ),
    Program(
        "transformers Llama",
        "transformers",
        transformers_model(
            "LlamaForCausalLM",
            "LlamaConfig",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=64,
        ),
    ),
    Program("safetensors weights", "safetensors", safetensors_weights),
)


# --------------------------------------------------------------------------- both modes
class TrainGraph(nn.Graph):
    def __init__(self, training: Training, optimizer, backend: str):
        super().__init__()
        self.model, self.loss = training.model, training.loss
        self.add_optimizer(optimizer)
        if backend:
            self.config.set_backend(backend)

    def build(self, *batch):
        loss = self.loss(self.model, *batch)
        loss.backward()
        return loss


def losses(program: Program, in_graph: bool, backend: str) -> list[float]:
    """The loss of each step of a fresh training."""
    flow.manual_seed(0)
    training = program.make()
    training.model.train()
    optimizer = training.optimizer(training.model.parameters())
    graph = TrainGraph(training, optimizer, backend) if in_graph else None
    flow.manual_seed(1)
    losses = []
    for step, batch in enumerate(training.batches):
        if graph is not None:
            loss = graph(*batch)
        else:
            loss = training.loss(training.model, *batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        training.after_step(training.model, step)
        losses.append(loss.item())
    return losses


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def row(program: Program, backend: str) -> dict:
    """Run one program in both modes."""
    version = version_of(program.package)
    if version is None:
        return {"program": program.name, "version": "-", "result": f"missing: pip install {program.package}"}
    cells = {"program": program.name, "version": version}
    try:
        begin = time.perf_counter()
        eager = losses(program, False, backend)
        middle = time.perf_counter()
        graph = losses(program, True, backend)
        end = time.perf_counter()
    except ModuleNotFoundError as error:
        return {**cells, "result": f"missing: pip install {error.name}"}
    except Exception as error:  # a row of the table; the programs after it run
        return {**cells, "result": f"FAILED: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    apart = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(eager, graph))
    passed = apart <= TOLERANCE and all(map(math.isfinite, eager))
    return {
        **cells,
        "eager": f"{eager[0]:.4f} -> {eager[-1]:.4f}",
        "graph": f"{graph[0]:.4f} -> {graph[-1]:.4f}",
        "apart": f"{apart:.1e}",
        "seconds": f"{middle - begin:.1f} / {end - middle:.1f}",
        "result": "equal" if passed else "FAILED: losses differ",
    }


COLUMNS = (
    ("program", 32),
    ("version", 9),
    ("eager", 20),
    ("graph", 20),
    ("apart", 8),
    ("seconds", 12),
    ("result", 0),
)


def line(cells: dict) -> str:
    return "  ".join(cells.get(name, "").ljust(width) for name, width in COLUMNS).rstrip()


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="run only the programs whose names contain one of these")
    parser.add_argument(
        "--backend", default="aten", help="backend of nn.Graph (default: aten, which gives eager's bits)"
    )
    options = parser.parse_args(argv)
    chosen = [p for p in PROGRAMS if not options.names or any(name in p.name for name in options.names)]
    if not chosen:
        parser.error(
            f"no program is called like {options.names}; there are: {', '.join(p.name for p in PROGRAMS)}"
        )
    print(line({name: name for name, _ in COLUMNS}))
    failed = 0
    for program in chosen:
        with contextlib.redirect_stdout(sys.stderr):
            cells = row(program, options.backend)
        failed += cells["result"].startswith("FAILED")
        print(line(cells), flush=True)
    print(f"{len(chosen)} programs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
