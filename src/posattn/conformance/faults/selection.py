"""Faults of chosen keys: of the scores that choose, of the choice, and of attention to it."""

from functools import partial

import numpy as np

from posattn import reference
from posattn.conformance.cases.selection import indexer, rotated
from posattn.conformance.faults.registry import fault, line, misuse, misuses
from posattn.reference import causal_mask
from posattn.reference.attention.selection import rising

# of scores


def scored(combine, query, key, weights=None, *, scale=None):
    """The scores of an indexer with another way to combine its heads."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    products = query @ key[..., None, :, :].mT * scale
    weights = (
        np.ones((*query.shape[:-3], query.shape[-2], query.shape[-3]))
        if weights is None
        else weights
    )
    return combine(products, weights.mT[..., None])


def by_softmax(products, weights):
    """Each head's weight through a softmax."""
    exp = np.exp(weights - np.max(weights, axis=-3, keepdims=True))
    return np.sum(exp / exp.sum(axis=-3, keepdims=True) * np.maximum(products, 0), axis=-3)


# fmt: off
for name, combine, sentence in (
    ("negative_products_count", lambda p, w: np.sum(w * p, axis=-3),
     "Negative products count: each head's should be cut at 0 before the sum."),
    ("cut_after_the_sum", lambda p, w: np.maximum(np.sum(w * p, axis=-3), 0),
     "The sum is cut at 0, and each head's product should be."),
    ("cut_after_the_weight", lambda p, w: np.sum(np.maximum(w * p, 0), axis=-3),
     "Weighted products are cut at 0: a negative weight then never counts."),
    ("weights_of_heads_through_a_softmax", by_softmax,
     "The weights of heads go through a softmax: they are taken as they are, and may be negative."),
    ("mean_of_the_heads", lambda p, w: np.mean(w * np.maximum(p, 0), axis=-3),
     "The mean of the heads instead of their sum."),
    ("weights_of_heads_ignored", lambda p, w: np.sum(np.maximum(p, 0), axis=-3),
     "The weights of heads are ignored."),
):
    line(name, partial(scored, combine), sentence, "indexer_scores")
# fmt: on


# fmt: off
misuses(  # a name, schemes, the wrong use, a sentence, and threads
    ("indexer_not_scaled", ("indexer_scores",),
     lambda definition, query, *others, scale=None:
     definition(query, *others, scale=1.0 if scale is None else scale),
     "Products are not divided by the root of the width."),
    ("future_chosen", ("select_keys",),
     lambda definition, scores, count, *, mask=None, causal=False: definition(scores, count, mask=mask),
     "The future can be chosen."),
    ("padding_chosen", ("select_keys",),
     lambda definition, scores, count, *, mask=None, causal=False: definition(scores, count, causal=causal),
     "Padding can be chosen: the mask is ignored."),
    ("hidden_keys_chosen_for_want_of_others", ("select_keys", "select_blocks", "select_groups"),
     lambda definition, scores, *sizes, **keywords: np.maximum(definition(scores, *sizes, **keywords), 0),
     "Where fewer keys can be seen than are chosen, the first keys fill up: -1 should."),
    ("groups_of_slots", ("group_keys", "select_groups"),
     lambda definition, *given, mask=None, **keywords: definition(*given, **keywords),
     "Groups are counted from the first slot: they begin at the first token."),
    ("gates_of_groups_ignored", ("group_keys",),
     lambda definition, *given, gates=None, **keywords: definition(*given, **keywords),
     "The gates are ignored: each group is the mean of its tokens."),
    ("minus_one_is_the_last_key", ("selected_attention",),
     lambda definition, query, key, value, select, **keywords:
     definition(query, key, value, select % key.shape[-2], **keywords),
     "-1 reads the last key, as an index of Python does: it stands for none."),
    ("chosen_future_seen", ("selected_attention",),
     lambda definition, *given, causal=False, **keywords: definition(*given, **keywords),
     "What was chosen of the future is seen: `causal` hides it still."),
    ("chosen_padding_seen", ("selected_attention",),
     lambda definition, *given, mask=None, **keywords: definition(*given, **keywords),
     "What was chosen of the padding is seen: the mask hides it still."),
    ("list_of_the_first_head", ("selected_attention",),
     lambda definition, query, key, value, select, **keywords:
     definition(query, key, value, select[..., :1, :, :], **keywords),
     "All heads read what the first of them has chosen."),
)
# fmt: on


