"""PyTorch, `flex_attention`: scores and masks are functions that you write; not compiled, on a CPU."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

INSTALL = ["numpy==2.4.6", "torch==2.13.0"]


def _attend(*arrays, see=None, **options):
    query, key, value = map(torch.from_numpy, arrays)
    if see is not None:
        sizes = query.shape[2], key.shape[2]
        options["block_mask"] = create_block_mask(see, 1, 1, *sizes, device="cpu")
    return flex_attention(query, key, value, **options)


def _looked_up(mask):
    table = torch.from_numpy(mask)[0, 0]
    return lambda b, h, i, j: table[
        i.clamp(max=len(table) - 1), j.clamp(max=len(table) - 1)
    ]


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, see=lambda b, h, i, j: i >= j),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, see=_looked_up(empty)),
    "true": lambda query, key, value, mask: _attend(query, key, value, see=_looked_up(mask)),
    "scale": lambda query, key, value: _attend(query, key, value),
}  # fmt: skip


def soft_cap(query, key, value, mask, cap):
    def capped(score, b, h, i, j):
        return cap * torch.tanh(score / cap)

    return _attend(query, key, value, see=_looked_up(mask), score_mod=capped)


def packed(query, key, value, documents):
    """A document's index at each position."""
    owner = torch.from_numpy(documents)[0]
    arrays = query, key, value
    alone = [_attend(*(x[:, :, part] for x in arrays)) for part in (slice(3), slice(3, 6))]
    return torch.cat(alone, 2), _attend(
        *arrays, see=lambda b, h, i, j: owner[i] == owner[j]
    )


def no_gradients():
    """FlexAttention has no gradients on a CPU."""
    query = torch.ones(1, 1, 2, 16, requires_grad=True)
    try:
        flex_attention(query, query, query).sum().backward()
        print(query.grad.shape)
    except (RuntimeError, NotImplementedError) as error:
        print(type(error).__name__, str(error).splitlines()[0])
