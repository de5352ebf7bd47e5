"""Hugging Face's transformers beside our columns; `nox -s oracles` runs this with the pinned version.

Their tables are float32, so agreement is asked for to `SINGLE`.
What each family's attention does is compared in checks_from_config.py, from its configuration.
"""

import math

import numpy as np
import pytest
import torch
import transformers
from transformers import DebertaConfig, LlamaConfig, XLNetConfig
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.configuration_swinv2 import Swinv2Config
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    _apply_relative_key_position_encoding,
)
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from tests.conftest import REFERENCE, draw, error

SINGLE = 1e-5  # of float32 tables at the small positions that are compared
BATCH, HEADS, N = 2, 3, 7
HEADED = (BATCH, HEADS, N)


def single(x):
    return torch.tensor(x, dtype=torch.float32)


def double(x):
    return x.detach().double().numpy()


def assert_agree(column, ours, theirs, bound=SINGLE):
    assert error(column.numpy(ours), double(theirs)) <= bound


# rotation


def test_llama_rotates_halves(column):
    positions = np.arange(40, 40 + N)
    x = draw(300, *HEADED, 8)
    config = LlamaConfig(hidden_size=8 * HEADS, num_attention_heads=HEADS)
    base = config.rope_parameters["rope_theta"]
    cos, sin = llama.LlamaRotaryEmbedding(config)(single(x), torch.tensor(positions)[None])
    want, _ = llama.apply_rotary_pos_emb(single(x), single(x), cos, sin)
    got = column.rotate(
        column.array(x), column.positions(positions), base=base, layout="half"
    )
    assert_agree(column, got, want)


@pytest.mark.parametrize("name", ["Qwen2VL", "Qwen3VL"])
def test_sections_of_qwen_rotate_or_take_turns(column, name):
    x, interleaved = draw(305, *HEADED, 16), name == "Qwen3VL"
    sections = [4, 2, 2] if interleaved else [2, 3, 3]
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}
    config = getattr(transformers, f"{name}TextConfig")(
        hidden_size=16 * HEADS, num_attention_heads=HEADS, rope_parameters=rope
    )
    config.head_dim = 16
    found = qwen3_vl if interleaved else qwen2_vl
    rotary = (
        found.Qwen3VLTextRotaryEmbedding if interleaved else found.Qwen2VLRotaryEmbedding
    )
    places = np.random.default_rng(0).integers(0, 30, (N, 3))
    ids = torch.tensor(places.T)[:, None]
    cos, sin = rotary(config)(single(x), ids)
    want, _ = found.apply_rotary_pos_emb(single(x), single(x), cos, sin)
    frequencies = column.mrope_frequencies(16, sections, base=1e4, interleaved=interleaved)
    got = column.rotate_axes(
        column.array(x), column.positions(places), frequencies, layout="half"
    )
    assert_agree(column, got, want)


# biases


def test_swin_bias(column):
    window = 2, 5
    theirs = SwinRelativePositionBias(HEADS, window)
    table = draw(307, *theirs.relative_position_bias_table.shape)
    theirs.relative_position_bias_table.data = single(table)
    options = (
        {}
        if column.name == "torch"
        else dict(zip(("height", "width"), window, strict=True))
    )
    sizes = (HEADS, *window) if column.name == "torch" else ()
    layer = column.with_parameters(
        "SwinBias", {"table": column.array(table)}, *sizes, **options
    )
    where = column.positions(np.arange(math.prod(window)))
    assert_agree(column, layer(where, where), theirs()[0])


def test_swin_v2_attention(column):
    """The whole attention: cosines with a factor per head are a rotation, and the bias is ours."""
    window, trained = (2, 5), (3, 6)
    dim, n = HEADS * 4, math.prod(window)
    torch.manual_seed(0)
    theirs = Swinv2SelfAttention(
        Swinv2Config(qkv_bias=False), dim, HEADS, window, list(trained)
    )
    theirs.logit_scale.data += torch.tensor([0.0, 1.0, 9.0][:HEADS])[:, None, None]
    network = theirs.continuous_position_bias_mlp
    x, output = draw(308, 2, n, dim), draw(309, dim, dim) / 4
    heads = theirs(single(x))[0]
    factor = double(theirs.logit_scale.clamp(max=math.log(100)).exp())

    def key(x, positions):
        return x / (x * x).sum(-1)[..., None] ** 0.5

    def query(x, positions):
        return key(x, positions) * column.array(factor)

    options = dict(zip(("height", "width"), window, strict=True))
    options |= dict(zip(("trained_height", "trained_width"), trained, strict=True))
    named = {
        "hidden_weight": column.array(double(network[0].weight.T)),
        "hidden_bias": column.array(double(network[0].bias)),
        "output_weight": column.array(double(network[2].weight.T)),
    }
    bias = column.with_parameters("SwinV2Bias", named, HEADS, **options)
    weights = [double(layer.weight.T) for layer in (theirs.query, theirs.key, theirs.value)]
    made = column.multi_head(
        [column.array(w) for w in (*weights, output)],
        HEADS,
        rotate=(query, key),
        bias=bias,
        scale=1.0,
    )
    got = made(*[column.array(x)] * 3)
    assert_agree(column, got, heads @ single(output))


