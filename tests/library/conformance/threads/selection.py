"""Threads on keys that are chosen, from their texts."""

import torch

from tests.library.conformance.examples import right, thread


@right("indexer", "torch")
def chooses(
    query, key, weights, count, rotary_dim=None, layout="half", last=False, base=10000.0
):
    """An indexer in the manner of DeepSeek-V3.2: rotation, positive products, the best of the past."""
    return best(*turned(query, key, rotary_dim, layout, last, base), weights, count)


def turned(query, key, rotary_dim, layout, last, base):
    """Queries and keys with some entries rotated."""
    n, width = key.shape[-2:]
    turning = width if rotary_dim is None else rotary_dim
    speeds = base ** (-torch.arange(0, turning, 2) / turning)
    made = []
    for x in (query, key):
        angles = torch.arange(n - x.shape[-2], n)[:, None] * speeds
        cos, sin = angles.cos(), angles.sin()
        x = x.roll(turning, -1) if last else x
        pairs, still = x[..., :turning], x[..., turning:]
        axis = -1 if layout == "interleaved" else -2
        one, two = pairs.unflatten(-1, (-1, 2) if axis == -1 else (2, -1)).unbind(axis)
        pairs = torch.stack([one * cos - two * sin, two * cos + one * sin], axis).flatten(
            -2
        )
        x = torch.cat([pairs, still], -1)
        made.append(x.roll(-turning, -1) if last else x)
    return made


def best(query, key, weights, count):
    """The keys of the past with the largest sums."""
    scores = (query @ key[:, None].mT / query.shape[-1] ** 0.5).relu() * weights.mT[
        ..., None
    ]
    future = torch.ones(scores.shape[-2:], dtype=torch.bool)
    future = future.triu(1 + scores.shape[-1] - scores.shape[-2])
    scores = scores.sum(1).masked_fill(future, -torch.inf)
    found = scores.sort(dim=-1, descending=True, stable=True)
    found = found.indices[..., :count].masked_fill(found.values[..., :count].isinf(), 2**30)
    found = found.sort(-1).values
    return found.masked_fill(found == 2**30, -1)


@thread("huggingface/transformers #46842", "1bit-MONSTER/1bit-MONSTER #2421",
        "ikawrakow/ik_llama.cpp #2099", scheme="indexer", framework="torch",
        cause="indexer_in_the_other_layout", only="neighbors, the first")  # fmt: skip
def always_by_halves(query, key, weights, count, rotary_dim=None, layout="half", last=False,
                     base=10000.0):  # fmt: skip
    """The indexer of one family serves another, whose configuration asks for neighbors."""
    return best(*turned(query, key, rotary_dim, "half", last, base), weights, count)


@thread("ROCm/ATOM #1507", scheme="indexer", framework="torch",
        cause="indexer_queries_in_another_basis")  # fmt: skip
def one_side_mixed(query, key, weights, count, rotary_dim=None, layout="half", last=False,
                   base=10000.0):  # fmt: skip
    """The query goes through a Hadamard matrix, and the kernel that writes keys leaves it out."""
    query, key = turned(query, key, rotary_dim, layout, last, base)
    two = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    mixed = torch.kron(two, torch.kron(two, two)) / 8**0.5
    return best(query @ mixed, key, weights, count)


@thread("huggingface/transformers #46762", scheme="select_blocks", framework="torch",
        cause="one_list_for_all_heads", only="groups of heads")  # fmt: skip
def largest_of_the_heads(scores, count, size, mask=None, causal=False):
    """After the largest of a block comes the largest of the heads, so that all have one list."""
    n = scores.shape[-1]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    blocks = torch.nn.functional.pad(
        scores.masked_fill(future, -torch.inf), (0, -n % size), value=-torch.inf
    )
    ranked = blocks.unflatten(-1, (-1, size)).amax(-1).amax(1, keepdim=True)
    own = torch.arange(n)[:, None] // size
    ranked = ranked.scatter(-1, own.expand(*ranked.shape[:-1], 1), torch.inf)
    chosen = ranked.topk(count, -1)
    tokens = chosen.indices[..., None] * size + torch.arange(size)
    kept = (tokens <= torch.arange(n)[:, None, None]) & ~(chosen.values == -torch.inf)[
        ..., None
    ]
    tokens = tokens.masked_fill(~kept, n).flatten(-2).sort(-1).values
    return tokens.masked_fill(tokens == n, -1).expand(-1, scores.shape[1], -1, -1)
