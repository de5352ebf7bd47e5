"""What models do beside the usual, each with our layer and no flag of its own; `nox -s oracles` runs this.

The oracle is the attention module of transformers with random weights, told its own tables and masks.
"""

import importlib
import math
import types
from functools import partial

import pytest
import torch
import transformers
from torch import nn

from posattn.torch import (
    KVCache,
    MultiHeadAttention,
    Rotary,
    causal_mask,
    merge_heads,
    mrope_frequencies,
    mrope_positions,
    proportional_frequencies,
    scaled_dot_product_attention,
    split_heads,
    window_mask,
    yarn,
)
from tests.nightly.oracles.loading import RotaryAtPlaces, projected, rms_norm

AGREE = 1e-6  # in float32, of the largest entry
N, WINDOW = 13, 4
SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 4,
    "vocab_size": 11,
    "pad_token_id": 0,
}
BASE = 10000.0
each_window = pytest.mark.parametrize("window", [None, WINDOW])
TURNS = {"rope_parameters": {"rope_type": "default", "rope_theta": BASE}}


def module(name, attention, config, layer_idx=0, **parts):
    """An attention module of a model, with weights that are neither zero nor one anywhere."""
    found = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    config._attn_implementation = "eager"
    layer = getattr(found, attention)(config, layer_idx=layer_idx).eval()
    rng = torch.Generator().manual_seed(layer_idx)
    for p in layer.parameters():
        spread = 1.0 if p.ndim == 1 else 2 * p.shape[-1] ** -0.5
        start = p.new_ones(()) if "norm" in name else 0.0
        p.data = start + spread * torch.randn(p.shape, generator=rng)
    return layer


def states(seed=3):
    return torch.randn(2, N, 32, generator=torch.Generator().manual_seed(seed))


def tables(name, kind, config, *options, positions=None):
    """What the model tells its layers of their positions."""
    found = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    positions = torch.arange(N)[None] if positions is None else positions
    return getattr(found, kind)(config)(torch.zeros(1), positions, *options)


def added(mask):
    """A mask as they add it."""
    return torch.where(mask, 0.0, torch.finfo(torch.float32).min)[None, None]


@torch.no_grad()
def theirs(layer, x, told, mask=None, **options):
    mask = causal_mask(N) if mask is None else mask
    return layer(
        hidden_states=x, position_embeddings=told, attention_mask=added(mask), **options
    )[0]


def distance(got, want):
    return float((got - want).detach().abs().max() / want.abs().max())


@torch.no_grad()
def in_steps(layer, x, *, window=None, chunks=(5, 1, 3, 1, 1, 1, 1)):
    """The outputs of a layer that is given some tokens at a time."""
    heads, width = layer.num_kv_heads, layer.key.weight.shape[0] // layer.num_kv_heads
    cache, outputs = KVCache.init((len(x),), heads, N, width, window=window), []
    for part in x.split(list(chunks), dim=1):
        out, cache = layer(part, cache=cache)
        outputs.append(out)
    return torch.cat(outputs, dim=1)


def assert_agree(layer, x, want, *, mask=None, window=None):
    """At once, and in steps with a cache."""
    mask = window_mask(N, N, window) if mask is None and window else mask
    assert distance(layer(x, causal=True, mask=mask), want) <= AGREE
    assert distance(in_steps(layer, x, window=window), want) <= AGREE


# soft caps: Gemma 2


class SoftCap:
    """What takes each scaled product s of query and key to c tanh(s / c)."""

    def __init__(self, cap, scale):
        self.cap, self.scale = cap, scale

    def scores(self, query, key, query_positions, key_positions):
        """The capped product less the product, to which it is added."""
        products = self.scale * query @ key.mT
        return self.cap * torch.tanh(products / self.cap) - products


def from_gemma2(attention):
    """The layer of a module of Gemma 2."""
    cap = SoftCap(attention.attn_logit_softcapping, attention.scaling)
    return projected(attention, rotate=Rotary(layout="half", base=BASE), bias=cap)


