"""The models, batches and losses of the nn.Graph benchmark, in plain torch."""

import torch
from torch import nn


def tiny():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def mlp():
    layers = []
    for _ in range(3):
        layers += [nn.Linear(256, 256, bias=False), nn.BatchNorm1d(256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def classes(model, x, y):
    out = model(x)
    return nn.functional.cross_entropy(getattr(out, "logits", out), y)


def language(model, ids):
    return (
        model(input_ids=ids, labels=ids, use_cache=False).loss
        if "use_cache" in model.forward.__code__.co_varnames
        else model(input_ids=ids, labels=ids).loss
    )


def harder_half(model, ids):
    """Of the tokens whose loss is over the mean: how many depends on the weights."""
    losses = nn.functional.cross_entropy(
        model(input_ids=ids).logits.flatten(0, 1), ids.flatten(), reduction="none"
    )
    return losses[losses > losses.mean()].mean()


class Recurrent(nn.Module):
    def __init__(self, layer=nn.LSTM):
        super().__init__()
        self.embed, self.rnn, self.head = (
            nn.Embedding(1000, 64),
            layer(64, 64, 2, batch_first=True),
            nn.Linear(64, 1000),
        )

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

        transformers.logging.set_verbosity_error()
        return getattr(transformers, model)(getattr(transformers, config)(**sizes)).train()

    return make


def rows(width):
    return lambda n: (torch.randn(n, width), torch.randint(0, 10, (n,)))


def images(size):
    return lambda n: (torch.randn(n, 3, size, size), torch.randint(0, 10, (n,)))


def tokens(vocabulary, length):
    return lambda n: (torch.randint(0, vocabulary, (n, length)),)


GPT = dict(
    vocab_size=1000,
    n_embd=128,
    n_layer=4,
    n_head=4,
    n_positions=64,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
)
BERT = dict(
    vocab_size=1000,
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)

LLAMA = dict(
    vocab_size=1000,
    hidden_size=128,
    intermediate_size=352,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
T5 = dict(
    vocab_size=1000,
    d_model=128,
    d_kv=32,
    d_ff=512,
    num_layers=2,
    num_heads=4,
    dropout_rate=0.0,
    decoder_start_token_id=0,
)
MAMBA = dict(vocab_size=1000, hidden_size=64, state_size=8, num_hidden_layers=2)
VIT = dict(
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=512,
    image_size=64,
    patch_size=8,
    num_labels=10,
)

# name: (title, model, loss, batch of n, small n, large n)
MODELS = {
    "tiny": ("MLP 3x64", tiny, classes, rows(64), 16, 512),
    "mlp": ("MLP 3x256 + BatchNorm", mlp, classes, rows(256), 16, 512),
    "lstm": ("LSTM, 2 layers", Recurrent, recurrent_loss, tokens(1000, 16), 2, 32),
    "gru": ("GRU, 2 layers", lambda: Recurrent(nn.GRU), recurrent_loss, tokens(1000, 16), 2, 32),
    "gpt2": (
        "GPT-2-like, 4 layers",
        transformer("GPT2Config", "GPT2LMHeadModel", **GPT),
        language,
        tokens(1000, 32),
        2,
        16,
    ),
    "bert": (
        "BERT-like, 4 layers",
        transformer("BertConfig", "BertForMaskedLM", **BERT),
        language,
        tokens(1000, 32),
        2,
        16,
    ),
    "mobilenet_v2": ("MobileNetV2", flowvision("mobilenet_v2"), classes, images(64), 2, 16),
    "resnet18": ("ResNet-18", flowvision("resnet18"), classes, images(64), 2, 16),
    "resnet50": ("ResNet-50", flowvision("resnet50"), classes, images(64), 2, 16),
    "bert_hard": (
        "BERT-like, loss of the harder tokens",
        transformer("BertConfig", "BertForMaskedLM", **BERT),
        harder_half,
        tokens(1000, 32),
        2,
        16,
    ),
    "llama": (
        "Llama-like, 4 layers",
        transformer("LlamaConfig", "LlamaForCausalLM", **LLAMA),
        language,
        tokens(1000, 32),
        2,
        16,
    ),
    "t5": (
        "T5-like, 2 + 2 layers",
        transformer("T5Config", "T5ForConditionalGeneration", **T5),
        language,
        tokens(1000, 32),
        2,
        16,
    ),
    "mamba": (
        "Mamba, 2 layers",
        transformer("MambaConfig", "MambaForCausalLM", **MAMBA),
        language,
        tokens(1000, 16),
        2,
        16,
    ),
    "vit": (
        "ViT-like, 4 layers",
        transformer("ViTConfig", "ViTForImageClassification", **VIT),
        classes,
        images(64),
        2,
        16,
    ),
    "gpt2_full": (
        "GPT-2, 124M parameters, 64 tokens",
        transformer("GPT2Config", "GPT2LMHeadModel", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        language,
        tokens(50257, 64),
        1,
        4,
    ),
    "bert_full": (
        "BERT, 110M parameters, 64 tokens",
        transformer(
            "BertConfig", "BertForMaskedLM", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        ),
        language,
        tokens(30522, 64),
        1,
        4,
    ),
}
# only if requested
ON_REQUEST = {
    "llama",
    "t5",
    "mamba",
    "vit",
    "gpt2_full",
    "bert_full",
    "bert_hard",
}
OPTIMIZERS = {
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **k),
    "adamw": lambda p, **k: torch.optim.AdamW(p, lr=1e-4, **k),
}
