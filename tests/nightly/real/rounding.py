"""What changes where a decoder rounds: the loss, and the likeliest next tokens."""

from functools import partial

import torch
from torch import nn

from posattn.torch import scaled_dot_product_attention
from tests.nightly.real.faults import angles_in, copied, rotate
from tests.nightly.real.measuring import AT_ONCE, BLOCK


def cache_in(decoder, dtype):
    """Keep cached keys and values in a dtype."""

    def attend(query, key, value, **options):
        key, value = (each.to(dtype).to(query.dtype) for each in (key, value))
        return scaled_dot_product_attention(query, key, value, **options)

    for block in decoder.blocks:
        block.attention.attention = attend


ROUNDED = {
    "angles in bfloat16": partial(rotate, change=angles_in(torch.bfloat16)),
    "angles in float32": partial(rotate, change=angles_in(torch.float32)),
    "cache in bfloat16": partial(cache_in, dtype=torch.bfloat16),
}


def compared(decoder, name, tokens):
    """How much the loss rises, and how many of the likeliest tokens change, by blocks of positions.

    `gaps` are those between the two best logits: the largest where the likeliest token changes, and the
    median of all.
    """
    rounded = copied(decoder)
    ROUNDED[name](rounded)
    pieces = [logits(each, tokens[:, :-1]) for each in (decoder, rounded)]
    found = []
    for right, other, after in zip(*pieces, tokens[:, 1:].split(AT_ONCE, 1), strict=True):
        exact, rough = (
            nn.functional.cross_entropy(each.mT, after, reduction="none")
            for each in (right, other)
        )
        gap = right.topk(2).values.diff().abs()[..., 0]
        found.append([rough - exact, right.argmax(-1) != other.argmax(-1), gap])
    rise, changed, gap = (torch.cat(each, 1) for each in zip(*found, strict=True))
    by_block = (each.double().unflatten(1, (-1, BLOCK)) for each in (rise, changed))
    return {
        "rise": next(by_block).mean(-1).numpy().round(7).tolist(),
        "changed": next(by_block).sum(-1).int().tolist(),
        "gaps": [max(gap[changed].tolist(), default=0.0), gap.median().item()],
    }


def logits(decoder, tokens):
    """What is said of each next token, a piece at a time: those of a long text are more than memory holds."""
    cache = decoder.init_cache(tokens.shape[:1], tokens.shape[1])
    for some in tokens.split(AT_ONCE, 1):
        said, cache = decoder(some, cache=cache)
        yield said
