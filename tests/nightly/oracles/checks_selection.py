"""DeepSeek-V4's selection of keys beside that of transformers, on the same weights (`nox -s oracles`).

Those of Qwen4, GLM-5-Next and MiniMax-M3 are in the layers of checks_from_config.py and checks_latent.py.
"""

import pytest
import torch
import transformers
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4

from posattn import torch as posattn

N, DIM, HEADS, WIDTH, RANK = 61, 24, 16, 8, 12
X = torch.randn(2, N, DIM, generator=torch.Generator().manual_seed(0)).double()
NARROW = torch.randn(2, N, RANK, generator=torch.Generator().manual_seed(1)).double()
FREQUENCIES = torch.tensor([1.0, 0.3])


def drawn(module):
    """A module whose weights are drawn, in float64."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return module.double().eval()


def angles(positions):
    """The cosines and sines of FREQUENCIES as transformers takes them."""
    phase = positions[..., None] * FREQUENCIES.double().repeat(2)
    return phase.cos(), phase.sin()


def keys_of(indices, n):
    """Which keys are selected, `(..., n_q, n)`."""
    held = torch.where(indices < 0, n, indices).long()
    return torch.zeros(*held.shape[:-1], n + 1).scatter(-1, held, 1)[..., :n].bool()


def heads(x):
    return x.unflatten(-1, (-1, WIDTH)).transpose(1, 2)


@torch.no_grad()
def test_groups_that_overlap_are_deepseeks():
    config = transformers.DeepseekV4Config(
        hidden_size=DIM,
        head_dim=WIDTH,
        q_lora_rank=RANK,
        index_n_heads=HEADS,
        index_head_dim=WIDTH,
        index_topk=5,
        partial_rotary_factor=0.5,
        num_hidden_layers=3,
    )
    theirs = drawn(v4.DeepseekV4Indexer(config))
    theirs.rotary_emb.forward = lambda x, position_ids, layer_type: [
        part[..., :2] for part in angles(position_ids)
    ]
    at = torch.arange(N).expand(2, N)
    want = theirs(X, NARROW, at, None, 0)
    gates = theirs.gate_proj(X) + theirs.position_bias[at % 4]
    key = posattn.group_keys(theirs.kv_proj(X), 4, gates=gates, overlap=True)
    key = theirs.kv_norm(key)
    query = heads(theirs.q_b_proj(NARROW))

    def last(x, positions):
        rest, pairs = x.split([WIDTH - 4, 4], dim=-1)
        waves = FREQUENCIES.double()
        return torch.cat(
            [rest, posattn.rotate(pairs, positions[:, None], frequencies=waves)], -1
        )

    key = last(key[:, None], at[:, : N // 4] * 4)[:, 0]
    weights = theirs.scorer.weights_proj(X)
    scores = posattn.indexer_scores(last(query, at), key, weights)
    got = posattn.select_keys(scores, 5, mask=posattn.group_mask(N, N, 4))
    assert torch.equal(keys_of(got, N // 4), keys_of(want, N // 4))
    assert pytest.approx(5) == float(keys_of(got, N // 4)[:, -1].sum(-1).double().mean())
