"""transformers, `sdpa` attention: the default, in the same layers and models."""

import functools

import torch
from transformers import DynamicCache
from transformers.masking_utils import (
    create_causal_mask,
    create_sliding_window_causal_mask,
    sdpa_mask,
)
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.mistral.modeling_mistral import MistralAttention

from tests.nightly.world.transformers_eager import _attend, _logits, _model

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0"]
_attend = functools.partial(_attend, kind="sdpa")
_model = functools.partial(_model, kind="sdpa")


def causal(query, key, value):
    cache = DynamicCache()
    for part in (slice(4), slice(4, 6)):
        arrays = (x[:, :, part] for x in (query, key, value))
        out = _attend(*arrays, mask=create_causal_mask, cache=cache)
    return out


def empty_row(query, key, value, empty):
    table = torch.from_numpy(empty)
    made = sdpa_mask(
        1,
        6,
        6,
        allow_is_causal_skip=False,
        mask_function=lambda b, h, i, j: table[b, 0, i, j],
    )
    return _attend(query, key, value, mask=made)


def true(query, key, value, mask):
    return _attend(query, key, value, mask=torch.from_numpy(mask))


def scale(query, key, value):
    return _attend(query, key, value, mask=torch.zeros(1, 1, 6, 6))


def soft_cap(query, key, value, mask, cap):
    hidden = torch.zeros(1, 1, 6, 6).masked_fill(torch.from_numpy(~mask), -1e9)
    options = {"attn_logit_softcapping": cap, "query_pre_attn_scalar": 16}
    return _attend(query, key, value, mask=hidden, layer=Gemma2Attention, **options)


def sliding(query, key, value, window):
    mask, options = create_sliding_window_causal_mask, {"sliding_window": window}
    return _attend(query, key, value, mask=mask, layer=MistralAttention, **options)


def packed():
    """A plain call, whose position ids begin again with the second document."""
    model, ids = _model(), [[3, 14, 15, 9, 2, 6]]
    alone = [_logits(model, [part]) for part in (ids[0][:3], ids[0][3:])]
    return torch.cat(alone, 1), _logits(
        model, ids, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]])
    )


def padded():
    """Two tokens of padding come first, and a mask says so."""
    model, mask = _model(), torch.tensor([[0, 0, 1, 1, 1, 1]])
    together = _logits(model, [[0, 0, 3, 14, 15, 9]], attention_mask=mask)
    return _logits(model, [[3, 14, 15, 9]]), together[:, 2:]


def cached():
    """Four tokens, then two."""
    model, cache = _model(), DynamicCache()
    parts = [_logits(model, [part], cache=cache) for part in ([3, 14, 15, 9], [2, 6])]
    return _logits(model, [[3, 14, 15, 9, 2, 6]]), torch.cat(parts, 1)


def learned_positions():
    """GPT-2 counts positions from the first padding, unless it is given `position_ids`."""
    ids, mask = [[0, 0, 3, 14, 15, 9]], torch.tensor([[0, 0, 1, 1, 1, 1]])
    model = _model("gpt2", n_embd=32, n_head=2)
    alone = _logits(model, [ids[0][2:]])
    for options in ({}, {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}):
        out = _logits(model, ids, attention_mask=mask, **options)[:, 2:]
        print(*options, f"{(out - alone).abs().max():.2f}")


def no_mask_means_upper_left():
    """`sdpa_attention_forward` without a mask aligns the first query with the first key."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    query, values = torch.zeros(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0], [5.0]]]])
    out, _ = sdpa_attention_forward(torch.nn.Module(), query, values, values, None)
    print(out.flatten().tolist(), "and [2.0, 3.0] at the end of the keys")


def resized_table():
    """ViT of transformers resizes its table with `mode="bicubic"`, `align_corners=False`, no `antialias`."""
    from transformers.models.vit.modeling_vit import ViTConfig, ViTEmbeddings

    torch.manual_seed(0)
    layer = ViTEmbeddings(ViTConfig(hidden_size=8, image_size=14, patch_size=1))
    table = torch.nn.init.normal_(layer.position_embeddings).detach()
    square = table[:, 1:].reshape(1, 14, 14, 8).permute(0, 3, 1, 2)
    theirs = layer.interpolate_pos_encoding(torch.zeros(1, 101, 8), 10, 10)[:, 1:].detach()
    for antialias in (True, False):
        options = {"mode": "bicubic", "align_corners": False, "antialias": antialias}
        ours = torch.nn.functional.interpolate(square, (10, 10), **options)
        off = (ours.flatten(2).mT - theirs).abs().max().item()
        print(f"antialias={antialias}: {off:.2f} apart")
