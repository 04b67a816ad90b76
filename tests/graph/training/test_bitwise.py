"""Graph (aten) against eager: 10 training steps of whole models, bit for bit, dropout on.

The models are those of flowvision, vit-pytorch and transformers, small and on small inputs.
"""

import pytest
import torch
from graph_cases import assert_same_training
from torch import nn

import oneflow as flow


def images(size, classes=10, count=10, batch=2):
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(batch, 3, size, size, generator=generator),
            torch.randint(0, classes, (batch,), generator=generator),
        )
        for _ in range(count)
    ]


def tokens(vocabulary, length=8, count=10, batch=2):
    generator = torch.Generator().manual_seed(5)
    return [(torch.randint(0, vocabulary, (batch, length), generator=generator),) for _ in range(count)]


def image_loss(model, x, y):
    out = model(x)
    if isinstance(out, tuple):
        out = sum(out)
    return nn.functional.cross_entropy(getattr(out, "logits", out), y)


def sgd(p):
    return torch.optim.SGD(p, lr=0.01, momentum=0.9)


def adamw(p):
    return flow.optim.AdamW(p, lr=1e-3, weight_decay=0.05)


# name: (keyword arguments, image size, optimizer)
FLOWVISION = {
    "resnet18": ({}, 32, sgd),
    "mobilenet_v2": ({}, 64, adamw),
    "mobilenet_v3_small": ({}, 32, adamw),
    "squeezenet1_1": ({}, 32, sgd),
    "shufflenet_v2_x0_5": ({}, 32, sgd),
    "mnasnet0_5": ({}, 32, sgd),
    "ghostnet": ({}, 32, sgd),
    "efficientnet_b0": ({}, 32, sgd),
    "regnet_y_400mf": ({}, 32, sgd),
    "densenet121": ({}, 32, sgd),
    "mobilevit_xx_small": ({}, 256, sgd),
    "alexnet": ({}, 64, sgd),
    "vit_tiny_patch16_224": ({}, 224, adamw),
    "deit_tiny_patch16_224": ({}, 224, adamw),
    "poolformer_s12": ({}, 32, adamw),
    "pvt_tiny": ({}, 224, adamw),
    "levit_128s": ({}, 224, adamw),
    "swin_tiny_patch4_window7_224": ({}, 224, adamw),
}
HEAVY = {
    "alexnet",
    "poolformer_s12",
    "vit_tiny_patch16_224",
    "densenet121",
    "swin_tiny_patch4_window7_224",
    "pvt_tiny",
    "levit_128s",
    "mobilevit_xx_small",
    "deit_tiny_patch16_224",
    "efficientnet_b0",
    "regnet_y_400mf",
    "ghostnet",
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in FLOWVISION]
)
def test_models_of_flowvision_train_bit_for_bit(name):
    models = pytest.importorskip("flowvision.models")
    kwargs, size, optimizer = FLOWVISION[name]
    torch.manual_seed(0)
    model = getattr(models, name)(**kwargs)
    assert_same_training(model, optimizer, image_loss, images(size, count=10))


def test_vit_pytorch_trains_bit_for_bit():
    # not the package: another test may have imported it without the names of its __init__
    vit = pytest.importorskip("vit_pytorch.vit")
    torch.manual_seed(0)
    model = vit.ViT(
        image_size=16,
        patch_size=4,
        num_classes=10,
        dim=16,
        depth=2,
        heads=2,
        mlp_dim=32,
        dropout=0.1,
        emb_dropout=0.1,
    )
    assert_same_training(model, adamw, image_loss, images(16))


def language_loss(model, ids):
    return model(input_ids=ids, labels=ids).loss


def transformer(config_name, model_name, **sizes):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = getattr(transformers, model_name)(getattr(transformers, config_name)(**sizes))
    return model.train()


BERT = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
LLAMA = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    intermediate_size=32,
)
TRANSFORMERS = {
    "bert": ("BertConfig", "BertForMaskedLM", BERT),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        dict(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16),
    ),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", dict(BERT, pad_token_id=1)),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        dict(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=16),
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        dict(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0),
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", LLAMA),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_train_bit_for_bit(name):
    config, model, sizes = TRANSFORMERS[name]
    assert_same_training(transformer(config, model, **sizes), adamw, language_loss, tokens(50))


@pytest.mark.slow
def test_patches_chosen_by_chance_are_seen_as_windows():
    """The number of patches is divided and multiplied, so that torch could not tell whether there are any."""
    sizes = dict(
        embed_dim=4,
        image_size=[64, 64],
        depths=[1] * 4,
        num_heads=[1] * 4,
        decoder_hidden_size=8,
        decoder_depth=1,
        decoder_num_heads=2,
    )
    model = transformer("HieraConfig", "HieraForPreTraining", **sizes)
    batches = [(torch.randn(2, 3, 64, 64), torch.rand(2, 4)) for _ in range(4)]
    assert_same_training(model, adamw, lambda m, x, noise: m(pixel_values=x, noise=noise).loss, batches)


class Tagger(nn.Module):
    def __init__(self, cell, **kwargs):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = cell(8, 8, num_layers=2, batch_first=True, dropout=0.2, **kwargs)
        self.head = nn.Linear(16 if kwargs.get("bidirectional") else 8, 20)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_train_bit_for_bit(cell, bidirectional):
    torch.manual_seed(0)
    model = Tagger(cell, bidirectional=bidirectional)
    assert_same_training(
        model, adamw, lambda m, i: nn.functional.cross_entropy(m(i).flatten(0, 1), i.flatten()), tokens(20)
    )


def test_sparse_embedding_trains_bit_for_bit():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4, sparse=True))
    loss = lambda m, i: m(i).pow(2).mean()
    assert_same_training(model, lambda p: torch.optim.SGD(p, lr=0.1), loss, tokens(20))
    with pytest.raises(flow._errors.OneFlowError, match="distinct rows"):
        assert_same_training(model, lambda p: torch.optim.SparseAdam(p, lr=0.1), loss, tokens(20))


def test_transformer_layers_of_torch():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    batches = [(torch.randn(2, 5, 16),) for _ in range(10)]
    assert_same_training(model, adamw, lambda m, x: m(x).pow(2).mean(), batches)


class NormOfViews(nn.Module):
    """The attention of an autoencoder with one image: a view of a transpose, whose batch dimension has
    another stride than a symbolic one.
    """

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8), nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.norm(self.fc(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape) + x)


def test_group_norm_of_one_image_after_a_transpose():
    torch.manual_seed(0)
    assert_same_training(
        NormOfViews(), adamw, lambda m, x: m(x).sin().sum(), [(torch.randn(1, 8, 4, 4),) for _ in range(3)]
    )


def test_an_inference_graph_under_no_grad_takes_the_attention_that_eager_takes():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.index = nn.Parameter(torch.randn(9, 1)), torch.arange(16) % 9

        def forward(self, x):
            bias = self.table[self.index].view(4, 4, 1).permute(2, 0, 1).unsqueeze(0)
            # the fused kernel refuses a mask that requires grad
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=bias)

    class Infer(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_backend("aten")

        def build(self, x):
            seen.append(torch.is_grad_enabled())
            return self.model(x)

    torch.manual_seed(0)
    model, x, seen = Biased(), torch.randn(8, 1, 4, 16), []
    graph = Infer()
    with torch.no_grad():
        assert torch.equal(graph(x), model(x)) and seen == [False]
    assert "_scaled_dot_product_flash_attention_for_cpu" in str(graph.program)
