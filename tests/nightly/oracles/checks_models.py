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
    LearnedPositionalEncoding,
    T5Bias,
    sinusoidal_encoding,
    to_half,
)
from tests.conftest import draw, error
from tests.records import PLANS, RECORDS

ROWS = Path(__file__).parents[3] / "docs" / "_records" / "models.json"
SINGLE = 1e-5  # of float32 tables at the small positions that are compared
WHERE = torch.tensor([0, 1, 2, 3, 5, 8, 40])


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
    rows = json.loads(ROWS.read_text("utf-8"))
    (code,) = (row["code"] for row in rows if row["family"] == "DINOv3")
    ours = eval(code, {"partial": partial, **vars(posattn.torch)})
    assert error(ours(torch.tensor(x), where).numpy(), double(theirs)) <= SINGLE


@pytest.mark.parametrize(
    ("family", "kind", "module", "offset"),
    [
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
