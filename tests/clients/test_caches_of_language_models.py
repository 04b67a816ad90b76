"""Language models of transformers return a cache of keys and values, and decode token by token with it."""

import copy

import pytest
import torch

import oneflow as flow

transformers = pytest.importorskip("transformers")

_LAYERS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
_WORDS = dict(vocab_size=100, max_position_embeddings=64)
_TWO_STACKS = dict(
    vocab_size=100,
    d_model=32,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    decoder_start_token_id=2,
)
MODELS = {
    "GPT-2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        dict(vocab_size=100, n_embd=32, n_layer=2, n_head=2, n_positions=64),
    ),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", dict(num_key_value_heads=1, **_WORDS, **_LAYERS)),
    "Mistral": (
        "MistralConfig",
        "MistralForCausalLM",
        dict(num_key_value_heads=1, head_dim=16, sliding_window=8, **_WORDS, **_LAYERS),
    ),
    "Bart": ("BartConfig", "BartForConditionalGeneration", dict(max_position_embeddings=64, **_TWO_STACKS)),
    "T5": (
        "T5Config",
        "T5ForConditionalGeneration",
        dict(
            vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
        ),
    ),
}


def model_of(name):
    config, model, options = MODELS[name]
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    return getattr(transformers, model)(getattr(transformers, config)(**options))


class Forward(flow.nn.Graph):
    def __init__(self, model, optimizer=None):
        super().__init__()
        self.model = model
        self.config.set_backend("aten")
        if optimizer is not None:
            self.add_optimizer(optimizer)

    def build(self, **inputs):
        output = self.model(**inputs)
        if self.model.training:
            output.loss.backward()
        return output


def contents(value, path=""):
    """Return {path: tensor, number or class} of all that an output or a cache holds."""
    if isinstance(value, torch.Tensor):
        return {path: value.detach()}
    if (
        not hasattr(value, "__dict__")
        and not isinstance(value, (list, tuple, dict))
        or isinstance(value, type)
    ):
        return {path: value}
    entries = {f"{path}:class": type(value)}
    if isinstance(value, dict):
        parts = [(f"{path}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    else:
        parts = [(f"{path}.{name}", part) for name, part in vars(value).items()]
    for inner, part in parts:
        entries |= contents(part, inner)
    return entries


def assert_equal(a, b):
    first, second = contents(a), contents(b)
    assert list(first) == list(second)
    for path, value in first.items():
        same = torch.equal(value, second[path]) if isinstance(value, torch.Tensor) else value == second[path]
        assert same, path


def decode(model, call, is_encoder_decoder, steps=5):
    """Return the outputs of greedy decoding with the cache that the model returns."""
    ids = torch.arange(3, 12).view(1, 9)
    inputs = {"input_ids": ids}
    if is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.full((1, 1), 3)
    output = call(**inputs)
    outputs = [output.logits]
    for _ in range(steps):
        token = output.logits[:, -1:].argmax(-1)
        step = {"past_key_values": output.past_key_values}
        if is_encoder_decoder:
            step["encoder_outputs"] = (output.encoder_last_hidden_state,)
            step["decoder_input_ids"] = token
        else:
            step["input_ids"] = token
        cache = output.past_key_values
        output = call(**step)
        assert output.past_key_values is cache
        outputs.append(output.logits)
    return [*outputs, output.past_key_values]


@pytest.mark.parametrize("name", MODELS)
def test_decoding_with_a_cache_has_eagers_bits(name):
    model = model_of(name).eval()
    graph = Forward(model)
    with torch.no_grad():
        expected = decode(model, model, name in ("Bart", "T5"))
        assert_equal(decode(model, graph, name in ("Bart", "T5")), expected)
        if name in ("GPT-2", "Llama"):
            assert len(graph._engine.programs) == 3, "the prompt, the first token, and tokens of any length"


@pytest.mark.parametrize("name", ["GPT-2", "Bart"])
def test_training_returns_the_cache_with_eagers_bits(name):
    eager = model_of(name).train()
    model, results = copy.deepcopy(eager), []
    for module in (eager, model):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        graph = Forward(module, optimizer)
        outputs = []
        for seed in range(3):
            torch.manual_seed(seed)
            ids = torch.randint(3, 99, (2, 7))
            if module is model:
                outputs.append(graph(input_ids=ids, labels=ids))
            else:
                optimizer.zero_grad()
                outputs.append(graph.build(input_ids=ids, labels=ids))
                optimizer.step()
        results.append([*outputs, module.state_dict()])
    assert_equal(*results)
