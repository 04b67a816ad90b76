"""Small trainings of libraries for PyTorch: each function returns a model, a loss and the arguments of the
calls.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 3


@dataclass(frozen=True)
class Training:
    """What a step trains: `loss(model, *batch)` of each batch, and whether the optimizer needs no
    other one.
    """

    model: nn.Module
    loss: Callable[..., torch.Tensor]
    batches: list[tuple[Any, ...]]
    optimizer: Callable[..., Any] = torch.optim.AdamW


def library(name: str) -> Any:
    """Import a library, or skip the test."""
    return pytest.importorskip(name, reason=f"needs the package {name.partition('.')[0]}")


def batches(*shape: int) -> list[tuple[torch.Tensor]]:
    """Return random inputs."""
    return [(torch.randn(shape),) for _ in range(STEPS)]


def tokens(batch: int = 2, length: int = 12, vocabulary: int = 64) -> list[tuple[torch.Tensor]]:
    """Return random tokens."""
    return [(torch.randint(1, vocabulary, (batch, length)),) for _ in range(STEPS)]


def square_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return a loss of the output."""
    return model(x).pow(2).mean()


class Wrapped(nn.Module):
    """A linear layer before a function of its output."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(inputs, outputs), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.layer(x))


# --------------------------------------------------------------------------- transformers
_TEXT = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_SMALL = {**_TEXT, "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0}
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "GPTNeoXForCausalLM": _SMALL,
    "LlamaForCausalLM": {**_SMALL, "num_key_value_heads": 1},
    "MistralForCausalLM": {**_SMALL, "num_key_value_heads": 1, "sliding_window": 4},
    "MixtralForCausalLM": {**_SMALL, "num_key_value_heads": 1, "num_local_experts": 4},
    "Qwen2ForCausalLM": {**_SMALL, "num_key_value_heads": 1},
    "Qwen3ForCausalLM": {**_SMALL, "num_key_value_heads": 1, "head_dim": 16},
    "GemmaForCausalLM": {**_SMALL, "num_key_value_heads": 1, "head_dim": 16},
    "PhiForCausalLM": _SMALL,
    "OPTForCausalLM": {
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "ffn_dim": 48,
        "word_embed_proj_dim": 32,
    },
    "BloomForCausalLM": {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 2},
    "FalconForCausalLM": _TEXT,
    "MambaForCausalLM": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "BertForMaskedLM": _SMALL,
    "RobertaForMaskedLM": _SMALL,
    "ElectraForMaskedLM": {**_SMALL, "embedding_size": 32},
    "AlbertForMaskedLM": {**_SMALL, "embedding_size": 32},
    "DebertaV2ForMaskedLM": {**_SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "DistilBertForMaskedLM": {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    "T5ForConditionalGeneration": {
        "vocab_size": 64,
        "d_model": 32,
        "d_ff": 48,
        "d_kv": 16,
        "num_layers": 2,
        "num_heads": 2,
        "decoder_start_token_id": 0,
    },
    "BartForConditionalGeneration": {
        "vocab_size": 64,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
    },
}


def language_model(name: str) -> Callable[[], Training]:
    """Return a training of a model of transformers on random tokens."""

    def make() -> Training:
        cls = getattr(library("transformers"), name)
        model = cls(cls.config_class(**LANGUAGE_MODELS[name]))
        return Training(model, lambda model, ids: model(input_ids=ids, labels=ids).loss, tokens())

    return make


# --------------------------------------------------------------------------- x-transformers, einops
def decoder(**options: Any) -> Callable[[], Training]:
    """Return a training of a decoder of x-transformers."""

    def make() -> Training:
        x = library("x_transformers")
        layers = x.Decoder(dim=32, depth=2, heads=2, **options)
        model = x.AutoregressiveWrapper(
            x.TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)
        )
        return Training(model, lambda model, ids: model(ids), tokens())

    return make


DECODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True, "alibi_num_heads": 1},
    "relative": {"rel_pos_bias": True},
    "swiglu": {"ff_glu": True, "ff_swish": True},
    "rmsnorm": {"use_rmsnorm": True},
    "talking-heads": {"attn_pre_talking_heads": True},
    "gate-values": {"attn_gate_values": True},
    "sandwich": {"sandwich_norm": True},
    "dropout": {"attn_dropout": 0.1, "ff_dropout": 0.1},
    "shift-tokens": {"shift_tokens": 1},
    "qk-norm": {"attn_qk_norm": True},
    "one-kv-head": {"attn_one_kv_head": True},
    "sparse-topk": {"attn_sparse_topk": 4},
    "layer-dropout": {"layer_dropout": 0.3},
}


def einops_network() -> Training:
    """A network of einops' layers."""
    layers = library("einops.layers.torch")
    model = nn.Sequential(
        layers.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        layers.EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=48, d=16),
        nn.GELU(),
        layers.Reduce("b t c -> b c", "mean"),
        nn.Linear(16, 4),
    )
    return Training(model, square_of, batches(2, 3, 16, 16))


