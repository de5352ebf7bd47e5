"""Threads on biases, from their texts."""

import math

import numpy as np

from posattn.conformance import gallery
from tests.library.conformance.examples import thread

thread("ml-explore/mlx #343", scheme="alibi_slopes",
       cause="slopes_for_powers_of_two")(gallery.alibi_by_the_formula)  # fmt: skip
thread("dmlc/gluon-nlp #1470", scheme="t5_bucket",
       cause="past_and_future_exchanged")(gallery.t5_of_the_query)  # fmt: skip


@thread("paiml/aprender #2143", scheme="alibi_slopes", cause="slopes_from_one")
def counted_from_zero(num_heads):
    """The exponent is -8 h / n with heads counted from 0, and so the first slope is 1; others are right."""
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8 * np.arange(power) / power)
    more = 2.0 ** (-4 * np.arange(1, 2 * (num_heads - power), 2) / power)
    return np.concatenate([slopes, more])


@thread("huggingface/candle #1312", scheme="t5_bucket", cause="last_bucket_open")
def without_the_minimum(
    relative_position, *, num_buckets=32, max_distance=128, bidirectional=True
):
    """The minimum with the last bucket is missing: far keys go past it."""
    count = num_buckets // 2 if bidirectional else num_buckets
    first = count * (relative_position > 0) if bidirectional else 0
    distance = (
        np.abs(relative_position) if bidirectional else -np.minimum(relative_position, 0)
    )
    exact = count // 2
    share = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact)
    large = exact + np.floor(share * (count - exact) + 1e-9).astype(int)
    return first + np.where(distance < exact, distance, large)


@thread("microsoft/DeBERTa #162", scheme="disentangled", cause="same_distance_in_both",
        skip=("bucket",), settings={"same_row": False})  # fmt: skip
class IndexUsedTwice:
    """Position to content reads the row of content to position, i - j, where the paper has j - i."""

    def __call__(self, *, table, query_weight, key_weight, num_heads):
        """The bias, whose scores need queries and keys."""
        self.table, self.num_heads = table, num_heads
        self.queries, self.keys = table @ query_weight, table @ key_weight
        return self

    def scores(self, query, key, query_positions, key_positions):
        """Both terms, at the same rows."""
        m, width = len(self.table) // 2, query.shape[-1]
        far = query_positions[..., :, None] - key_positions[..., None, :]
        rows = np.clip(far + m, 0, 2 * m - 1)
        heads = (len(self.table), self.num_heads, width)
        by_query, by_key = (x.reshape(heads)[rows] for x in (self.queries, self.keys))
        to_position = np.einsum("...hid,...ijhd->...hij", query, by_key)
        to_content = np.einsum("...hjd,...ijhd->...hij", key, by_query)
        return (to_position + to_content) / math.sqrt(3 * width)


@thread(
    "espnet/espnet (its legacy Conformer)",
    scheme="shaw",
    cause="zero_moves_with_the_length",
)
def counted_from_the_last_key(query, key, query_positions, key_positions, *, key_table):
    """Distance 0 is looked up at the padded length."""
    apart = key_positions[..., None, :] - query_positions[..., None] + key.shape[-2] - 1
    rows = key_table[np.clip(apart, 0, len(key_table) - 1)]
    return (rows @ query[..., None])[..., 0] * query.shape[-1] ** -0.5
