"""What models have that no plan covers, and what plans say of tables, beside transformers (`nox -s oracles`).

The first are lines of code in docs/_records/models.json. What layers of recorded configurations do is
compared in checks_configs.py and checks_from_config.py.
"""

import importlib
import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import posattn.torch
from posattn.torch import (
    ALiBi,
    LearnedPositionalEncoding,
    T5Bias,
    sinusoidal_encoding,
    to_half,
)
from tests.conftest import draw, error
from tests.records import PLANS, RECORDS

ROWS = json.loads(
    (Path(__file__).parents[3] / "docs" / "_records" / "models.json").read_text("utf-8")
)
NAMES = {name: getattr(posattn.torch, name) for name in posattn.torch.__all__}
SINGLE = 1e-5  # of float32 tables at the small positions that are compared
WHERE = torch.tensor([0, 1, 2, 3, 5, 8, 40])


def evaluated(family):
    """What a model's line of code makes."""
    (row,) = (row for row in ROWS if row["family"] == family)
    return eval(row["code"], {"partial": partial, **NAMES})


def modelling(config):
    """The module of a configuration's model."""
    return importlib.import_module(
        type(config).__module__.replace("configuration", "modeling")
    )


def single(x):
    return torch.tensor(x, dtype=torch.float32)


def double(x):
    return x.detach().double().numpy()


def test_dinov3_turns_by_rows_and_columns():
    config = transformers.DINOv3ViTConfig(image_size=8 * 3, patch_size=8)
    found = modelling(config)
    rope = found.DINOv3ViTRopePositionEmbedding(config).eval()
    cos, sin = rope(torch.zeros(1, 3, 24, 24))
    x = draw(700, 2, 9, 64)
    theirs = found.apply_rotary_pos_emb(single(x)[None], single(x)[None], cos, sin)[0][0]
    centres = (2 * np.arange(3) + 1) / 3 - 1  # of 3 by 3 patches, from -1 to 1
    grid = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1)
    where = torch.tensor(2 * math.pi * grid.reshape(9, 2))
    ours = evaluated("DINOv3")(torch.tensor(x), where).numpy()
    assert error(ours, double(theirs)) <= SINGLE


def test_dinov3s_coordinates_run_from_minus_to_plus_two_pi():
    found = modelling(transformers.DINOv3ViTConfig())
    for size in (3, 30):
        centres = found.get_patches_center_coordinates(size, size, torch.float32, "cpu")
        assert centres.min() == pytest.approx(-1 + 1 / size)
        assert centres.max() == pytest.approx(1 - 1 / size)


@pytest.mark.parametrize(
    ("family", "kind", "module", "offset"),
    [
        ("BERT", "Bert", "embeddings.position_embeddings", 0),
        ("GPT-2", "GPT2", "wpe", 0),
        ("OPT", "OPT", "decoder.embed_positions", 2),  # two rows that nothing uses
    ],
)
def test_learned_tables(family, kind, module, offset):
    config = getattr(transformers, f"{kind}Config")(
        num_hidden_layers=1, vocab_size=8, pad_token_id=1
    )
    theirs = transformers.AutoModel.from_config(config).get_submodule(module)
    what, rows = PLANS[family].layers[0].table
    assert (what, rows + offset) == ("learned", len(theirs.weight))
    ours = LearnedPositionalEncoding(rows + offset, config.hidden_size)
    ours.load_state_dict({"table": theirs.weight})
    x = torch.zeros(len(WHERE), config.hidden_size)
    got = ours(x, positions=WHERE + offset)
    assert torch.equal(got, theirs.weight[WHERE + offset])


def test_whispers_sinusoid():
    from transformers.models.whisper.modeling_whisper import sinusoids

    rows, width = PLANS["Whisper"].layers[0].table[1], RECORDS["Whisper"]["d_model"]
    ours = to_half(sinusoidal_encoding(rows, width, base=1e4 ** (width / (width - 2))))
    assert np.abs(ours.double().numpy() - double(sinusoids(rows, width))).max() < 5e-4


def test_marians_sinusoid():
    found = modelling(transformers.MarianConfig())
    rows, width = PLANS["Marian"].layers[0].table[1], RECORDS["Marian"]["d_model"]
    theirs = found.MarianSinusoidalPositionalEmbedding(rows, width).create_weight()
    ours = to_half(sinusoidal_encoding(rows, width))
    assert error(ours.double().numpy(), double(theirs)) <= SINGLE