@each_window
def test_soft_caps(window):
    config = transformers.Gemma2Config(
        attn_logit_softcapping=2.0,
        query_pre_attn_scalar=12,
        sliding_window=WINDOW,
        **SIZES,
        **TURNS,
    )
    attention = module("gemma2", "Gemma2Attention", config, layer_idx=int(window is None))
    assert attention.sliding_window == window
    told, x = tables("gemma2", "Gemma2RotaryEmbedding", config), states()
    mask = causal_mask(N) if window is None else causal_mask(N) & window_mask(N, N, window)
    layer, want = from_gemma2(attention), theirs(attention, x, told, mask)
    assert_agree(layer, x, want, window=window)
    layer.bias = None
    assert distance(layer(x, causal=True), want) > 1e-2


# attention sinks: gpt-oss


def attend_as_gpt_oss(layer, sinks, x, cache):
    """A call of a layer with sinks: its projections and its rotation, and the cache."""
    positions = cache.next_positions(x.shape[-2])
    q = split_heads(layer.query(x), layer.num_heads)
    k, v = (split_heads(part(x), layer.num_kv_heads) for part in (layer.key, layer.value))
    q, k = (layer.rotate(part, positions[:, None]) for part in (q, k))
    cache, seen = cache.append(k, v, positions)
    mask = seen.mask(positions)[:, None]
    out = scaled_dot_product_attention(q, seen.key, seen.value, mask=mask, sinks=sinks)
    return layer.output(merge_heads(out)), cache


def gpt_oss(window):
    """Its module, our layer with the same weights but no sinks, and what the module says to some states."""
    config = transformers.GptOssConfig(
        sliding_window=WINDOW,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": BASE,
            "factor": 32.0,
            "beta_fast": 8.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
        **SIZES,
    )
    attention = module("gpt_oss", "GptOssAttention", config, layer_idx=int(window is None))
    assert attention.sliding_window == window
    told, x = tables("gpt_oss", "GptOssRotaryEmbedding", config), states()
    mask = causal_mask(N) if window is None else causal_mask(N) & window_mask(N, N, window)
    want = theirs(attention, x, told, mask)
    options = {"factor": 32.0, "beta_fast": 8.0, "truncate": False}
    speeds, factor = yarn(8, base=BASE, trained_length=64, **options)
    turn = Rotary(layout="half", frequencies=speeds, attention_factor=factor)
    layer = projected(attention, rotate=turn)
    assert distance(layer(x, mask=mask), want) > 1e-2
    return attention.sinks.detach(), layer, x, want


@each_window
@torch.no_grad()
def test_attention_sinks(window):
    sinks, layer, x, want = gpt_oss(window)
    cache, outputs = KVCache.init((2,), 2, N, 8, window=window), []
    for part in x.split([5, 1, 3, 1, 1, 1, 1], dim=1):
        out, cache = attend_as_gpt_oss(layer, sinks, part, cache)
        outputs.append(out)
    assert distance(torch.cat(outputs, dim=1), want) <= AGREE


class ScoreOfTheFirst:
    """A number for each head, on the scores of the first position alone."""

    def __init__(self, scores):
        self.scores_of_first = scores

    def __call__(self, query_positions, key_positions):
        """`(batch, h, 1, n_k)`."""
        first = (key_positions == 0)[..., None, None, :]
        return self.scores_of_first[:, None, None] * first


@each_window
@torch.no_grad()
def test_attention_sinks_as_a_first_token_of_nothing(window):
    """The layer itself: positions begin at 1, and the cache with a key and a value of zero at 0.

    That token has to stay, so that a window is a mask here, and not the cache's.
    """
    sinks, layer, x, want = gpt_oss(window)
    layer.bias = ScoreOfTheFirst(sinks)
    cache, outputs = KVCache.init((2,), 2, 1 + N, 8), []
    nothing = torch.zeros(2, 2, 1, 8)
    cache, _ = cache.append(nothing, nothing, torch.zeros(1, dtype=torch.long))
    for part in x.split([5, 1, 3, 1, 1, 1, 1], dim=1):
        positions = cache.next_positions(part.shape[1])
        slots = torch.arange(cache.key.shape[-2])
        near = slots > positions[..., None] - (window or N)
        out, cache = layer(part, cache=cache, mask=near | (slots == 0))
        outputs.append(out)
    assert distance(torch.cat(outputs, dim=1), want) <= AGREE


# sliding windows: Mistral


