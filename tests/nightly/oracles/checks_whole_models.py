"""Whole models of transformers with our layer in the place of their attention; `nox -s oracles` runs this.

The models are small and their weights random, far enough from zero that attention decides what they say.
Logits agree to `LOGITS` of the largest one, and decoding with our cache says what their `generate` says.
Decoders that `from_config` makes are in checks_decoders.py.
"""

from copy import deepcopy
from functools import partial

import pytest
import torch
import transformers
from torch import nn
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Attention
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLAttention
from transformers.models.t5.modeling_t5 import T5Attention

from posattn.torch import KVCache
from tests.nightly.oracles import loading

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
    "tie_word_embeddings": False,  # or they repeat themselves
}


class InTheirPlace(nn.Module):
    """Our layer, which is called as one of theirs, and keeps the cache of its tokens if there is one."""

    def __init__(self, layer, *, causal=True, padded=False, answer=None):
        super().__init__()
        self.layer, self.causal, self.padded = layer, causal, padded
        self.answer = answer or (lambda out, *others: (out, None))
        self.cache = None

    def forward(self, hidden_states, *others, key_value_states=None, **ignored):
        """Attend causally, to the memory, or with the cache."""
        if key_value_states is not None:
            out = self.layer(hidden_states, key_value_states)
        elif self.cache is None:
            mask = others[0].bool() if self.padded else None
            out = self.layer(hidden_states, mask=mask, causal=self.causal)
        else:
            out, self.cache = self.layer(hidden_states, cache=self.cache)
        return self.answer(out, hidden_states, *others)

    def start(self, batch, room=ROOM):
        """Make room for the tokens to come."""
        heads = self.layer.num_kv_heads
        width = self.layer.key.weight.shape[0] // heads
        self.cache = KVCache.init((batch,), heads, room, width)


def replace(model, kind, place):
    """A copy of a model with our layers in the place of all modules of a kind."""
    model = deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, kind):
            model.set_submodule(name, place(module))
    return model


def ours(model):
    """Our layers in a model."""
    return [module for module in model.modules() if isinstance(module, InTheirPlace)]


