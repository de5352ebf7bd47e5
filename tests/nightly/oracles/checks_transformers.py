"""Hugging Face's transformers beside our columns; `nox -s oracles` runs this with the pinned version.

Their tables are float32, so agreement is asked for to `SINGLE`.
Where they differ from us, a test says in what, and who is right.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from transformers import (
    DebertaConfig,
    DebertaV2Config,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen2VLTextConfig,
    T5Config,
    XLNetConfig,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta.modeling_deberta import (
    DisentangledSelfAttention,
    build_relative_position,
)
from transformers.models.deberta_v2 import modeling_deberta_v2 as deberta_v2
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.roformer.modeling_roformer import (
    RoFormerSelfAttention,
    RoFormerSinusoidalPositionalEmbedding,
)
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.configuration_swinv2 import Swinv2Config
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
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


def by_head(x):
    """From heads before tokens to heads after tokens, as RoFormer and GPT-J have it, and back."""
    return x.transpose(1, 2)


# rotation


@pytest.mark.parametrize("positions", [np.arange(N), np.arange(40, 40 + N)])
def test_llama_rotates_halves(column, positions):
    x = draw(300, *HEADED, 8)
    config = LlamaConfig(hidden_size=8 * HEADS, num_attention_heads=HEADS)
    base = config.rope_parameters["rope_theta"]
    cos, sin = llama.LlamaRotaryEmbedding(config)(single(x), torch.tensor(positions)[None])
    want, _ = llama.apply_rotary_pos_emb(single(x), single(x), cos, sin)
    got = column.rotate(
        column.array(x), column.positions(positions), base=base, layout="half"
    )
    assert_agree(column, got, want)


def test_gpt_neox_rotates_a_part_in_halves(column):
    x = draw(301, *HEADED, 16)
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    config = GPTNeoXConfig(
        hidden_size=16 * HEADS, num_attention_heads=HEADS, rope_parameters=rope
    )
    cos, sin = gpt_neox.GPTNeoXRotaryEmbedding(config)(single(x), torch.arange(N)[None])
    assert cos.shape[-1] == 4
    want, _ = gpt_neox.apply_rotary_pos_emb(single(x), single(x), cos, sin)
    frequencies = column.frequencies(4, base=1e4)
    got = column.rotate(column.array(x), frequencies=frequencies, layout="half")
    assert_agree(column, got, want)


def test_gptj_rotates_pairs(column):
    x = draw(302, *HEADED, 8)
    sin, cos = gptj.create_sinusoidal_positions(N, 8)[None].chunk(2, dim=-1)
    want = by_head(gptj.apply_rotary_pos_emb(by_head(single(x)), sin, cos))
    assert_agree(column, column.rotate(column.array(x)), want)


def test_roformer_rotates_pairs(column):
    x = draw(303, *HEADED, 8)
    table = RoFormerSinusoidalPositionalEmbedding(N, 8).create_weight()[None, None]
    rotate = RoFormerSelfAttention.apply_rotary_position_embeddings
    want, _ = rotate(table, single(x), single(x))
    assert_agree(column, column.rotate(column.array(x)), want)


def test_float32_angles_of_llama_drift_and_ours_do_not(torch_column):
    """Known difference: they multiply positions by frequencies in float32."""
    far = torch.tensor([2**20 - 1])
    x = draw(304, 1, 1, 1, 64)
    config = LlamaConfig(hidden_size=64, num_attention_heads=1)
    cos, sin = llama.LlamaRotaryEmbedding(config)(single(x), far[None])
    theirs, _ = llama.apply_rotary_pos_emb(single(x), single(x), cos, sin)
    base = config.rope_parameters["rope_theta"]
    options = {"base": base, "layout": "half"}
    ours = torch_column.rotate(single(x), far, **options)
    exact = REFERENCE.rotate(x, far.numpy(), **options)
    assert error(double(theirs), exact) > 1e-3
    assert error(double(ours), exact) < 1e-6


def test_qwen2_vl_rotates_sections(column):
    x = draw(305, *HEADED, 16)
    sections = [2, 3, 3]
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}
    config = Qwen2VLTextConfig(
        hidden_size=16 * HEADS, num_attention_heads=HEADS, rope_parameters=rope
    )
    places = np.random.default_rng(0).integers(0, 30, (N, 3))
    ids = torch.tensor(places.T)[:, None]
    cos, sin = qwen2_vl.Qwen2VLRotaryEmbedding(config)(single(x), ids)
    want, _ = qwen2_vl.apply_rotary_pos_emb(single(x), single(x), cos, sin)
    frequencies = column.mrope_frequencies(16, sections, base=1e4)
    got = column.rotate_axes(
        column.array(x), column.positions(places), frequencies, layout="half"
    )
    assert_agree(column, got, want)


# context extension

TRAINED = 64
SHORT, LONG = [1.0 + j / 9 for j in range(16)], [2.0 + j for j in range(16)]
# what they are told beside base and factor, and how we are called for a length of n
SCALINGS = {
    "linear": ({}, lambda c, n, **o: (c.position_interpolation(32, **o), 1.0)),
    "dynamic": (
        {},
        lambda c, n, **o: (c.dynamic_ntk(32, length=n, trained_length=TRAINED, **o), 1.0),
    ),
    "yarn": ({}, lambda c, n, **o: c.yarn(32, trained_length=TRAINED, **o)),
    "yarn, other betas": (
        {"beta_fast": 16.0, "beta_slow": 2.0},
        lambda c, n, **o: c.yarn(
            32, trained_length=TRAINED, beta_fast=16.0, beta_slow=2.0, **o
        ),
    ),
    "yarn, ends not rounded": (
        {"truncate": False},
        lambda c, n, **o: c.yarn(32, trained_length=TRAINED, truncate=False, **o),
    ),
    **{
        f"yarn, {weights}": (
            weights,
            lambda c, n, weights=weights, **o: c.yarn(
                32, trained_length=TRAINED, **weights, **o
            ),
        )
        for weights in (
            {"mscale": 0.707, "mscale_all_dim": 1.0},
            {"mscale": 1.0, "mscale_all_dim": 1.0},
            {"mscale": 0.707},
            {"mscale_all_dim": 0.707},
            {"mscale": 0.707, "mscale_all_dim": 0.0},
        )
    },
    "longrope": (
        {"short_factor": SHORT, "long_factor": LONG},
        lambda c, n, **o: c.longrope(
            32,
            short_factors=SHORT,
            long_factors=LONG,
            length=n,
            trained_length=TRAINED,
            **o,
        ),
    ),
    "llama3": (
        {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
        lambda c, n, **o: (c.llama3(32, trained_length=TRAINED, **o), 1.0),
    ),
    "llama3, equal factors": (
        {"low_freq_factor": 1.0, "high_freq_factor": 1.0},
        lambda c, n, **o: (
            c.llama3(32, trained_length=TRAINED, high_frequency_factor=1.0, **o),
            1.0,
        ),
    ),
}


def scaled_config(kind, options):
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, **options}
    if kind not in ("linear", "dynamic"):
        rope["original_max_position_embeddings"] = TRAINED
    return LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=TRAINED if kind == "dynamic" else 4 * TRAINED,
        rope_parameters=rope,
    )


@pytest.mark.parametrize("length", [1, TRAINED, TRAINED + 1, 3 * TRAINED])
@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_frequencies_and_attention_factors(column, name, length):
    options, ours = SCALINGS[name]
    kind = name.partition(",")[0]
    config = scaled_config(kind, options)
    want, want_factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    got, got_factor = ours(column, length, base=1e4, factor=4.0)
    assert np.allclose(np.asarray(got), double(want), rtol=2e-6, atol=0)
    assert got_factor == pytest.approx(want_factor, rel=1e-12)


def test_dynamic_ntk_of_a_layer_remembers_a_longer_sequence(torch_column):
    """Known difference (huggingface/transformers #25306): theirs depends on what was seen before.

    A sequence of just the trained length, or a shorter one than the longest that is still beyond
    it, keeps the frequencies of the longest.
    Ours is a function of the length.
    """
    rotary = llama.LlamaRotaryEmbedding(scaled_config("dynamic", {}))
    x = torch.zeros(1, 1, 1)

    def theirs(length):
        rotary(x, torch.arange(length)[None])
        return double(rotary.inv_freq).copy()

    def ours(length):
        options = {"factor": 4.0, "length": length, "trained_length": TRAINED}
        return torch_column.dynamic_ntk(32, base=1e4, **options).numpy()

    first = theirs(TRAINED)
    assert np.allclose(first, ours(TRAINED), rtol=2e-6, atol=0)
    assert np.allclose(theirs(3 * TRAINED), ours(3 * TRAINED), rtol=2e-6, atol=0)
    for length in (2 * TRAINED, TRAINED):
        assert np.allclose(theirs(length), ours(3 * TRAINED), rtol=2e-6, atol=0)
        assert not np.allclose(ours(length), ours(3 * TRAINED), rtol=2e-6, atol=0)
    assert np.allclose(theirs(TRAINED - 1), first, rtol=2e-6, atol=0)  # so far it resets


# biases

BUCKETS = [(32, 128, True), (32, 128, False), (8, 20, True), (16, 300, False)]


@pytest.mark.parametrize(("num_buckets", "max_distance", "bidirectional"), BUCKETS)
def test_t5_buckets(column, num_buckets, max_distance, bidirectional):
    relative = np.arange(-(2**10), 2**10)
    want = T5Attention._relative_position_bucket(
        torch.tensor(relative), bidirectional, num_buckets, max_distance
    )
    got = column.t5_bucket(
        column.positions(relative),
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    assert np.array_equal(column.numpy(got), want.numpy())


@pytest.mark.parametrize(
    ("num_buckets", "max_distance", "bidirectional", "distance"),
    [
        (48, 81, False, 54),
        (34, 27, True, 18),
        (38, 196, True, 42),
        (46, 164, False, 107),
        (58, 282, False, 119),
    ],
)
def test_t5_buckets_at_boundaries_that_float32_misses(
    column, num_buckets, max_distance, bidirectional, distance
):
    """Known difference: their logarithm is float32. Rational arithmetic says that ours are right."""
    options = {
        "num_buckets": num_buckets,
        "max_distance": max_distance,
        "bidirectional": bidirectional,
    }
    one_way = num_buckets // 2 if bidirectional else num_buckets
    exact = one_way // 2
    steps = one_way - exact
    ratio, full = Fraction(distance, exact), Fraction(max_distance, exact)
    true = exact + max(k for k in range(steps) if full**k <= ratio**steps)
    ours = column.t5_bucket(column.positions(np.array([-distance])), **options)
    theirs = T5Attention._relative_position_bucket(torch.tensor([-distance]), **options)
    assert column.numpy(ours).tolist() == [true]
    assert abs(int(theirs) - true) == 1


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_bias(column, bidirectional):
    config = T5Config(d_model=12, d_kv=4, num_heads=HEADS, is_decoder=not bidirectional)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    table = draw(306, 32, HEADS)
    theirs.relative_attention_bias.weight.data = single(table)
    want = theirs.compute_bias(40, 50)[0]
    layer = column.with_parameters(
        "T5Bias", {"table": column.array(table)}, HEADS, bidirectional=bidirectional
    )
    got = layer(column.positions(np.arange(40)), column.positions(np.arange(50)))
    assert_agree(column, got, want)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 8, 12, 16, 20, 71])
def test_alibi_of_bloom_and_mpt(column, num_heads):
    """Both leave a constant per row out, which the softmax ignores."""
    n = N
    where = column.positions(np.arange(n))
    ours = np.asarray(column.ALiBi(num_heads)(where, where), np.float64)
    past = np.tri(n, dtype=bool)
    bloom = double(build_alibi_tensor(torch.ones(1, n), num_heads, torch.float32))
    mpt = double(build_mpt_alibi_tensor(num_heads, n))
    for theirs in (bloom, mpt):
        row = ours - theirs
        assert np.allclose((row - row[..., :1])[:, past], 0, atol=SINGLE)
    slopes = np.asarray(column.alibi_slopes(num_heads))
    assert np.allclose(slopes, bloom[:, 0, 1] - bloom[:, 0, 0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("window", [(4, 4), (2, 5), (1, 3)])
def test_swin_bias(column, window):
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


@pytest.mark.parametrize("trained", [(0, 0), (3, 6)])
@pytest.mark.parametrize("window", [(4, 4), (2, 5)])
def test_swin_v2_attention(column, window, trained):
    """The whole attention: cosines with a factor per head are a rotation, and the bias is ours."""
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
    if trained[0]:
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


def deberta(kinds, table, query_weight, key_weight):
    """Their bias, already divided by the scale of `1 + len(kinds)` terms, as a function."""
    dim = len(query_weight)
    config = DebertaConfig(
        hidden_size=dim,
        num_attention_heads=HEADS,
        relative_attention=True,
        max_relative_positions=len(table) // 2,
        pos_att_type=kinds,
    )
    layer = DisentangledSelfAttention(config).eval()
    if "c2p" in kinds:
        layer.pos_proj.weight.data = single(key_weight.T)
    if "p2c" in kinds:
        layer.pos_q_proj.weight.data = single(query_weight.T)
        layer.pos_q_proj.bias.data.zero_()

    def bias(query, key):
        scale = math.sqrt((1 + len(kinds)) * query.shape[-1])
        query, key = single(query) / scale, single(key)
        relative = build_relative_position(query, key)
        return layer.disentangled_att_bias(
            query, key, relative, single(table), 1 + len(kinds)
        )

    return bias


def test_deberta_content_to_position(column):
    width, reach = 4, 5  # fewer than tokens, so that distances are clipped
    dim = width * HEADS
    table, weight = draw(316, 2 * reach, dim), draw(317, dim, dim) / 4
    zero = np.zeros((dim, dim))
    query, key = draw(318, *HEADED, width), draw(319, *HEADED, width)
    want = deberta(["c2p"], table, zero, weight)(query, key) * math.sqrt(2 / 3)
    parameters = {"table": table, "query_weight": zero, "key_weight": weight}
    got = disentangled(column, parameters, reach, dim).scores(
        column.array(query), column.array(key), *positions_of(column)
    )
    assert_agree(column, got, want)


def disentangled(column, parameters, reach, dim, **options):
    sizes = (reach, dim, HEADS) if column.name == "torch" else ()
    options |= {} if sizes else {"num_heads": HEADS}
    arrays = {name: column.array(x) for name, x in parameters.items()}
    return column.with_parameters("DisentangledBias", arrays, *sizes, **options)


def test_deberta_position_to_content(column):
    """Known difference: the paper's equation has the distance from key to query.

    The authors' code reads the row of the distance from query to key there, too (microsoft/DeBERTa
    #162), and so does transformers, of which that thread says the opposite: it negates the number and
    then transposes the matrix. With `same_row` we do.
    """
    width, reach = 4, N + 1
    dim = width * HEADS
    table, weight = draw(320, 2 * reach, dim), draw(321, dim, dim) / 4
    zero = np.zeros((dim, dim))
    query, key = draw(322, *HEADED, width), draw(323, *HEADED, width)
    # their reach is at most the number of tokens, and the middle of the table is used
    want = deberta(["p2c"], table, weight, zero)(query, key) * math.sqrt(2 / 3)
    inputs = column.array(query), column.array(key), *positions_of(column)
    parameters = {"table": table, "query_weight": weight, "key_weight": zero}
    same, paper = (
        disentangled(column, parameters, reach, dim, same_row=same_row).scores(*inputs)
        for same_row in (True, False)
    )
    assert_agree(column, same, want)
    assert error(column.numpy(paper), double(want)) > 0.1


def with_ones(table):
    """What makes a row of a matrix an offset."""
    return np.concatenate([table, np.ones((len(table), 1))], axis=1)


@pytest.mark.parametrize("kind", ["first", "second"])
def test_attention_weights_of_deberta(column, kind):
    """A whole layer of theirs with all its offsets, in the second version with its buckets."""
    tokens, reach, width = 40, 8, 4
    dim = width * HEADS
    torch.manual_seed(0)
    options = {
        "hidden_size": dim,
        "num_attention_heads": HEADS,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
    }
    if kind == "first":
        config = DebertaConfig(max_relative_positions=reach, **options)
        layer, bucketed_to = DisentangledSelfAttention(config), None
        relative = torch.arange(tokens)[:, None] - torch.arange(tokens)
    else:
        config = DebertaV2Config(
            position_buckets=reach, max_relative_positions=20, share_att_key=True, **options
        )
        layer, bucketed_to = deberta_v2.DisentangledSelfAttention(config), 20
        x = torch.zeros(1, tokens, 1)
        relative = deberta_v2.build_relative_position(x, x, reach, 20)[0]
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, table = draw(324, 1, tokens, dim), draw(325, 2 * reach, dim)
    _, probabilities = layer.eval()(
        single(x),
        torch.ones(1, 1, tokens, tokens),
        output_attentions=True,
        relative_pos=relative[None],
        rel_embeddings=single(table),
    )
    state = {name: double(p) for name, p in layer.named_parameters()}
    if kind == "first":  # heads first, then query, key and value
        query_weight, key_weight, _ = (
            state["in_proj.weight"].reshape(HEADS, 3, width, dim).swapaxes(0, 1)
        )
        content = query_weight.reshape(dim, dim).T, key_weight.reshape(dim, dim).T
        content_offsets = state["q_bias"], np.zeros(dim)
        places = state["pos_q_proj.weight"].T, state["pos_proj.weight"].T
        offsets = state["pos_q_proj.bias"], np.zeros(dim)
    else:
        content = places = state["query_proj.weight"].T, state["key_proj.weight"].T
        content_offsets = offsets = state["query_proj.bias"], state["key_proj.bias"]
    query_weight, key_weight = (
        np.concatenate([w, b[None]]) for w, b in zip(places, offsets, strict=True)
    )
    parameters = {"table": with_ones(table), "query_weight": query_weight}
    parameters["key_weight"] = key_weight
    bias = disentangled(
        column, parameters, reach, dim, same_row=True, bucketed_to=bucketed_to
    )
    query, key = (
        column.array(REFERENCE.split_heads(x @ w + b, HEADS))
        for w, b in zip(content, content_offsets, strict=True)
    )
    where = column.positions(np.arange(tokens))
    scores = bias.scores(query, key, where, where)
    got = column.attention_weights(query, key, bias=scores, scale=bias.scale)
    assert_agree(column, got, probabilities)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(256, 512), (32, 128), (8, 20)])
def test_buckets_of_deberta(column, num_buckets, max_distance):
    relative = np.arange(-2 * max_distance, 2 * max_distance)
    theirs = deberta_v2.make_log_bucket_position(
        torch.tensor(relative), num_buckets, max_distance
    )
    want = np.clip(theirs.numpy(), -num_buckets, num_buckets)  # they go on beyond the table
    sizes = {"num_buckets": num_buckets, "max_distance": max_distance}
    got = column.deberta_bucket(column.positions(relative), **sizes)
    assert np.array_equal(np.asarray(got), want)


# absolute encodings


@pytest.mark.parametrize("dim", [8, 7])
def test_concatenated_sinusoids_of_roformer(column, dim):
    want = RoFormerSinusoidalPositionalEmbedding(N, dim).create_weight()
    got = column.to_half(column.sinusoidal_encoding(column.positions(np.arange(N)), dim))
    assert error(np.asarray(got, np.float64), double(want)) <= SINGLE


def test_sinusoids_of_m2m100_have_other_frequencies(column):
    """Known difference: tensor2tensor's frequencies reach 1/base itself, the paper's do not."""
    dim = 8
    theirs = double(M2M100SinusoidalPositionalEmbedding.get_embedding(N, dim))
    encoding = column.to_half(
        column.sinusoidal_encoding(column.positions(np.arange(N)), dim)
    )
    assert error(np.asarray(encoding, np.float64), theirs) > 0.1
    # the base that makes the slowest frequency 1/10000
    stretched = 10000.0 ** (dim / (dim - 2))
    encoding = column.to_half(
        column.sinusoidal_encoding(column.positions(np.arange(N)), dim, base=stretched)
    )
    assert error(np.asarray(encoding, np.float64), theirs) <= SINGLE