def test_sliding_windows():
    config = transformers.MistralConfig(sliding_window=WINDOW, **SIZES, **TURNS)
    attention = module("mistral", "MistralAttention", config)
    told, x = tables("mistral", "MistralRotaryEmbedding", config), states()
    layer = projected(attention, rotate=Rotary(layout="half", base=BASE))
    want = theirs(attention, x, told, causal_mask(N) & window_mask(N, N, WINDOW))
    assert_agree(layer, x, want, window=WINDOW)
    for chunks in ((N,), (1,) * N, (4, 4, 5), (3, 7, 3)):
        got = in_steps(layer, x, window=WINDOW, chunks=chunks)
        assert distance(got, want) <= AGREE
    assert distance(layer(x, causal=True), want) > 1e-2


# temperature by length, and norms after the rotation: Llama 4


def warmer(x, positions, *, slope, length):
    """Queries that grow with the logarithm of how much stands before them."""
    growth = 1 + slope * torch.log1p(torch.floor((positions + 1) / length))
    return x * growth[..., None].to(x.dtype)


def from_llama4(attention):
    """A norm without weights may stand before the rotation, which changes no length."""
    config = attention.config
    if not attention.use_rope:
        grow = partial(warmer, slope=config.attn_scale, length=config.floor_scale)
        return projected(attention, rotate=(grow, None))
    norm = nn.RMSNorm(attention.head_dim, eps=config.rms_norm_eps, elementwise_affine=False)
    return projected(attention, rotate=Rotary(base=BASE), query_norm=norm, key_norm=norm)


@pytest.mark.parametrize("turns", [True, False])
def test_temperature_by_length(turns):
    config = transformers.Llama4TextConfig(
        floor_scale=3, attn_scale=0.5, no_rope_layers=[1, 0, 1, 0], **SIZES, **TURNS
    )
    attention = module("llama4", "Llama4TextAttention", config, layer_idx=int(not turns))
    assert attention.use_rope == turns
    told, x = tables("llama4", "Llama4TextRotaryEmbedding", config), states()
    layer, want = from_llama4(attention), theirs(attention, x, told)
    assert_agree(layer, x, want)
    layer.rotate = layer.query_norm = None
    assert distance(layer(x, causal=True), want) > 1e-2


# layers without position: SmolLM3


@pytest.mark.parametrize("turns", [True, False])
def test_layers_without_position(turns):
    config = transformers.SmolLM3Config(no_rope_layers=[1, 0, 1, 0], **SIZES, **TURNS)
    attention = module("smollm3", "SmolLM3Attention", config, layer_idx=int(not turns))
    assert attention.use_rope == turns
    told, x = tables("smollm3", "SmolLM3RotaryEmbedding", config), states()
    turn = Rotary(layout="half", base=BASE)
    layer = projected(attention, rotate=turn if attention.use_rope else None)
    want = theirs(attention, x, told)
    assert_agree(layer, x, want)
    layer.rotate = None if turns else turn
    assert distance(layer(x, causal=True), want) > 1e-2


# a base for each kind of layer: Gemma 3; and a share of the pairs: Gemma 4


BASES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "default", "rope_theta": BASE},
}
KINDS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
each_kind = pytest.mark.parametrize("kind", BASES)


@each_kind
def test_a_base_for_each_kind_of_layer(kind):
    config = transformers.Gemma3TextConfig(
        rope_parameters=BASES, sliding_window=WINDOW, **KINDS, **SIZES
    )
    index = config.layer_types.index(kind)
    attention = module("gemma3", "Gemma3Attention", config, layer_idx=index)
    told, x = tables("gemma3", "Gemma3RotaryEmbedding", config, kind), states()
    norms = {
        f"{role}_norm": rms_norm(1 + norm.weight, norm.eps)
        for role, norm in (("query", attention.q_norm), ("key", attention.k_norm))
    }
    layers = {
        kind: projected(
            attention, rotate=Rotary(layout="half", base=rope["rope_theta"]), **norms
        )
        for kind, rope in BASES.items()
    }
    window = WINDOW if attention.is_sliding else None
    mask = window_mask(N, N, WINDOW) if window else torch.ones(N, N, dtype=torch.bool)
    want = theirs(attention, x, told, mask & causal_mask(N))
    assert_agree(layers.pop(kind), x, want, window=window)
    (other,) = layers.values()
    assert distance(other(x, causal=True, mask=mask), want) > 1e-3


