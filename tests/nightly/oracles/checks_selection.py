"""Selections of keys beside the indexers of transformers, on the same weights (`nox -s oracles`)."""

import pytest
import torch
import transformers
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4
from transformers.models.glm5_next import modeling_glm5_next as glm
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as m3
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen

from posattn import torch as posattn

N, DIM, HEADS, WIDTH, RANK = 61, 24, 16, 8, 12
X = torch.randn(2, N, DIM, generator=torch.Generator().manual_seed(0)).double()
NARROW = torch.randn(2, N, RANK, generator=torch.Generator().manual_seed(1)).double()
PADDED = torch.arange(N) >= torch.tensor([[0], [6]])
WHERE = (PADDED.cumsum(-1) - 1).clamp(min=0)
FREQUENCIES = torch.tensor([1.0, 0.3])


def drawn(kind, config, *place):
    """A module whose weights are drawn, in float64."""
    torch.manual_seed(2)
    module = kind(config, *place)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return module.double().eval()


def angles(positions):
    """The cosines and sines of FREQUENCIES as transformers takes them."""
    phase = positions[..., None] * FREQUENCIES.double().repeat(2)
    return phase.cos(), phase.sin()


def turned(x, positions, layout="half"):
    """Heads, `(*batch, h, n, d)`, with their first entries rotated."""
    positions = positions[:, None]
    return posattn.rotate(x, positions, frequencies=FREQUENCIES.double(), layout=layout)


def keys_of(indices, n=N):
    """Which keys are selected, `(..., n_q, n)`."""
    held = torch.where(indices < 0, n, indices).long()
    return torch.zeros(*held.shape[:-1], n + 1).scatter(-1, held, 1)[..., :n].bool()


def heads(x):
    return x.unflatten(-1, (-1, WIDTH)).transpose(1, 2)


@torch.no_grad()
def test_groups_by_mean_are_qwen4s():
    config = transformers.Qwen4ExpTextConfig(
        hidden_size=DIM,
        indexer_n_heads=HEADS,
        indexer_kv_heads=1,
        indexer_head_dim=WIDTH,
        indexer_budget=12,
        indexer_compress_ratio=4,
        head_dim=WIDTH,
    )
    theirs = drawn(qwen.Qwen4ExpTextQSAIndexer, config, 0)
    seen = torch.ones(N, N, dtype=torch.bool).tril() & PADDED[:, None]
    want = theirs(X, angles(WHERE), seen[:, None], None)[:, 0]
    query, key = theirs.index_qk_proj(X).split([HEADS * WIDTH, WIDTH], dim=-1)
    query = turned(theirs.q_layernorm(heads(query)), WHERE)
    first = posattn.group_tokens(N, 4, mask=PADDED)[..., 0]
    at = WHERE.gather(-1, first.clamp(min=0))
    key = theirs.k_layernorm(posattn.group_keys(key, 4, mask=PADDED))
    key = turned(key[:, None], at)[:, 0]
    scores = posattn.indexer_scores(query, key)
    got = posattn.select_groups(scores, 3, 4, N, mask=PADDED, causal=True)
    assert torch.equal(keys_of(got)[PADDED], want[PADDED])


@torch.no_grad()
def test_gated_groups_are_glms():
    config = transformers.Glm5NextTextConfig(
        hidden_size=DIM,
        q_lora_rank=RANK,
        index_n_heads=HEADS,
        index_head_dim=WIDTH,
        index_topk=16,
        index_kpool=4,
    )
    theirs = drawn(glm.Glm5NextTextIndexer, config, 0)
    want = theirs(X, NARROW, PADDED, None)
    key = theirs.k_norm(theirs.wk(X))
    order = WHERE.where(PADDED, 0) % 4
    gates = X @ theirs.index_kpool_compress_gate.mT + theirs.index_kpool_compress_ape[order]
    key = posattn.group_keys(key, 4, gates=gates, mask=PADDED)
    scores = posattn.indexer_scores(heads(theirs.wq_b(NARROW)), key, theirs.weights_proj(X))
    got = posattn.select_groups(scores, 4, 4, N, mask=PADDED, causal=True)
    assert torch.equal(keys_of(got)[PADDED], keys_of(want)[PADDED])


@torch.no_grad()
def test_blocks_by_their_best_key_are_minimaxs():
    config = transformers.MiniMaxM3VLTextConfig(
        hidden_size=DIM,
        num_attention_heads=8,
        num_key_value_heads=4,
        index_n_heads=4,
        index_head_dim=WIDTH,
        index_block_size=8,
        index_topk_blocks=3,
        index_local_blocks=1,
    )
    theirs = drawn(m3.MiniMaxM3VLIndexer, config, 0)
    at = torch.arange(N).expand(2, N)
    blocks = theirs(X, angles(at), None, at)
    want = theirs.build_block_mask(blocks, None, N, X.dtype, X.device, at) == 0
    query = turned(theirs.q_norm(heads(theirs.q_proj(X))), at)
    key = turned(theirs.k_norm(heads(theirs.k_proj(X))), at)
    got = posattn.select_blocks(query @ key.mT, 3, 8, causal=True)
    assert torch.equal(keys_of(got).repeat_interleave(2, dim=1), want)


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
    theirs = drawn(v4.DeepseekV4Indexer, config)
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
        rest, turning = x.split([WIDTH - 4, 4], dim=-1)
        return torch.cat([rest, turned(turning, positions, "interleaved")], -1)

    key = last(key[:, None], at[:, : N // 4] * 4)[:, 0]
    weights = theirs.scorer.weights_proj(X)
    scores = posattn.indexer_scores(last(query, at), key, weights)
    got = posattn.select_keys(scores, 5, mask=posattn.group_mask(N, N, 4))
    assert torch.equal(keys_of(got, N // 4), keys_of(want, N // 4))
    assert pytest.approx(5) == float(keys_of(got, N // 4)[:, -1].sum(-1).double().mean())