@pytest.mark.parametrize(("place", "both"), [(0, True), (6, False)])
def test_t5(place, both):
    config = transformers.T5Config(is_decoder=not both)
    theirs = modelling(config).T5Attention(
        config, has_relative_attention_bias=True, layer_idx=0
    )
    bias = PLANS["T5"].layers[place].bias
    assert bias.bidirectional == both
    ours = T5Bias(
        config.num_heads,
        num_buckets=bias.count,
        max_distance=bias.max_distance,
        bidirectional=both,
    )
    ours.load_state_dict({"table": theirs.relative_attention_bias.weight})
    got = ours(torch.arange(200), torch.arange(300))
    assert error(double(got), double(theirs.compute_bias(200, 300)[0])) <= SINGLE


@pytest.mark.parametrize("family", ["BLOOM", "MPT"])
def test_alibi(family):
    layer = PLANS[family].layers[0]
    where = torch.arange(9)
    ours = double(ALiBi(layer.num_heads)(where, where))
    np.testing.assert_allclose(layer.bias.values, -ours[:, 1, 0], rtol=1e-6)
    if family == "MPT":
        build = modelling(transformers.MptConfig()).build_mpt_alibi_tensor
        theirs = double(build(layer.num_heads, 9))
    else:
        build = modelling(transformers.BloomConfig()).build_alibi_tensor
        theirs = double(build(torch.ones(1, 9), layer.num_heads, torch.float32))
    row_by_row = ours - theirs  # both leave a constant per row out
    assert np.allclose(
        (row_by_row - row_by_row[..., :1])[:, np.tri(9, dtype=bool)], 0, atol=SINGLE
    )


def test_xlnet_has_the_sizes_of_the_line():
    """Its numbers are compared in checks_transformers.py."""
    config, ours = transformers.XLNetConfig(), evaluated("XLNet")
    assert ours.weight.shape == (config.d_model, config.d_model)
    assert ours.content_bias.shape == (config.n_head, config.d_model // config.n_head)


def test_swin():
    config = transformers.SwinConfig()
    theirs = modelling(config).SwinRelativePositionBias(
        config.num_heads[0], (config.window_size,) * 2
    )
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    ours = evaluated("Swin")
    ours.load_state_dict({"table": theirs.relative_position_bias_table})
    where = torch.arange(config.window_size**2)
    assert error(double(ours(where, where)), double(theirs()[0])) <= SINGLE


def test_jambas_attention_is_told_no_positions():
    config = transformers.JambaConfig(
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=8,
        attn_layer_period=2,
        attn_layer_offset=0,
    )
    config._attn_implementation = "eager"
    layer = modelling(config).JambaAttention(config, layer_idx=0).eval()
    x = single(draw(702, 1, 5, 32))
    order = [3, 0, 4, 1, 2]
    whole, permuted = (
        layer(hidden_states=y, attention_mask=None)[0] for y in (x, x[:, order])
    )
    assert error(double(permuted), double(whole[:, order])) <= SINGLE
    assert "no position" in str(PLANS["Jamba"].layers[4])


def test_the_default_base_of_qwen3_is_not_that_of_its_checkpoints():
    """The page of the table tells it as a common mistake."""
    assert transformers.Qwen3Config().rope_parameters["rope_theta"] == 10000
    assert RECORDS["Qwen3"]["rope_theta"] == 1000000


@pytest.mark.parametrize("kind", ["GPTJ", "RoFormer"])
def test_frequencies_that_are_no_key(kind):
    """Those of a rotation whose angles stand in a table: both count from the base 10000."""
    config = getattr(transformers, f"{kind}Config")()
    found = modelling(config)
    layer = PLANS["GPT-J" if kind == "GPTJ" else "RoFormer"].layers[0]
    angles = np.arange(9.0)[:, None] * np.array(layer.rope.frequencies)
    if kind == "GPTJ":
        theirs = found.create_sinusoidal_positions(9, config.rotary_dim)
    else:
        theirs = found.RoFormerSinusoidalPositionalEmbedding(9, 64).create_weight()
    want = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    assert np.abs(double(theirs) - want).max() < SINGLE