def random(model, spread=0.1):
    """The model with weights that are neither zero nor one anywhere."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            noise = spread * torch.randn(p.shape, generator=rng)
            p.copy_(noise if p.ndim > 1 else p + noise)
    return model.eval()


def tokens(*shape):
    return torch.randint(2, VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


def distance(got, want):
    return float((got - want).abs().max() / want.abs().max())


@torch.no_grad()
def logits(model, **inputs):
    return model(**inputs, use_cache=False).logits


@torch.no_grad()
def decode(model, prompt, **inputs):
    """The most likely tokens, each from the one before and the cache, and the logits they come from."""
    words, scores, step = [], [], prompt
    for place in ours(model):
        place.start(len(prompt))
    for _ in range(STEPS):
        scores.append(logits(model, input_ids=step, **inputs)[:, -1])
        step = scores[-1].argmax(-1, keepdim=True)
        words.append(step)
        inputs = {}
    return torch.cat(words, dim=-1), torch.stack(scores, dim=1)


def generate(model, prompt, **inputs):
    """The same by their own means."""
    said = model.generate(
        prompt,
        **inputs,
        max_new_tokens=STEPS,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return said.sequences[:, -STEPS:], torch.stack(said.logits, dim=1)


def assert_says_the_same(got, want):
    assert torch.equal(got[0], want[0])
    assert distance(got[1], want[1]) <= LOGITS


# T5: a bias that all layers of a stack share, and attention to what the encoder read


def place_in_t5(attention, biases):
    """The bias is made at the first layer of a stack, which comes before the others."""
    stack = attention.is_decoder
    if attention.has_relative_attention_bias:
        biases[stack] = loading.t5_bias(attention)
    reads_memory = stack and not attention.is_causal
    return InTheirPlace(
        loading.from_t5(attention, None if reads_memory else biases[stack]),
        causal=attention.is_causal,
        answer=lambda out, *others: (out, None, None),
    )


@pytest.fixture
def t5():
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=6,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        decoder_start_token_id=0,
        tie_word_embeddings=False,
    )
    theirs = random(transformers.T5ForConditionalGeneration(config))
    return theirs, replace(theirs, T5Attention, partial(place_in_t5, biases={}))


@torch.no_grad()
def test_decoding_of_t5_is_generate(t5):
    theirs, model = t5
    assert len(ours(model)) == 6
    prompt = tokens(2, 30)
    read = model.encoder(prompt)
    for place in ours(model.decoder):
        if place.causal:
            place.start(2)
    step, words, scores = torch.zeros(2, 1, dtype=torch.long), [], []
    for _ in range(STEPS):
        inputs = {"encoder_outputs": read, "decoder_input_ids": step}
        scores.append(logits(model, **inputs)[:, -1])
        step = scores[-1].argmax(-1, keepdim=True)
        words.append(step)
    got = torch.cat(words, dim=-1), torch.stack(scores, dim=1)
    assert_says_the_same(got, generate(theirs, prompt))


# DeBERTa-v2: content and positions ask each other, with buckets that keep their sign


def place_in_deberta_v2(attention, table):
    layer = loading.from_deberta_v2(attention, table)
    norm = attention.output.LayerNorm
    return InTheirPlace(
        layer,
        causal=False,
        padded=True,
        answer=lambda out, x, *others: (norm(out + x), None),
    )


def test_logits_of_deberta_v2():
    config = transformers.DebertaV2Config(
        **SIZES,
        relative_attention=True,
        position_buckets=8,
        max_relative_positions=20,
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        type_vocab_size=0,
        position_biased_input=False,
    )
    theirs = random(transformers.DebertaV2ForMaskedLM(config))
    table = theirs.deberta.encoder.get_rel_embedding().detach()
    place = partial(place_in_deberta_v2, table=table)
    model = replace(theirs, DebertaV2Attention, place)
    assert len(ours(model)) == 3
    inputs = {"input_ids": tokens(2, 40), "attention_mask": torch.ones(2, 40).long()}
    inputs["attention_mask"][1, 30:] = 0
    want = logits_of_words(theirs, **inputs)
    assert distance(logits_of_words(model, **inputs), want) <= LOGITS


@torch.no_grad()
def logits_of_words(model, **inputs):
    """Those of the tokens that are no padding."""
    return model(**inputs).logits[inputs["attention_mask"].bool()]


# Qwen2-VL: tokens stand in time, height and width


IMAGE = 5  # the token in whose place the parts of an image come


def in_qwen2_vl(attention):
    return InTheirPlace(loading.from_qwen2_vl(attention))


@pytest.fixture
def qwen2_vl():
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2}
    vision |= {"patch_size": 2, "mlp_ratio": 2}
    sections = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    config = transformers.Qwen2VLConfig(
        text_config={**SIZES, "num_key_value_heads": 2, "rope_parameters": sections},
        vision_config=vision,
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    theirs = random(transformers.Qwen2VLForConditionalGeneration(config))
    return theirs, replace(theirs, Qwen2VLAttention, in_qwen2_vl)


def seen_and_read():
    """A picture of 2 by 3 parts between words."""
    words = tokens(1, PROMPT)
    words[words == IMAGE] += 1
    words[:, 3:9] = IMAGE
    patches = torch.randn(24, 3 * 2 * 2 * 2, generator=torch.Generator().manual_seed(2))
    return {
        "input_ids": words,
        "pixel_values": patches,
        "image_grid_thw": torch.tensor([[1, 4, 6]]),
        "mm_token_type_ids": (words == IMAGE).int(),
    }


def stand(model, inputs):
    """Tell our layers where the tokens stand, and those that will follow."""
    told = {name: x for name, x in inputs.items() if name != "pixel_values"}
    places, ahead = model.model.get_rope_index(**told)
    following = torch.arange(PROMPT, ROOM) + ahead
    coordinates = torch.cat([places, following.expand(3, 1, -1)], dim=-1)
    for place in ours(model):
        place.layer.rotate.coordinates = coordinates.movedim(0, -1)
    return coordinates[..., :PROMPT]


def test_decoding_of_qwen2_vl_is_generate(qwen2_vl):
    theirs, model = qwen2_vl
    inputs = seen_and_read()
    places = stand(model, inputs)
    assert not torch.equal(places[1], places[2])
    prompt = inputs.pop("input_ids")
    assert_says_the_same(
        decode(model, prompt, **inputs), generate(theirs, prompt, **inputs)
    )
