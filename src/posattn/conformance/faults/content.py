"""Faults of schemes whose scores depend on content."""

from functools import partial

import numpy as np

from posattn.conformance.faults.registry import fault, line, misuse

SCORES = ("shaw", "music_transformer", "transformer_xl", "disentangled")


@misuse("tupe")
def scaled_as_one_term_in_tupe(definition, *positions, **parameters):
    """The scale is that of one term, 1 / sqrt(d_h): two terms need 1 / sqrt(2 d_h)."""
    without = {**parameters, "cls_bias": None}
    made, plain = definition(*positions, **parameters), definition(*positions, **without)
    return np.where(made == plain, made * 2**0.5, made)


@misuse("shaw")
def not_clipped(definition, query, key, query_positions, key_positions, *, key_table):
    """Offsets are not clipped: those that are too large fail."""
    offsets = key_positions[..., None, :] - query_positions[..., None]
    key_table[offsets + len(key_table) // 2]  # fails as others do
    return definition(query, key, query_positions, key_positions, key_table=key_table)


@fault("skew")
def rows_rolled(x):
    """Each row is rolled to its place: above the diagonal stands the wrapped-around start of the row."""
    n = x.shape[-1]
    shifts = (np.arange(n) - np.arange(n)[:, None] - 1) % n
    return np.take_along_axis(x, np.broadcast_to(shifts, x.shape), axis=-1)


@fault("skew")
def zeros_above(x):
    """Zeros stand above the diagonal, where the trick leaves other numbers: a causal mask hides both."""
    n = x.shape[-1]
    shifts = (np.arange(n) - np.arange(n)[:, None] - 1) % n
    return np.tril(np.take_along_axis(x, np.broadcast_to(shifts, x.shape), axis=-1))


@misuse(*SCORES)
def content_included(definition, query, key, *positions, num_heads=None, **parameters):
    """The product of query and key is included: the attention adds it itself."""
    options = parameters if num_heads is None else {**parameters, "num_heads": num_heads}
    terms = 1 if num_heads is None else 3
    product = query @ key.mT / (terms * query.shape[-1]) ** 0.5
    return definition(query, key, *positions, **options) + product


@misuse("deberta_bucket")
def buckets_rounded_down(definition, relative_position, *, num_buckets=256, **sizes):
    """The logarithm is rounded down: it should be rounded up."""
    made = definition(relative_position, num_buckets=num_buckets, **sizes)
    return made - np.sign(made) * (np.abs(made) > num_buckets // 2)


def counted(
    query, key, query_positions, key_positions, table, *, scale=None, own=True, blend=True
):
    """The scores of CoPE, with one step changed."""
    seen = (key_positions[..., None, :] <= query_positions[..., None])[..., None, :, :]
    products = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    gates = np.where(seen, 1 / (1 + np.exp(-products)), 0)
    count = np.cumsum(gates[..., ::-1], -1)[..., ::-1] - (0 if own else gates)
    count = np.minimum(count, len(table) - 1)
    low, high = np.floor(count).astype(int), np.ceil(count).astype(int)
    share = count - low if blend else 0 * count
    rows = query @ table.T
    below, above = (np.take_along_axis(rows, at, -1) for at in (low, high))
    return (1 - share) * below + share * above


@fault("forgetting")
def own_gate_counted(log_gates, n_q=None):
    """The gate of the key itself is counted: the sum should begin after the key."""
    sums = np.cumsum(log_gates, -1)
    before = sums - log_gates
    n_q = log_gates.shape[-1] if n_q is None else n_q
    made = sums[..., -n_q:, None] - before[..., None, :]
    return np.where(np.tri(*made.shape[-2:], made.shape[-1] - n_q, dtype=bool), made, 0)


@misuse("forgetting")
def gates_without_logarithm(definition, log_gates, *n_q):
    """The gates are taken for their logarithms."""
    return definition(np.exp(log_gates), *n_q)


@fault("forgetting")
def future_not_zero(log_gates, n_q=None):
    """The future has the difference of two sums: it should be 0. Causal attention hides this."""
    sums = np.cumsum(log_gates, -1)
    n_q = log_gates.shape[-1] if n_q is None else n_q
    return sums[..., -n_q:, None] - sums[..., None, :]


@fault("forgetting")
def future_forbidden(log_gates, n_q=None):
    """The future has minus infinity, as in the paper: here it is 0, and causal attention hides it."""
    made = future_not_zero(log_gates, n_q)
    seen = np.tri(*made.shape[-2:], made.shape[-1] - made.shape[-2], dtype=bool)
    return np.where(seen, made, -np.inf)


@misuse("forgetting")
def gates_of_the_queries_alone(definition, log_gates, n_q=None):
    """With cached keys only the gates of the new tokens are summed: older ones should still count."""
    n_k = log_gates.shape[-1]
    kept = np.arange(n_k) >= n_k - (n_k if n_q is None else n_q)
    return definition(log_gates * kept, n_q)


@misuse("forgetting")
def rows_of_the_first_queries(definition, log_gates, n_q=None):
    """With cached keys the rows are those of the first tokens: the queries are the last ones."""
    return definition(log_gates)[..., :n_q, :]


@misuse("shaw", seen="espnet/espnet (its legacy Conformer)")
def zero_moves_with_the_length(
    definition, query, key, query_positions, key_positions, *, key_table
):
    """Distance 0 is the row of the last key, not the middle of the table: it moves with the length."""
    moved = query_positions + len(key_table) // 2 - key.shape[-2] + 1
    return definition(query, key, moved, key_positions, key_table=key_table)


# fmt: off
line("gates_not_scaled", partial(counted, scale=1.0),
     "The gates see products that are not divided by the square root of the width.", "cope")
line("key_not_counted", partial(counted, own=False),
     "The gate of the key itself is not counted: the count should begin with it.", "cope")
line("not_interpolated", partial(counted, blend=False),
     "Counts are cut off to whole numbers: the two rows of the table should be blended.", "cope")
# fmt: on
