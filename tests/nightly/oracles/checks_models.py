"""What models have that no plan covers, and what plans say of tables, beside transformers (`nox -s oracles`).

The first are lines of code in docs/_records/models.json. What layers of recorded configurations do is
compared in checks_configs.py and checks_from_config.py.
"""

import torch
import transformers

from posattn.torch import sinusoidal_encoding, to_half
from tests.records import PLANS, RECORDS


def test_opts_table_has_two_rows_that_nothing_uses():
    config = transformers.OPTConfig(num_hidden_layers=1, vocab_size=8, pad_token_id=1)
    theirs = transformers.AutoModel.from_config(config).decoder.embed_positions
    assert PLANS["OPT 6.7B"].layers[0].table == ("learned", len(theirs.weight) - 2)
    mask = torch.ones(1, 3, dtype=torch.long)
    assert torch.equal(theirs(mask)[0], theirs.weight[2:5])


def test_whispers_sinusoid():
    from transformers.models.whisper.modeling_whisper import sinusoids

    rows = PLANS["Whisper tiny"].layers[0].table[1]
    width = RECORDS["Whisper tiny"]["d_model"]
    ours = to_half(sinusoidal_encoding(rows, width, base=1e4 ** (width / (width - 2))))
    assert (ours - sinusoids(rows, width)).abs().max() < 5e-4
