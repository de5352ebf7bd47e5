"""x-transformers: its `Attend`, `Attention` and `RotaryEmbedding`, and a small model."""

import torch
from x_transformers import Decoder, TransformerWrapper
from x_transformers.attend import Attend
from x_transformers.x_transformers import Attention, RotaryEmbedding, apply_rotary_pos_emb

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "x-transformers==2.31.10"]


def _attend(*arrays, mask=None, **options):
    mask = None if mask is None else torch.from_numpy(mask)
    return Attend(scale=16**-0.5, **options)(*map(torch.from_numpy, arrays), mask=mask)[0]


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, causal=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "scale": lambda query, key, value: Attend()(*map(torch.from_numpy, (query, key, value)))[0],
    "rotated": lambda x, positions: _rotate(x, positions),
    "partly": lambda x, positions, part: _rotate(x, positions, part),
    "stretched": lambda x, positions, stretch: _rotate(x, positions, interpolation_factor=stretch),
    "shifted": lambda x, positions, offset: _rotate(x, positions, offset=offset),
    "distant": lambda x, far: _rotate(x, far),
    "packed": lambda query, key, value: Attend(flash=True, flash_pack_seq=True, causal=True),
}  # fmt: skip


def soft_cap(query, key, value, mask, cap):
    options = {"softclamp_logits": True, "logit_softclamp_value": cap}
    return _attend(query, key, value, mask=mask, **options)


def sliding(query, key, value, window):
    """The input is query, key and value side by side."""
    x = [torch.from_numpy(x).transpose(1, 2).flatten(2) for x in (query, key, value)]
    layer = Attention(96, dim_head=16, heads=2, causal=True, max_attend_past=window)
    parts = zip((layer.to_q, layer.to_k, layer.to_v), torch.eye(96).split(32), strict=True)
    with torch.no_grad():
        for part, picks in parts:
            part.weight.copy_(picks)
        layer.to_out.weight.copy_(torch.eye(96)[:, :32])
        out = layer(torch.cat(x, -1))[..., :32]
    return out.unflatten(-1, (2, 16)).transpose(1, 2)


def _rotate(x, positions, width=16, offset=0, **options):
    angles, _ = RotaryEmbedding(width, **options)(torch.from_numpy(positions), offset)
    return apply_rotary_pos_emb(torch.from_numpy(x), angles)


def _model():
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=1, heads=2, attn_dim_head=32, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers).eval()
    for name, weight in model.named_parameters():
        weight.data *= 8 if "to_q" in name else 1
    return model.requires_grad_(False)


def padded():
    """Two tokens of padding come first."""
    model, alone = _model(), torch.tensor([[3, 14, 15, 9]])
    ids = torch.nn.functional.pad(alone, (2, 0))
    return model(alone), model(ids, seq_start_pos=torch.tensor([2]))[:, 2:]


def cached():
    """Four tokens, then two."""
    model, ids = _model(), torch.tensor([[3, 14, 15, 9, 2, 6]])
    first, cache = model(ids[:, :4], return_intermediates=True)
    return model(ids), torch.cat([first, model(ids, cache=cache, cache_age=2)], 1)


def one_pair():
    """`RotaryEmbedding` of x-transformers raises an error for a head of two columns."""
    RotaryEmbedding(2)


def no_tokens():
    """It raises an error for an input without tokens, too."""
    RotaryEmbedding(16)(torch.arange(0))
