"""PyTorch, `nn.MultiheadAttention`: the layer, with identity matrices as its projections."""

import torch
from torch import nn

INSTALL = ["numpy==2.4.6", "torch==2.13.0"]


def _attend(*arrays, weights=True, **options):
    layer = nn.MultiheadAttention(32, 2, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(32).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(32))
        rows = [torch.from_numpy(x).transpose(1, 2).flatten(2) for x in arrays]
        out, _ = layer(*rows, need_weights=weights, **options)
    return out.unflatten(-1, (2, 16)).transpose(1, 2)


def causal(last, key, value):
    lower_right = torch.ones(2, 6, dtype=torch.bool).triu(5)
    return _attend(last, key, value, attn_mask=lower_right, is_causal=True, weights=False)


def empty_row(query, key, value, empty):
    return _attend(query, key, value, attn_mask=torch.from_numpy(~empty[0, 0]))


def true(query, key, value, mask):
    return _attend(query, key, value, attn_mask=torch.from_numpy(mask[0, 0]))


def scale(query, key, value):
    return _attend(query, key, value)


def padded(query, key, value):
    """Two tokens of padding come first."""
    padding = torch.arange(6)[None] < 2
    alone = _attend(*(x[:, :, 2:] for x in (query, key, value)))
    return alone, _attend(query, key, value, key_padding_mask=padding)[:, :, 2:]


def empty_without_weights():
    """An empty row gets NaN from `torch.nn.MultiheadAttention`, or 0 with `need_weights=False`."""
    one, hidden = torch.ones(1, 1, 1), torch.tensor([[True]])
    layer = nn.MultiheadAttention(1, 1, bias=False)
    for weights in (True, False):
        print(
            weights, layer(one, one, one, attn_mask=hidden, need_weights=weights)[0].item()
        )


def hint_replaces_mask():
    """Without weights, `is_causal=True` of `torch.nn.MultiheadAttention` replaces your mask."""
    query, keys = torch.zeros(1, 1, 1), torch.tensor([[[1.0]], [[3.0]]])
    layer = nn.MultiheadAttention(1, 1, bias=False)
    nn.init.ones_(layer.in_proj_weight), nn.init.ones_(layer.out_proj.weight)
    nothing = torch.tensor([[False, False]])  # hides nothing, so the mean is 2
    for weights in (True, False):
        out, _ = layer(
            query, keys, keys, attn_mask=nothing, is_causal=True, need_weights=weights
        )
        print(weights, out.item())
