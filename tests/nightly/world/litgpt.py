"""LitGPT: its attention layer, its rotation and a small model."""

import torch
from litgpt import GPT, Config
from litgpt.model import (
    CausalSelfAttention,
    apply_rope,
    build_mask_cache,
    build_rope_cache,
)

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "litgpt==0.5.13"]


def _config(**options):
    sizes = {
        "n_layer": 1,
        "n_head": 2,
        "head_size": 16,
        "padded_vocab_size": 50,
        "bias": False,
    }
    sizes |= {"block_size": 16, "n_embd": 96, "rotary_percentage": 1.0}
    return Config(**sizes | options)


def _layer(**options):
    """A layer whose input is query, key and value side by side."""
    layer = CausalSelfAttention(_config(**options), 0).requires_grad_(False)
    layer.qkv.weight.copy_(torch.eye(96))
    layer.proj.weight.copy_(torch.eye(96)[:, :32])
    return layer


def _attend(*arrays, mask=None, where=None, layer=None, **options):
    """Call a layer without a rotation."""
    x = torch.cat([torch.from_numpy(x).transpose(1, 2).flatten(2) for x in arrays], -1)
    zeros = torch.zeros(1, x.shape[1], 16)
    out = (layer or _layer(**options))(x, zeros + 1, zeros, mask, where)
    return out[..., :32].unflatten(-1, (2, 16)).transpose(1, 2)


def causal(query, key, value):
    """Four tokens, then two, with a cache."""
    layer, mask = _layer(), build_mask_cache(6)
    layer.kv_cache = layer.build_kv_cache(1, 6, 16)
    for part in (slice(4), slice(4, 6)):
        arrays = (x[:, :, part] for x in (query, key, value))
        where = torch.arange(6)[part]
        out = _attend(*arrays, mask=mask[:, :, part], where=where, layer=layer)
    return out


PROBES = {
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=torch.from_numpy(empty)),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=torch.from_numpy(mask)),
    "rotated": lambda x, positions: _rotate(x, positions),
    "stretched": lambda x, positions, stretch: _rotate(x, positions, condense_ratio=stretch),
    "distant": lambda x, far: _rotate(x, far),
}  # fmt: skip


def scale(query, key, value):
    return _attend(query, key, value, mask=torch.ones(1, 1, 6, 6, dtype=torch.bool))


def soft_cap(query, key, value, mask, cap):
    hidden = torch.zeros(1, 1, 6, 6).masked_fill(torch.from_numpy(~mask), -1e9)
    return _attend(query, key, value, mask=hidden, attention_logit_softcapping=cap)


def sliding(query, key, value, window):
    options = {"sliding_window_size": window, "sliding_window_indices": [1]}
    return _attend(query, key, value, **options)


def _rotate(x, positions, width=16, **options):
    tables = build_rope_cache(int(positions.max()) + 1, width, **options)
    return apply_rope(torch.from_numpy(x), *(table[positions][None] for table in tables))


def _model(**options):
    torch.manual_seed(0)
    model = GPT(_config(n_embd=32, **options)).eval()
    model.transformer.h[0].attn.qkv.weight.data[:32] *= 8
    return model.requires_grad_(False)


def cached():
    """Four tokens, then two."""
    model, ids = _model(), torch.tensor([[3, 14, 15, 9, 2, 6]])
    whole = model(ids)
    model.set_kv_cache(1)
    parts = [model(ids[:, part], torch.arange(6)[part]) for part in (slice(4), slice(4, 6))]
    return whole, torch.cat(parts, 1)