# --------------------------------------------------------------------------- probability
def flow_of_zuko(name: str, **options: Any) -> Callable[[], Training]:
    """Return a training of a normalizing flow of zuko by maximum likelihood."""

    def make() -> Training:
        cls = getattr(library("zuko.flows"), name)
        model = cls(features=3, context=2, **options)

        def loss(model: nn.Module, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return -model(c).log_prob(x).mean()

        return Training(model, loss, [(torch.rand(8, 3) - 0.5, torch.randn(8, 2)) for _ in range(STEPS)])

    return make


ZUKO: dict[str, dict[str, Any]] = {
    "NICE": {"hidden_features": (16,)},
    "MAF": {"hidden_features": (16,)},
    "NSF": {"hidden_features": (16,)},
    "NCSF": {"hidden_features": (16,)},
    "SOSPF": {"hidden_features": (16,)},
    "NAF": {"hidden_features": (16,)},
    "UNAF": {"hidden_features": (16,)},
    "BPF": {"hidden_features": (16,)},
    "GF": {"hidden_features": (16,)},
    "GMM": {"hidden_features": (16,)},
    "CNF": {"hidden_features": (16,)},
}


def gaussian_process() -> Training:
    """An exact Gaussian process of GPyTorch."""
    gpytorch = library("gpytorch")
    x = torch.linspace(0, 1, 12)

    class Process(gpytorch.models.ExactGP):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__(x, x.sin(), gpytorch.likelihoods.GaussianLikelihood())
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.RBFKernel()

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Process()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return Training(model, lambda model, y: -likelihood(model(x), y), [(x.sin(),)] * STEPS)


def variational_inference() -> Training:
    """A variational posterior of torch.distributions, with pyro's transforms."""
    transforms = library("pyro.distributions.transforms")
    model = transforms.Planar(3)

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        return y.pow(2).mean() - model.log_abs_det_jacobian(x, y).mean()

    return Training(model, loss, batches(8, 3))


# --------------------------------------------------------------------------- others
def attention_of_entmax(name: str) -> Callable[[], Training]:
    """Return a training through a sparse softmax of entmax."""

    def make() -> Training:
        return Training(Wrapped(getattr(library("entmax"), name), 6, 5), square_of, batches(4, 6))

    return make


def loss_of_entmax(name: str) -> Callable[[], Training]:
    """Return a training with a sparse loss of entmax."""

    def make() -> Training:
        criterion = getattr(library("entmax"), name)()
        pairs = [(torch.randn(4, 6), torch.randint(0, 5, (4,))) for _ in range(STEPS)]
        return Training(nn.Linear(6, 5), lambda model, x, y: criterion(model(x), y).sum(), pairs)

    return make


def ordinary_differential_equation(method: str) -> Callable[[], Training]:
    """Return a training through a solver of torchdiffeq."""

    def make() -> Training:
        odeint = library("torchdiffeq").odeint
        model, times = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)), torch.linspace(0, 1, 4)

        def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return odeint(lambda t, y: model(y), x, times, method=method).pow(2).mean()

        return Training(model, loss, batches(4, 3))

    return make


def filtered_by_kornia(path: str, *args: Any, **options: Any) -> Callable[[], Training]:
    """Return a training of a convolution before a function of kornia."""

    def make() -> Training:
        module, _, name = path.rpartition(".")
        function = getattr(library(f"kornia.{module}"), name)
        convolution = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Sigmoid())
        return Training(
            convolution,
            lambda model, x: function(model(x), *args, **options).pow(2).mean(),
            batches(2, 3, 16, 16),
        )

    return make


KORNIA: dict[str, tuple[Any, ...]] = {
    "filters.gaussian_blur2d": ((3, 3), (1.0, 1.0)),
    "filters.sobel": (),
    "filters.median_blur": ((3, 3),),
    "filters.bilateral_blur": ((3, 3), 0.1, (1.5, 1.5)),
    "filters.unsharp_mask": ((3, 3), (1.0, 1.0)),
    "filters.spatial_gradient": (),
    "filters.laplacian": (3,),
    "color.rgb_to_hsv": (),
    "color.rgb_to_lab": (),
    "color.rgb_to_grayscale": (),
    "color.rgb_to_ycbcr": (),
    "enhance.adjust_gamma": (0.7,),
    "enhance.equalize_clahe": (),
    "enhance.normalize_min_max": (),
    "geometry.hflip": (),
    "geometry.resize": ((8, 8),),
    "geometry.pyrdown": (),
    "morphology.dilation": (torch.ones(3, 3),),
    "losses.total_variation": (),
}