class OfEachHead(nn.Module):
    """A norm of the values of each head, after their projection."""

    def __init__(self, projection, norm, num_heads):
        super().__init__()
        self.projection, self.norm, self.num_heads = projection, norm, num_heads

    def forward(self, x):
        """Project, and normalise."""
        return merge_heads(self.norm(split_heads(self.projection(x), self.num_heads)))


def from_gemma4(attention):
    """Slow pairs stand still, values have a norm, and may be made by the projection of the keys."""
    rope, dim = attention.config.rope_parameters[attention.layer_type], attention.head_dim
    rotation = 2 * int(rope.get("partial_rotary_factor", 1.0) * dim // 2)
    speeds = proportional_frequencies(dim, base=rope["rope_theta"], rotary_dim=rotation)
    q_norm, k_norm = attention.q_norm, attention.k_norm
    layer = projected(
        attention,
        rotate=Rotary(layout="half", frequencies=speeds),
        query_norm=rms_norm(q_norm.weight, q_norm.eps),
        key_norm=rms_norm(k_norm.weight, k_norm.eps),
    )
    norm = nn.RMSNorm(dim, eps=q_norm.eps, elementwise_affine=False)
    layer.value = OfEachHead(layer.value, norm, layer.num_kv_heads)
    return layer


@each_kind
def test_a_share_of_the_pairs_turns(kind):
    config = transformers.Gemma4TextConfig(
        rope_parameters={
            "sliding_attention": BASES["sliding_attention"],
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.5,
                "rope_theta": BASE,
            },
        },
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        sliding_window=WINDOW,
        **KINDS,
        **SIZES,
    )
    index = config.layer_types.index(kind)
    attention = module("gemma4", "Gemma4TextAttention", config, layer_idx=index)
    told, x = tables("gemma4", "Gemma4TextRotaryEmbedding", config, kind), states()
    window = WINDOW if attention.is_sliding else None
    mask = window_mask(N, N, WINDOW) if window else torch.ones(N, N, dtype=torch.bool)
    want = theirs(attention, x, told, mask & causal_mask(N), shared_kv_states={})
    layer = from_gemma4(attention)
    assert_agree(layer, x, want, window=window)
    layer.rotate = Rotary(layout="half", base=BASE + 1)
    assert distance(layer(x, causal=True, mask=mask), want) > 1e-3


# interleaved M-RoPE: Qwen3-VL


def test_interleaved_mrope():
    sections = [4, 2, 2]
    config = transformers.Qwen3VLTextConfig(
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 100.0,
            "mrope_section": sections,
        },
        **SIZES | {"head_dim": 16},
    )
    attention = module("qwen3_vl", "Qwen3VLTextAttention", config)
    places = torch.randint(0, 20, (3, 2, N), generator=torch.Generator().manual_seed(4))
    told = tables("qwen3_vl", "Qwen3VLTextRotaryEmbedding", config, positions=places)
    frequencies = mrope_frequencies(16, sections, base=100.0, interleaved=True)
    rotate = RotaryAtPlaces(frequencies)
    rotate.coordinates = places.movedim(0, -1)
    q_norm, k_norm = (
        rms_norm(norm.weight, norm.variance_epsilon)
        for norm in (attention.q_norm, attention.k_norm)
    )
    layer = projected(attention, rotate=rotate, query_norm=q_norm, key_norm=k_norm)
    x = states()
    want = theirs(attention, x, told)
    assert_agree(layer, x, want)
    rotate.coordinates = rotate.coordinates.flip(-1)
    assert distance(layer(x, causal=True), want) > 1e-2


# places of words, pictures and videos: Qwen2-VL, Qwen2.5-VL and Qwen3-VL