# of the choice


def seen(scores, mask, causal):
    """Which keys each query may read."""
    there = np.broadcast_to(True if mask is None else mask, scores.shape)
    return there & causal_mask(*scores.shape[-2:]) if causal else there


@misuse("select_keys")
def chosen_before_hidden(definition, scores, count, *, mask=None, causal=False):
    """Keys are chosen among all, and those that are hidden then left out: fewer are read."""
    made = definition(scores, count)
    there = np.take_along_axis(seen(scores, mask, causal), np.maximum(made, 0), axis=-1)
    return rising(np.where(there, made, -1))


@misuse("select_keys")
def the_later_of_equal_ones(definition, scores, count, *, mask=None, causal=False):
    """Of equal scores the later key is chosen: the earlier one should be."""
    backwards = scores - 1e-9 * np.arange(scores.shape[-1])[::-1]
    return definition(backwards, count, mask=mask, causal=causal)


@misuse("select_keys")
def one_key_fewer(definition, scores, count, **keywords):
    """One key fewer is chosen; -1 stands for it."""
    made = definition(scores, count - 1, **keywords)
    missing = min(count, scores.shape[-1]) - made.shape[-1]
    return np.append(made, np.full((*made.shape[:-1], missing), -1), axis=-1)


@misuse("select_keys")
def causal_from_the_first_key(definition, scores, count, *, mask=None, causal=False):
    """Causal is aligned to the start: with fewer queries than keys the newest cannot be chosen."""
    if not causal:
        return definition(scores, count, mask=mask)
    past = np.tri(*scores.shape[-2:], dtype=bool)
    return definition(scores, count, mask=past if mask is None else past & mask)


# of the indexer's own rotation


SEEN = "huggingface/transformers #46842, 1bit-MONSTER/1bit-MONSTER #2421, ikawrakow/ik_llama.cpp #2099"


@fault("indexer", seen=SEEN)
def indexer_in_the_other_layout(*given, layout="half", **keywords):
    """The indexer rotates pairs of the other layout: its own may differ from the attention's."""
    other = "half" if layout == "interleaved" else "interleaved"
    return indexer(*given, layout=other, **keywords)


@fault("indexer")
def indexer_not_rotated(query, key, weights, *, count, **turns):
    """The indexer's queries and keys are not rotated."""
    scores = reference.indexer_scores(query, key, weights)
    return reference.select_keys(scores, count, causal=True)


@fault("indexer")
def indexer_rotated_at_the_other_end(*given, last=False, **keywords):
    """The indexer rotates the entries at the other end."""
    return indexer(*given, last=not last, **keywords)


@fault("indexer")
def indexer_rotated_whole(*given, rotary_dim=None, last=False, **keywords):
    """The indexer rotates all entries, and should only some."""
    return indexer(*given, **keywords)


@fault("indexer")
def indexer_base_ignored(*given, base=10000.0, **keywords):
    """The base is ignored."""
    return indexer(*given, **keywords)


@fault("indexer")
def indexer_reads_everything(query, key, weights, *, count, **turns):
    """Every key of the past is chosen: the first are, where there are more than should be."""
    return reference.select_keys(
        0 * reference.indexer_scores(query, key), count, causal=True
    )


@fault("indexer", seen="ROCm/ATOM #1507")
def indexer_queries_in_another_basis(query, key, weights, *, count, **turns):
    """Queries are multiplied by a Hadamard matrix, and keys are not: products need both or neither."""
    query, key = rotated(query, key, **turns)
    mixed, two = np.ones((1, 1)), np.array([[1.0, 1.0], [1.0, -1.0]])
    while len(mixed) < query.shape[-1]:
        mixed = np.kron(two, mixed) / 2**0.5
    scores = reference.indexer_scores(query @ mixed, key, weights)
    return reference.select_keys(scores, count, causal=True)