def measured_by_torchmetrics(name: str, *args: Any, **options: Any) -> Callable[[], Training]:
    """Return a training whose step updates a metric."""

    def make() -> Training:
        metric = getattr(library("torchmetrics"), name)(*args, **options)
        model = nn.Linear(6, 5)
        model.metric = metric

        def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            logits = model(x)
            model.metric.update(
                logits.detach() if options else logits.detach()[:, 0], y if options else y.float()
            )
            return F.cross_entropy(logits, y)

        pairs = [(torch.randn(8, 6), torch.randint(0, 5, (8,))) for _ in range(STEPS)]
        return Training(model, loss, pairs)

    return make


def optimizer_of(name: str) -> Callable[[], Training]:
    """Return a training with an optimizer of pytorch-optimizer."""

    def make() -> Training:
        cls = library("pytorch_optimizer").load_optimizer(name)
        if name == "ranger21":
            cls = functools.partial(cls, num_iterations=10)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        return Training(model, square_of, batches(4, 6), cls)

    return make


OPTIMIZERS = (
    "adabelief adafactor adan adamp ademamix adopt apollo avagrad came diffgrad fromage gravity lamb"
    " lars lion mars"
    " nadam novograd padam pid prodigy qhadam radam ranger ranger21 rmsprop schedulefreeadamw sgdp"
    " sgdw sm3 soap"
    " sophiah stableadamw swats tiger yogi grams muon adabound adanorm aggmo a2grad accsgd asgd dadaptadam"
)


def optimized_on_manifold() -> Training:
    """A point on a sphere, trained by geoopt."""
    geoopt = library("geoopt")
    model = nn.Module()
    model.point = geoopt.ManifoldParameter(F.normalize(torch.randn(4, 5), dim=-1), manifold=geoopt.Sphere())
    return Training(
        model, lambda model, x: (model.point @ x).pow(2).mean(), batches(5, 3), geoopt.optim.RiemannianAdam
    )


def equivariant_product() -> Training:
    """A tensor product of e3nn."""
    o3 = library("e3nn.o3")
    model = o3.FullyConnectedTensorProduct("2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o")
    return Training(
        model,
        lambda model, x, y: model(x, y).pow(2).mean(),
        [(torch.randn(4, 5), torch.randn(4, 4)) for _ in range(STEPS)],
    )


def of_third_party(program: Any) -> Callable[[], Training]:
    """Return the training of a program of `make third-party`."""

    def make() -> Training:
        library(program.package.replace("-", "_"))
        training = program.make()
        return Training(training.model, training.loss, training.batches, training.optimizer)

    return make


def _programs() -> dict[str, Callable[[], Training]]:
    """Return {name: function} of all trainings."""
    programs: dict[str, Callable[[], Training]] = {"einops": einops_network, "gpytorch": gaussian_process}
    programs |= {"pyro": variational_inference, "geoopt": optimized_on_manifold, "e3nn": equivariant_product}
    programs |= {f"transformers {name}": language_model(name) for name in LANGUAGE_MODELS}
    programs |= {f"x-transformers {name}": decoder(**options) for name, options in DECODERS.items()}
    programs |= {f"zuko {name}": flow_of_zuko(name, **options) for name, options in ZUKO.items()}
    programs |= {
        f"entmax {name}": attention_of_entmax(name) for name in ("sparsemax", "entmax15", "entmax_bisect")
    }
    programs |= {f"entmax {name}": loss_of_entmax(name) for name in ("SparsemaxLoss", "Entmax15Loss")}
    methods = ("euler", "midpoint", "rk4", "dopri5", "adaptive_heun", "implicit_adams")
    programs |= {f"torchdiffeq {name}": ordinary_differential_equation(name) for name in methods}
    programs |= {f"kornia {name}": filtered_by_kornia(name, *args) for name, args in KORNIA.items()}
    classes = {"task": "multiclass", "num_classes": 5}
    for name in ("Accuracy", "F1Score", "AUROC", "ConfusionMatrix", "CohenKappa", "Precision"):
        programs[f"torchmetrics {name}"] = measured_by_torchmetrics(name, **classes)
    for name in ("MeanMetric", "MeanSquaredError", "PearsonCorrCoef", "R2Score", "ExplainedVariance"):
        programs[f"torchmetrics {name}"] = measured_by_torchmetrics(name)
    programs |= {f"pytorch-optimizer {name}": optimizer_of(name) for name in OPTIMIZERS.split()}
    third_party = importlib.import_module("third_party")
    return programs | {p.name: of_third_party(p) for p in third_party.PROGRAMS if p.package != "transformers"}


PROGRAMS = _programs()
