"""What models have that no plan covers, and what plans say of tables, beside transformers (`nox -s oracles`).

The first are lines of code in docs/_records/models.json. What layers of recorded configurations do is
compared in checks_configs.py and checks_from_config.py.
"""

import importlib

import torch
import transformers

from posattn.torch import sinusoidal_encoding, to_half
from tests.records import PLANS, RECORDS


def modelling(config):
    """The module of a configuration's model."""
    return importlib.import_module(
        type(config).__module__.replace("configuration", "modeling")
    )


def test_opts_table_has_two_rows_that_nothing_uses():
    config = transformers.OPTConfig(num_hidden_layers=1, vocab_size=8, pad_token_id=1)
    theirs = transformers.AutoModel.from_config(config).decoder.embed_positions
    assert PLANS["OPT 6.7B"].layers[0].table == ("learned", len(theirs.weight) - 2)
    mask = torch.ones(1, 3, dtype=torch.long)
    assert torch.equal(theirs(mask)[0], theirs.weight[2:5])


def test_whispers_sinusoid():
    from transformers.models.whisper.modeling_whisper import sinusoids

    rows, width = (
        PLANS["Whisper tiny"].layers[0].table[1],
        RECORDS["Whisper tiny"]["d_model"],
    )
    ours = to_half(sinusoidal_encoding(rows, width, base=1e4 ** (width / (width - 2))))
    assert (ours - sinusoids(rows, width)).abs().max() < 5e-4


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
    x = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    order = [3, 0, 4, 1, 2]
    whole, permuted = (
        layer(hidden_states=y, attention_mask=None)[0] for y in (x, x[:, order])
    )
    torch.testing.assert_close(permuted, whole[:, order], atol=1e-5, rtol=1e-5)
    assert "no position" in str(PLANS["Jamba 1.5 Mini"].layers[4])
