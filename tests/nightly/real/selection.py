"""How much weight of a released model's heads a choice of keys holds, by choice and number of keys."""

import torch

from tests.nightly.real import heads, released
from tests.nightly.real.chapters import rounded

TEXT, LENGTH, QUERIES, BLOCK = "King James", 4096, 64, 16
BUDGETS = tuple(2**k for k in range(4, 12))  # keys beside the first token, which all read
WAYS = "newest", "blocks by mean", "blocks by largest"  # what a program can know
WAYS += "one list", "a list a group", "a list a head"  # the best, if one knew the weights


def held(weights, q, k):
    """The share of the weight on later tokens, `(ways, budgets)`, and the first token's weight."""
    rows, q = weights[0, :, -QUERIES:], q[0, :, -QUERIES:]
    at, q = torch.arange(LENGTH - QUERIES, LENGTH), q / q.shape[-1] ** 0.5
    first, rows = rows[..., 0], rows.clone()
    rows[..., 0] = 0
    own = (at // BLOCK)[:, None] >= torch.arange(
        LENGTH // BLOCK
    )  # blocks up to the query's
    hidden = torch.arange(LENGTH) > at[:, None]
    scores = (q @ k[0].mT).masked_fill(hidden, -torch.inf)
    kept = k[0].masked_fill(torch.arange(LENGTH)[:, None] == 0, 0)  # the first is no member
    mean = (q @ kept.unflatten(1, (-1, BLOCK)).mean(2).mT).masked_fill(~own, -torch.inf)
    scores[..., 0] = -torch.inf
    most = scores.unflatten(-1, (-1, BLOCK)).amax(-1)
    for each in (mean, most):
        each.scatter_(-1, (at // BLOCK).expand(len(rows), -1)[..., None], torch.inf)
    group = rows.unflatten(0, (3, -1)).sum(1).repeat_interleave(len(rows) // 3, 0)
    newest = torch.arange(LENGTH).where(~hidden, -1)
    by_block = [each.repeat_interleave(BLOCK, -1) for each in (mean, most)]
    found = []
    for by in (newest, *by_block, rows.sum(0), group, rows):
        order = by.expand_as(rows).sort(dim=-1, descending=True, stable=True).indices
        shares = rows.gather(-1, order).cumsum(-1) / rows.sum(-1, keepdim=True)
        found.append(shares[..., [b - 1 for b in BUDGETS]].mean(1))
    return torch.stack([*found, first.mean(1)[:, None].expand_as(found[0])])


def chosen():
    """The mean share by way and number of keys, and the mean weight of the first token."""
    tokens = released.read(TEXT, LENGTH)[None]
    (found,) = heads.by_layer(
        released.decoder(), tokens, held
    )  # layers, ways, heads, budgets
    mean = found.mean((0, 2))
    made = {name: rounded(row) for name, row in zip(WAYS, mean, strict=False)}
    return made | {"keys": BUDGETS, "first": rounded(mean[-1, :1])[0]}