# of blocks and groups


@misuse("select_blocks", seen="huggingface/transformers #46762")
def one_list_for_all_heads(definition, scores, *sizes, **keywords):
    """The best score of all heads chooses one list for them: each group of heads has its own."""
    most = np.broadcast_to(np.max(scores, axis=-3, keepdims=True), scores.shape)
    return definition(most, *sizes, **keywords)


@misuse("select_blocks")
def sum_of_a_block(definition, scores, count, size, *, mask=None, causal=False):
    """Blocks are ranked by the sum of their keys' scores: the best of them counts."""
    blocks = np.arange(scores.shape[-1]) // size
    sums = np.where(seen(scores, mask, causal), scores, 0) @ (blocks[:, None] == blocks)
    return definition(sums, count, size, mask=mask, causal=causal)


@misuse("select_blocks")
def own_block_not_forced(definition, scores, count, size, *, mask=None, causal=False):
    """The query's own block competes with the others: it is always read."""
    made = np.full_like(definition(scores, count, size), -1)
    there, n_k = seen(scores, mask, causal), scores.shape[-1]
    in_block = np.arange(n_k) // size == np.arange(-(-n_k // size))[:, None]
    best = np.max(
        np.where(there[..., None, :] & in_block, scores[..., None, :], -np.inf), -1
    )
    chosen = reference.select_keys(best, count)
    read = there & np.any(chosen[..., None] == np.arange(n_k) // size, axis=-2)
    tokens = rising(np.where(read, np.arange(n_k), -1))[..., : made.shape[-1]]
    made[..., : tokens.shape[-1]] = tokens
    return made


@misuse("select_groups")
def rest_not_read(definition, scores, count, size, n_k, *, mask=None, causal=False):
    """The tokens after the last complete group are not read: they are read always."""
    made = definition(scores, count, size, n_k, mask=mask, causal=causal)
    n_q = scores.shape[-2]
    there = np.ones(n_k, bool) if mask is None else mask
    number = np.cumsum(there, axis=-1) - 1
    last = np.arange(n_k - n_q, n_k) if causal else np.full(n_q, n_k - 1)
    ends = (np.take(number, last, axis=-1) + 1) // size * size
    numbers = np.broadcast_to(number, (*made.shape[:-2], n_k))
    numbers = np.take_along_axis(numbers[..., None, :], np.maximum(made, 0), axis=-1)
    return rising(np.where((made >= 0) & (numbers < ends[..., None]), made, -1))


# of attention to what was chosen


@misuse("selected_attention")
def everything_attended(definition, query, key, value, select, **keywords):
    """What was chosen is ignored: each query attends to all that it may."""
    every = np.broadcast_to(np.arange(key.shape[-2]), (*select.shape[:-1], key.shape[-2]))
    return definition(query, key, value, every, **keywords)


@misuse("selected_attention")
def chosen_twice_counted_twice(
    definition, query, key, value, select, *, mask=None, **keywords
):
    """A key that comes twice counts twice: it is read once."""
    n_k = key.shape[-2]
    counts = np.sum(select[..., None] == np.arange(n_k), axis=-2)
    counts = np.repeat(counts, query.shape[-3] // counts.shape[-3], axis=-3)
    with np.errstate(divide="ignore"):
        bias = np.log(np.maximum(counts, 1))
    given = {"mask": mask, "bias": bias, **keywords}
    return reference.scaled_dot_product_attention(query, key, value, select=select, **given)


@misuse("selected_attention")
def weights_of_all_keys(definition, query, key, value, select, **keywords):
    """The softmax is over all keys, and what was not chosen is then left out: weights sum to less than 1."""
    hidden = {**keywords, "select": select}
    weights = reference.attention_weights(query, key, **keywords)
    chosen = reference.attention_weights(query, key, **hidden) > 0
    return (weights * chosen) @ np.repeat(
        value, query.shape[-3] // value.shape[-3], axis=-3
    )
