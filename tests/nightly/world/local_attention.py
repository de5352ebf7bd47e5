"""local-attention: `LocalAttention` with `exact_windowsize`, and its rotation."""

import torch
from local_attention import LocalAttention
from local_attention.rotary import SinusoidalEmbeddings, apply_rotary_pos_emb

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "local-attention==1.11.2"]


def _attend(*arrays, mask=None, window=3, **options):
    layer = LocalAttention(
        window, use_rotary_pos_emb=False, exact_windowsize=True, **options
    )
    return layer(*map(torch.from_numpy, arrays), mask=mask)


PROBES = {
    "scale": lambda query, key, value: _attend(query, key, value, window=6),
    "sliding": lambda query, key, value, window: _attend(query, key, value, window=window, causal=True),
}  # fmt: skip


def rotated(x):
    tables = SinusoidalEmbeddings(16)(torch.from_numpy(x))
    return apply_rotary_pos_emb(*map(torch.from_numpy, (x, x)), *tables)[0]


def padded(query, key, value):
    """A window of padding comes first."""
    mask = torch.arange(6)[None] >= 3
    alone = _attend(*(x[:, :, 3:] for x in (query, key, value)), causal=True)
    return alone, _attend(query, key, value, mask=mask, causal=True)[:, :, 3:]


def keys_without_exact_windowsize():
    """How many keys `LocalAttention` shows a query depends on its place, without `exact_windowsize`."""
    from local_attention import LocalAttention

    ones = torch.ones(1, 9, 1)
    for exact in (True, False):
        layer = LocalAttention(
            3, causal=True, exact_windowsize=exact, use_rotary_pos_emb=False
        )
        places = torch.eye(9)[None]  # the sums of one-hot values: which keys were seen
        print(exact, (layer(ones, ones, places) > 0).sum(-1)[0].tolist())