def their_places(name, parts, **options):
    """The places that a model of transformers gives to a text, and where its answer begins.

    A part is a number of words, or the grid of a picture or of a video in patches.
    """
    found = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    model = getattr(found, {"qwen3_vl": "Qwen3VLModel"}.get(name, "Qwen2VLModel"), None)
    model = model or found.Qwen2_5_VLModel
    kinds, grids = [], {1: [], 2: []}
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
        else:
            kind = 1 if part[0] == 1 else 2
            kinds += [kind] * (math.prod(part) // 4)
            grids[kind].append(part)
    vision = types.SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    told = types.SimpleNamespace(
        config=types.SimpleNamespace(vision_config=vision),
        get_vision_position_ids=partial(model.get_vision_position_ids, None),
    )
    images, videos = (torch.tensor(grids[k]) if grids[k] else None for k in (1, 2))
    tokens = torch.zeros(1, len(kinds), dtype=torch.long)
    places, delta = model.get_rope_index(
        told, tokens, torch.tensor([kinds]), images, videos, **options
    )
    return places[:, 0].T, len(kinds) + int(delta)


def assert_places(got, want):
    (coordinates, following), (places, after) = got, want
    assert torch.equal(coordinates, places)
    assert following == after


PICTURES = [4, (1, 8, 6), 3, (1, 4, 10), 2]


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_places_of_pictures(name):
    ours = [4, (1, 4, 3), 3, (1, 2, 5), 2]
    assert_places(mrope_positions(ours), their_places(name, PICTURES))


def test_places_of_videos():
    got = mrope_positions([2, (3, 4, 3), 2])
    assert_places(got, their_places("qwen2_vl", [2, (3, 8, 6), 2]))
    got = mrope_positions([2, (3, 8, 2, 3.0), 2])
    seconds = {"second_per_grid_ts": torch.tensor([1.5])}
    assert_places(got, their_places("qwen2_5_vl", [2, (3, 16, 4), 2], **seconds))


def test_places_of_frames_between_their_times():
    parts = [2, (1, 8, 6), 5, (1, 8, 6), 5, (1, 8, 6), 3]
    got = mrope_positions([2, (1, 4, 3), 5, (1, 4, 3), 5, (1, 4, 3), 3])
    assert_places(got, their_places("qwen3_vl", parts))


# offsets of queries, keys and values: Qwen2


def test_offsets_of_query_key_and_value_alone():
    config = transformers.Qwen2Config(**SIZES, **TURNS)
    attention = module("qwen2", "Qwen2Attention", config)
    told, x = tables("qwen2", "Qwen2RotaryEmbedding", config), states()
    layer = MultiHeadAttention(
        32,
        4,
        num_kv_heads=2,
        head_dim=8,
        use_bias=True,
        use_output_bias=False,
        rotate=Rotary(layout="half", base=BASE),
    )
    state = attention.state_dict()
    roles = {"q": "query", "k": "key", "v": "value", "o": "output"}
    layer.load_state_dict(
        {name.replace(f"{name[0]}_proj", roles[name[0]]): x for name, x in state.items()}
    )
    want = theirs(attention, x, told)
    assert_agree(layer, x, want)
    nn.init.zeros_(layer.key.bias)
    assert distance(layer(x, causal=True), want) > 1e-2


# norms of queries and keys: Qwen3 of each head, OLMo 2 of all


class OfAllHeads(nn.Module):
    """A norm over the whole width, for heads that stand apart."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        """Normalise `(*batch, h, n, d_h)` over heads and their width."""
        return split_heads(self.norm(merge_heads(x)), x.shape[-3])


NORMED = {
    "qwen3": ("Qwen3", lambda norm: norm),
    "olmo2": ("Olmo2", OfAllHeads),
}


@pytest.mark.parametrize("name", NORMED)
def test_norms_of_queries_and_keys(name):
    title, spread = NORMED[name]
    config = getattr(transformers, f"{title}Config")(**SIZES, **TURNS)
    attention = module(name, f"{title}Attention", config)
    told, x = tables(name, f"{title}RotaryEmbedding", config), states()
    q_norm, k_norm = (
        spread(rms_norm(norm.weight, norm.variance_epsilon))
        for norm in (attention.q_norm, attention.k_norm)
    )
    turn = Rotary(layout="half", base=BASE)
    layer = projected(attention, rotate=turn, query_norm=q_norm, key_norm=k_norm)
    want = theirs(attention, x, told)
    assert_agree(layer, x, want)
    layer.key_norm = None
    assert distance(layer(x, causal=True), want) > 1e-2


def test_scales_are_those_of_the_modules():
    """What `projected` hands over is no accident of these sizes."""
    config = transformers.Gemma2Config(query_pre_attn_scalar=12, **SIZES, **TURNS)
    attention = module("gemma2", "Gemma2Attention", config)
    assert projected(attention).scale == pytest.approx(1 / math.sqrt(12))
