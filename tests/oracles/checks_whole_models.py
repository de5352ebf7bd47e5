"""Whole models of transformers with our layer in the place of their attention; `nox -s oracles` runs this.

The models are small and their weights random, far enough from zero that attention decides what they say.
Logits agree to `LOGITS` of the largest one, and decoding with our cache says what their `generate` says.
"""

from functools import partial

import pytest
import torch
import transformers
from torch import nn
from transformers.models.bloom.modeling_bloom import BloomAttention
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Attention
from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.mistral.modeling_mistral import MistralAttention
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLAttention
from transformers.models.t5.modeling_t5 import T5Attention

from posattn.torch import KVCache, window_mask
from tests.oracles import loading

LOGITS = 1e-6  # in float32, relative to the largest
VOCABULARY, PROMPT, STEPS, ROOM = 61, 12, 10, 40
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
BASES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
}


class InTheirPlace(nn.Module):
    """Our layer, which is called as one of theirs, and keeps the cache of its tokens if there is one."""

    def __init__(self, layer, *, causal=True, window=None, answer=None):
        super().__init__()
        self.layer, self.causal, self.window = layer, causal, window
        self.answer = answer or (lambda out, *others: (out, None))
        self.cache = self.positions = None

    def forward(self, hidden_states, *others, key_value_states=None, **ignored):
        """Attend causally, to the memory, or with the cache."""
        if key_value_states is not None:
            out = self.layer(hidden_states, key_value_states)
        elif self.cache is None:
            out = self.layer(
                hidden_states, mask=self.mask(hidden_states), causal=self.causal
            )
        else:
            out, self.cache = self.layer(
                hidden_states, query_positions=self.positions, cache=self.cache
            )
        return self.answer(out, hidden_states, *others)

    def mask(self, hidden_states):
        """The window, or none."""
        n = hidden_states.shape[-2]
        return None if self.window is None else window_mask(n, n, self.window)

    def start(self, batch, room=ROOM):
        """Make room for the tokens to come."""
        heads = self.layer.num_kv_heads
        width = self.layer.key.weight.shape[0] // heads
        self.cache = KVCache.init((batch,), heads, room, width, window=self.window)


def replace(model, kind, place):
    """Put our layers in the place of all modules of a kind."""
    for name, module in list(model.named_modules()):
        if isinstance(module, kind):
            model.set_submodule(name, place(module))
    return model


def ours(model):
    """Our layers in a model."""
    return [module for module in model.modules() if isinstance(module, InTheirPlace)]


def random(model, spread=0.15):
    """The model with weights that are neither zero nor one anywhere."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(spread * torch.randn(p.shape, generator=rng))
    return model.eval()


def tokens(*shape):
    return torch.randint(2, VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


# decoders


def plain(load, attention):
    return InTheirPlace(load(attention))


def windowed(load, attention):
    """The window of a module's configuration, if it is for this kind of layer."""
    sliding = getattr(attention, "layer_type", "sliding_attention") == "sliding_attention"
    window = attention.config.sliding_window if sliding else None
    return InTheirPlace(load(attention), window=window)


def with_residual(load, attention):
    """BLOOM's module adds what its block came with."""
    return InTheirPlace(
        load(attention), answer=lambda out, x, residual: (out + residual, None)
    )


DECODERS = {
    "Llama": (
        transformers.LlamaConfig(rope_parameters=LLAMA3, **GROUPED),
        LlamaAttention,
        partial(plain, loading.from_llama),
    ),
    "Mistral": (
        transformers.MistralConfig(sliding_window=5, **GROUPED),
        MistralAttention,
        partial(windowed, loading.from_mistral),
    ),
    "GPT-NeoX": (
        transformers.GPTNeoXConfig(
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
            **SIZES,
        ),
        GPTNeoXAttention,
        partial(plain, loading.from_gpt_neox),
    ),
    "Gemma 3": (
        transformers.Gemma3TextConfig(
            sliding_window=5,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            rope_parameters=BASES,
            query_pre_attn_scalar=12,
            **GROUPED,
        ),
        Gemma3Attention,
        partial(windowed, loading.from_gemma3),
    ),
    "BLOOM": (
        transformers.BloomConfig(n_layer=3, n_head=4, **SIZES),
        BloomAttention,
        partial(with_residual, loading.from_bloom),
    ),
}
each_decoder = pytest.mark.parametrize("name", DECODERS)


@pytest.fixture
def pair(name):
    """Their model, and the same with our layers."""
    config, kind, place = DECODERS[name]
    theirs, copy = (
        random(transformers.AutoModelForCausalLM.from_config(config)) for _ in range(2)
    )
    copy.load_state_dict(theirs.state_dict())
    return theirs, replace(copy, kind, place)


def distance(got, want):
    return float((got - want).abs().max() / want.abs().max())


@torch.no_grad()
def logits(model, **inputs):
    return model(**inputs, use_cache=False).logits


@each_decoder
def test_logits(pair, name):
    theirs, model = pair
    assert len(ours(model)) == 3
    inputs = {"input_ids": tokens(2, PROMPT)}
    assert distance(logits(model, **inputs), logits(theirs, **inputs)) <= LOGITS


@each_decoder
@pytest.mark.parametrize("part", ["rotate", "bias", "window", "query_norm", "scale"])
def test_each_part_decides(pair, name, part):
    """Logits agree with all that a layer was given, and with nothing less."""
    theirs, model = pair
    changed = False
    for place in ours(model):
        holder = place if part == "window" else place.layer
        changed |= getattr(holder, part) is not None
        setattr(holder, part, None)
    if part == "scale" and name != "Gemma 3":
        changed = False  # it is the usual one
    inputs = {"input_ids": tokens(2, PROMPT)}
    far = distance(logits(model, **inputs), logits(theirs, **inputs))
    assert (far > 1e-3) == changed


@torch.no_grad()
def decode(model, prompt, *, attention_mask=None, word="input_ids", **inputs):
    """The most likely tokens, one after the other, each from the token before and the cache."""
    said = []
    if attention_mask is not None:
        positions = attention_mask.cumsum(-1) - 1  # negative where the left is padded
    for place in ours(model):
        place.start(len(prompt))
        place.positions = None if attention_mask is None else positions
    step = prompt
    for _ in range(STEPS):
        step = logits(model, **{word: step}, **inputs)[:, -1:].argmax(-1)
        said.append(step)
        for place in ours(model):
            place.positions = None
    return torch.cat(said, dim=-1)


def generate(model, prompt, **inputs):
    options = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": None}
    said = model.generate(prompt, **inputs, **options)
    return said[:, -STEPS:]


def assert_same_words(got, want):
    assert all(len(row.unique()) > 2 for row in want)  # else anything would agree
    assert torch.equal(got, want)


@each_decoder
def test_decoding_with_the_cache_is_generate(pair, name):
    theirs, model = pair
    prompt = tokens(2, PROMPT)
    assert_same_words(decode(model, prompt), generate(theirs, prompt))


@each_decoder
def test_decoding_a_batch_that_is_padded_on_the_left(pair, name):
    theirs, model = pair
    prompt = tokens(3, PROMPT)
    mask = torch.ones_like(prompt)
    for row, padding in enumerate((0, 3, 8)):
        mask[row, :padding] = prompt[row, :padding] = 0
    want = generate(theirs, prompt, attention_mask=mask)
    assert_same_words(decode(model, prompt, attention_mask=mask), want)
    for row, padding in enumerate((0, 3, 8)):
        alone = decode(model, prompt[row : row + 1, padding:])
        assert torch.equal(alone, want[row : row + 1])