# terms that depend on content


def positions_of(column, n_q=N, n_k=N):
    return column.positions(np.arange(n_k - n_q, n_k)), column.positions(np.arange(n_k))


def test_shaw_keys_of_wav2vec2_bert(column):
    reach, width = 3, 4
    query, key, table = (
        draw(308, *HEADED, width),
        draw(309, *HEADED, width),
        draw(310, 2 * reach + 1, width),
    )

    class Module:
        left_max_position_embeddings = right_max_position_embeddings = reach
        distance_embedding = torch.nn.Embedding.from_pretrained(single(table))
        scaling = width**-0.5

    _, want = _apply_relative_key_position_encoding(Module, single(query), single(key))
    bias = column.with_parameters(
        "ShawRelative",
        {"key_table": column.array(table), "value_table": None},
        reach,
        width,
    )
    got = bias.scores(column.array(query), column.array(key), *positions_of(column))
    assert_agree(column, got, want)


def test_transformer_xl_terms_of_xlnet(column):
    """XLNet has Transformer-XL's terms; its sinusoids are concatenated, ours interleaved."""
    width, dim = 4, 4 * HEADS
    config = XLNetConfig(d_model=dim, n_head=HEADS, n_layer=1, d_inner=4, attn_type="bi")
    attention, model = XLNetRelativeAttention(config), XLNetModel(config)
    u, v, weight = draw(311, HEADS, width), draw(312, HEADS, width), draw(313, dim, dim)
    query, key = draw(314, *HEADED, width), draw(315, *HEADED, width)
    attention.r_w_bias.data, attention.r_r_bias.data = single(u), single(v)
    to_theirs = np.r_[0:dim:2, 1:dim:2]
    r = model.relative_positional_encoding(N, N)
    k_r = torch.einsum(
        "ibh,hnd->ibnd", r, single(weight[to_theirs]).unflatten(-1, (HEADS, width))
    )
    k_r = k_r.expand(-1, BATCH, -1, -1)
    q, k = (single(x).permute(2, 0, 1, 3) for x in (query, key))
    _, probabilities = attention.eval().rel_attn_core(q, k, k, k_r, output_attentions=True)
    parameters = {"content_bias": u, "position_bias": v, "weight": weight}
    bias = column.with_parameters(
        "TransformerXLBias",
        {name: column.array(x) for name, x in parameters.items()},
        dim,
        HEADS,
    )
    q, k = column.array(query), column.array(key)
    got = column.attention_weights(q, k, bias=bias.scores(q, k, *positions_of(column)))
    assert_agree(column, got, probabilities.permute(2, 3, 0, 1))


def test_attention_weights_of_deberta(column):
    """A whole layer of theirs with all its offsets, and distances that are clipped."""
    tokens, reach, width = 40, 8, 4
    dim = width * HEADS
    torch.manual_seed(0)
    config = DebertaConfig(
        hidden_size=dim,
        num_attention_heads=HEADS,
        relative_attention=True,
        max_relative_positions=reach,
        pos_att_type=["p2c", "c2p"],
    )
    layer = DisentangledSelfAttention(config)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, table = draw(324, 1, tokens, dim), draw(325, 2 * reach, dim)
    relative = torch.arange(tokens)[:, None] - torch.arange(tokens)
    _, probabilities = layer.eval()(
        single(x),
        torch.ones(1, 1, tokens, tokens),
        output_attentions=True,
        relative_pos=relative[None],
        rel_embeddings=single(table),
    )
    state = {name: double(p) for name, p in layer.named_parameters()}
    # heads first, then query, key and value
    rows = state["in_proj.weight"].reshape(HEADS, 3, width, dim).swapaxes(0, 1)
    query_offset = state["pos_q_proj.bias"][None]
    parameters = {
        "table": np.concatenate([table, np.ones((len(table), 1))], axis=1),  # of offsets
        "query_weight": np.concatenate([state["pos_q_proj.weight"].T, query_offset]),
        "key_weight": np.concatenate([state["pos_proj.weight"].T, np.zeros((1, dim))]),
    }
    sizes = (reach, dim, HEADS) if column.name == "torch" else ()
    bias = column.with_parameters(
        "DisentangledBias",
        {name: column.array(x) for name, x in parameters.items()},
        *sizes,
        **{} if sizes else {"num_heads": HEADS},
        same_row=True,
    )
    query, key = (
        column.array(REFERENCE.split_heads(x @ w.reshape(dim, dim).T + b, HEADS))
        for w, b in zip(rows[:2], (state["q_bias"], np.zeros(dim)), strict=True)
    )
    where = column.positions(np.arange(tokens))
    scores = bias.scores(query, key, where, where)
    got = column.attention_weights(query, key, bias=scores, scale=bias.scale)
    assert_agree(column, got, probabilities)


def test_buckets_of_deberta_v2(column):
    """Its layers are DeBERTa's with these in the place of distances: see test_disentangled.py."""
    distances = np.arange(-511, 512)
    want = make_log_bucket_position(torch.tensor(distances), 256, 512)
    got = column.deberta_bucket(
        column.positions(distances), num_buckets=256, max_distance=512
    )
    assert np.array_equal(column.numpy(got), want.numpy())
