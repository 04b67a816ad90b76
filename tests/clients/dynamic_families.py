"""Train 20 families of models at five sizes each, eager and in nn.Graph.

    python tests/clients/dynamic_families.py [NAME ...]

Two sizes of each batch differ from call to call: the number of samples, the length of sequences, or height
and width of images. On aten the losses, weights and buffers of all five steps equal eager's bit for bit.
Other backends round differently. For them both modes start each step from equal weights, and the script
prints the largest relative errors of a loss and of a weight update.

    make families BACKEND=aten       # about a minute
    make families                    # inductor: each family is compiled two to six times, about half an hour

Families whose package is not installed are listed as missing. Exit status 1 if a family fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

LENGTHS = (24, 16, 33, 8, 50)
BATCHES = (4, 7, 5, 9, 3)
IMAGES = ((64, 64), (96, 64), (64, 96), (128, 96), (96, 96))

# Float32 has 24 bits. Inductor sums in another order and has its own exp and tanh; a step of a deep network
# with batch norm over few values stretches the difference.
LOSS_ERROR, STEP_ERROR = 1e-4, 5e-3


@dataclass(frozen=True)
class Family:
    """`loss(module, *batch(size))` is trained at each size. `package` has the model."""

    package: str
    module: Callable[[], nn.Module]
    batch: Callable
    sizes: tuple
    loss: Callable


@dataclass(frozen=True)
class Outcome:
    """The programs that a graph made in five steps, and its errors against eager."""

    programs: int
    loss_error: float
    step_error: float
    are_bits_equal: bool
    seconds: float


# --------------------------------------------------------------------------- batches and losses
def tokens(length: int) -> tuple:
    return (torch.randint(0, 100, (2, length)),)


def images_of_batch(count: int) -> tuple:
    return (torch.randn(count, 3, 64, 64),)


def images(size: tuple[int, int]) -> tuple:
    return (torch.randn(2, 3, *size),)


def frames(length: int) -> tuple:
    return (torch.randn(2, length, 16),)


def pairs_of_sequences(length: int) -> tuple:
    return torch.randint(0, 20, (2, length)), torch.randint(0, 20, (2, length // 2 + 1))


def tensors_of(output: object) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        yield from tensors_of(list(output.values()))
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from tensors_of(item)


def squares(model: nn.Module, *batch: torch.Tensor) -> torch.Tensor:
    """The mean square of every floating-point result."""
    return sum(t.square().mean() for t in tensors_of(model(*batch)) if t.is_floating_point())


def language(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    options = {"use_cache": False} if "use_cache" in model.forward.__code__.co_varnames else {}
    return model(input_ids=ids, labels=ids, **options).loss


def last_hidden(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(pixel_values=x).last_hidden_state.square().mean()


def logits(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(pixel_values=x).logits.square().mean()


# --------------------------------------------------------------------------- models
def transformer(config: str, model: str, **sizes: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        transformers.logging.set_verbosity_error()
        return getattr(transformers, model)(getattr(transformers, config)(**sizes)).train()

    return make


def flowvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import flowvision.models

        return getattr(flowvision.models, name)(num_classes=10)

    return make


def timm(name: str, **options: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return make


class Attentive(nn.Module):
    """A bidirectional encoder and a decoder that attends to it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.query, self.head = nn.Embedding(20, 8), nn.Linear(16, 16), nn.Linear(16, 20)
        self.encoder = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(8, 16, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        encoded, states = self.encoder(self.words(source))
        hidden, cell = (torch.cat([s[0], s[1]], -1)[None] for s in states)
        decoded, _ = self.decoder(self.words(target), (hidden, cell))
        weights = (self.query(decoded) @ encoded.mT).softmax(-1)
        return self.head(decoded + weights @ encoded)


class Pyramid(nn.Module):
    """U-Net with three levels, skip connections and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(3, 8), self._block(8, 16), self._block(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.merge = nn.ModuleList([self._block(32, 16), self._block(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if levels else x)
            levels.append(x)
        for level, grow, merge in zip(levels[-2::-1], self.up, self.merge):
            x = merge(torch.cat([level, grow(x)], 1))
        return self.head(x)


class Detector(nn.Module):
    """A one-stage detector: anchors for each cell of a feature map, decoded boxes and focal scores."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, 4, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
        )
        self.scores, self.boxes = nn.Conv2d(32, 3 * 5, 3, padding=1), nn.Conv2d(32, 3 * 4, 3, padding=1)
        self.register_buffer("shapes", torch.tensor([[8.0, 8.0], [16.0, 8.0], [8.0, 16.0]]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.backbone(x)
        height, width = features.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centers = (torch.stack([columns, rows], -1).reshape(-1, 1, 2) + 0.5) * 8
        anchors = torch.cat([centers - self.shapes / 2, centers + self.shapes / 2], -1).reshape(-1, 4)
        shifts = self.boxes(features).unflatten(1, (3, 4)).permute(0, 3, 4, 1, 2).flatten(1, 3)
        scores = self.scores(features).unflatten(1, (3, 5)).permute(0, 3, 4, 1, 2).flatten(1, 3)
        return anchors + 8 * shifts, scores


def detection(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Overlap of all boxes with one box, and the focal loss of the scores of the background."""
    boxes, scores = model(x)
    truth = torch.tensor([8.0, 8.0, 40.0, 40.0])
    sides = (torch.minimum(boxes[..., 2:], truth[2:]) - torch.maximum(boxes[..., :2], truth[:2])).clamp(min=0)
    overlap = sides.prod(-1) / 1024
    background = scores.sigmoid()
    return (1 - overlap).mean() + (background.square() * F.softplus(scores)).mean()


def conformer() -> nn.Module:
    """Attention beside a gated depthwise convolution over the sequence."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
            self.gate, self.depthwise = nn.Conv1d(16, 32, 1), nn.Conv1d(16, 16, 7, padding=3, groups=16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm(x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.depthwise(F.glu(self.gate(x.mT), 1)).mT

    return nn.Sequential(Block(), Block(), nn.Linear(16, 16))


def without_dropout(module: nn.Module) -> nn.Module:
    """Compiled code samples other random numbers than eager."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module


_LAYERS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
_NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
_WORDS = dict(vocab_size=100, max_position_embeddings=64)

FAMILIES = {
    "GPT-2": Family(
        "transformers",
        transformer(
            "GPT2Config", "GPT2LMHeadModel", vocab_size=100, n_embd=32, n_layer=2, n_head=2, n_positions=64
        ),
        tokens,
        LENGTHS,
        language,
    ),
    "BERT": Family(
        "transformers",
        transformer("BertConfig", "BertForMaskedLM", **_WORDS, **_LAYERS, **_NO_DROPOUT),
        tokens,
        LENGTHS,
        language,
    ),
    "Llama": Family(
        "transformers",
        transformer("LlamaConfig", "LlamaForCausalLM", num_key_value_heads=1, **_WORDS, **_LAYERS),
        tokens,
        LENGTHS,
        language,
    ),
    "T5": Family(
        "transformers",
        transformer(
            "T5Config",
            "T5ForConditionalGeneration",
            vocab_size=100,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        ),
        tokens,
        LENGTHS,
        language,
    ),
    "Mamba": Family(
        "transformers",
        transformer(
            "MambaConfig",
            "MambaForCausalLM",
            vocab_size=100,
            hidden_size=32,
            state_size=4,
            num_hidden_layers=1,
        ),
        lambda count: (torch.randint(0, 100, (count, 6)),),
        BATCHES,
        language,
    ),
    "ViT": Family(
        "transformers",
        transformer("ViTConfig", "ViTModel", image_size=64, patch_size=16, **_LAYERS, **_NO_DROPOUT),
        images_of_batch,
        BATCHES,
        last_hidden,
    ),
    "SegFormer": Family(
        "transformers",
        transformer(
            "SegformerConfig",
            "SegformerForSemanticSegmentation",
            num_encoder_blocks=2,
            depths=[1, 1],
            sr_ratios=[4, 2],
            hidden_sizes=[16, 32],
            patch_sizes=[7, 3],
            strides=[4, 2],
            num_attention_heads=[1, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=16,
            classifier_dropout_prob=0.0,
            drop_path_rate=0.0,
            **_NO_DROPOUT,
        ),
        images_of_batch,
        BATCHES,
        logits,
    ),
    "ConvNeXt": Family(
        "transformers",
        transformer(
            "ConvNextConfig",
            "ConvNextModel",
            hidden_sizes=[16, 32],
            depths=[1, 1],
            num_stages=2,
            image_size=64,
        ),
        images_of_batch,
        BATCHES,
        last_hidden,
    ),
    "Swin": Family(
        "transformers",
        transformer(
            "SwinConfig",
            "SwinModel",
            image_size=64,
            patch_size=4,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[1, 2],
            window_size=4,
            drop_path_rate=0.0,
            **_NO_DROPOUT,
        ),
        images_of_batch,
        BATCHES,
        last_hidden,
    ),
    "YOLOS, detection": Family(
        "transformers",
        transformer(
            "YolosConfig",
            "YolosForObjectDetection",
            image_size=[64, 64],
            patch_size=16,
            num_detection_tokens=5,
            **_LAYERS,
            **_NO_DROPOUT,
        ),
        images_of_batch,
        BATCHES,
        lambda model, x: (lambda out: out.logits.square().mean() + out.pred_boxes.mean())(model(x)),
    ),
    "detector with anchors": Family("torch", Detector, images, IMAGES, detection),
    "U-Net": Family("torch", Pyramid, images, IMAGES, squares),
    "LSTM encoder and decoder": Family("torch", Attentive, pairs_of_sequences, LENGTHS, squares),
    "GRU over the batch": Family(
        "torch",
        lambda: nn.GRU(16, 16, 2, batch_first=True),
        lambda count: (torch.randn(count, 6, 16),),
        BATCHES,
        squares,
    ),
    "conformer": Family("torch", conformer, frames, LENGTHS, squares),
    "transformer, encoder and decoder": Family(
        "torch",
        lambda: nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True),
        lambda length: (torch.randn(2, length, 16), torch.randn(2, length // 2, 16)),
        LENGTHS,
        squares,
    ),
    "ResNet": Family("flowvision", flowvision("resnet18"), images, IMAGES, squares),
    "MobileNetV3": Family("flowvision", flowvision("mobilenet_v3_small"), images_of_batch, BATCHES, squares),
    "ShuffleNet": Family("flowvision", flowvision("shufflenet_v2_x0_5"), images_of_batch, BATCHES, squares),
    "SqueezeNet": Family("flowvision", flowvision("squeezenet1_1"), images, IMAGES, squares),
    "timm ResNet": Family("timm", timm("resnet10t", num_classes=10), images_of_batch, BATCHES, squares),
    "timm ConvNeXt": Family(
        "timm", timm("convnext_atto", depths=(1, 1, 1, 1), num_classes=10), images, IMAGES, squares
    ),
    "timm ViT": Family(
        "timm", timm("vit_tiny_patch16_224", img_size=64, depth=2), images_of_batch, BATCHES, squares
    ),
    "timm Swin": Family(
        "timm",
        timm(
            "swin_tiny_patch4_window7_224",
            img_size=56,
            depths=(1, 1, 1, 1),
            num_heads=(1, 2, 2, 4),
            embed_dim=24,
            drop_path_rate=0.0,
        ),
        lambda count: (torch.randn(count, 3, 56, 56),),
        BATCHES,
        squares,
    ),
}


class Training(flow.nn.Graph):
    def __init__(self, module: nn.Module, loss: Callable, optimizer: object, backend: str) -> None:
        super().__init__()
        self.module, self.loss = module, loss
        self.add_optimizer(optimizer)
        self.config.set_backend(backend)

    def build(self, *batch: torch.Tensor) -> torch.Tensor:
        loss = self.loss(self.module, *batch)
        loss.backward()
        return loss


def relative_change(module: nn.Module, reference: nn.Module, before: dict) -> float:
    """Return the distance of two modules after a step over the length of the step of the reference."""
    distance = length = 0.0
    for name, value in reference.state_dict().items():
        if value.is_floating_point():
            distance += (module.state_dict()[name] - value).double().square().sum().item()
            length += (value - before[name]).double().square().sum().item()
    return (distance / length) ** 0.5 if length else distance**0.5


def are_equal(module: nn.Module, reference: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), reference.state_dict().values())
    )


def train(name: str, backend: str) -> Outcome:
    """Train a family at its sizes in both modes. Each step starts from the weights of the eager one."""
    family, begin = FAMILIES[name], cpu_seconds()
    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        modules.append(without_dropout(family.module()))
    reference, module = modules
    optimizer, own = (torch.optim.SGD(m.parameters(), lr=0.01) for m in modules)
    graph = Training(module, family.loss, own, backend)
    loss_error, step_error, are_bits_equal = 0.0, 0.0, True
    for seed, size in enumerate(family.sizes):
        torch.manual_seed(seed)
        batch = family.batch(size)
        before = {key: value.clone() for key, value in reference.state_dict().items()}
        optimizer.zero_grad()
        torch.manual_seed(seed)
        expected = family.loss(reference, *batch)
        expected.backward()
        optimizer.step()
        torch.manual_seed(seed)
        loss = graph(*batch).detach()
        are_bits_equal &= torch.equal(loss, expected.detach()) and are_equal(module, reference)
        loss_error = max(loss_error, abs(loss.item() / expected.item() - 1))
        step_error = max(step_error, relative_change(module, reference, before))
        module.load_state_dict(reference.state_dict())
    programs = len(graph._engine.programs)
    return Outcome(programs, loss_error, step_error, are_bits_equal, cpu_seconds() - begin)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the compilers that it started."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(FAMILIES[name].package) is not None


def is_right(outcome: Outcome, backend: str) -> bool:
    """Whether a family gave eager's bits on aten, or eager's values within rounding on another backend."""
    if backend == "aten":
        return outcome.are_bits_equal
    return outcome.loss_error <= LOSS_ERROR and outcome.step_error <= STEP_ERROR


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="families; all if none is named")
    parser.add_argument("--backend", default="inductor")
    options = parser.parse_args()
    failed = 0
    for name in options.names or FAMILIES:
        if not is_installed(name):
            print(f"{name:34} missing: pip install {FAMILIES[name].package}", flush=True)
            continue
        try:
            outcome = train(name, options.backend)
        except Exception as error:
            print(f"{name:34} FAILED {type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)
            failed += 1
            continue
        right = is_right(outcome, options.backend)
        failed += not right
        error = f"loss {outcome.loss_error:.1e}, step {outcome.step_error:.1e}"
        print(
            f"{name:34} {'ok' if right else 'WRONG':6} {outcome.programs} programs, "
            f"{'equal bits' if outcome.are_bits_equal else error},"
            f" {outcome.seconds:.0f} CPU s",
            flush=True,
        )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
