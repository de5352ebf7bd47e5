"""Faults of biases that are functions of positions."""

import numpy as np

from posattn.conformance.faults.registry import Near, fault, misuse, named_as
from posattn.reference.position.alibi import alibi_slopes
from posattn.reference.position.t5 import t5_bucket

RANKS = (2, 4, 8)
SLOPES_OF_A_RANK = "Each rank makes slopes for its own heads: it should take its part of those of all heads."


def relative(query_positions, key_positions):
    """Key minus query."""
    return key_positions[..., None, :] - query_positions[..., :, None]


def of_the_slopes(*, seen=""):
    """Enter wrong slopes, and the bias that has them."""

    def enter(slopes):
        @named_as(slopes)
        def biased(query_positions, key_positions, *, num_heads):
            distance = np.abs(relative(query_positions, key_positions))
            return -slopes(num_heads)[:, None, None] * distance[..., None, :, :]

        fault("alibi", seen=seen)(biased)
        return fault("alibi_slopes", seen=seen)(slopes)

    return enter


@of_the_slopes(seen="ml-explore/mlx #343")
def slopes_for_powers_of_two(num_heads):
    """Slopes for a power of two only: 2^(-8h / H) is wrong for other numbers of heads."""
    return 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)


@of_the_slopes(seen="paiml/aprender #2143")
def slopes_from_one(num_heads):
    """The slopes begin at 1: up to a power of two, each head has the slope of the one before it."""
    power = 2 ** (num_heads.bit_length() - 1)
    return alibi_slopes(num_heads) * np.where(
        np.arange(num_heads) < power, 2 ** (8 / power), 1
    )


def of_the_ranks(ranks):
    """Enter the slopes that each of some ranks makes for its own heads."""

    def slopes(num_heads):
        shared = num_heads % ranks == 0
        return (
            np.tile(alibi_slopes(num_heads // ranks), ranks)
            if shared
            else alibi_slopes(num_heads)
        )

    slopes.__name__, slopes.__doc__ = f"slopes_of_{ranks}_ranks", SLOPES_OF_A_RANK
    of_the_slopes()(slopes)


for count in RANKS:
    of_the_ranks(count)


@of_the_slopes()
def slopes_sorted(num_heads):
    """The slopes are sorted: those between the powers of two should come last."""
    return np.sort(alibi_slopes(num_heads))[::-1]


@fault("alibi")
def distance_with_a_sign(query_positions, key_positions, *, num_heads):
    """Keys in the future gain what they should lose: the distance has a sign. Causal attention hides this."""
    signed = relative(query_positions, key_positions)
    return alibi_slopes(num_heads)[:, None, None] * signed[..., None, :, :]


@fault("alibi")
def key_alone(query_positions, key_positions, *, num_heads):
    """The slope times the key's position, without the query's: right in a causal softmax only."""
    keys = key_positions[..., None, :] + 0 * query_positions[..., :, None]
    return alibi_slopes(num_heads)[:, None, None] * keys[..., None, :, :]


def of_the_buckets(*, seen=""):
    """Enter wrong buckets, and the bias that looks them up."""

    def enter(bucket):
        @named_as(bucket)
        def biased(query_positions, key_positions, *, table, **options):
            steps = relative(query_positions, key_positions)
            found = bucket(steps, num_buckets=len(table), **options)
            if isinstance(found, Near):
                return near_in(table, *found)
            return np.moveaxis(table[found], -1, -3)

        fault("t5", seen=seen)(biased)
        return fault("t5_bucket", seen=seen)(bucket)

    return enter


def near_in(table, bucket, slack):
    """What a table holds in a bucket, up to the rows beside it where there is slack."""
    steps = np.abs(np.diff(table, axis=0, prepend=table[:1], append=table[-1:]))
    beside = np.maximum(steps[:-1], steps[1:])[bucket] * slack[..., None]
    return Near(np.moveaxis(table[bucket], -1, -3), np.moveaxis(beside, -1, -3))


def logarithm(relative_position, num_buckets=32, max_distance=128, bidirectional=True):
    """Distance, number of exact buckets, the logarithm in buckets, the last bucket, the direction's first."""
    one_way = num_buckets // 2 if bidirectional else num_buckets
    distance = np.abs(relative_position) if bidirectional else -relative_position
    exact, first = one_way // 2, one_way * (bidirectional & (relative_position > 0))
    far = np.log(np.maximum(distance, exact) / exact) / np.log(max_distance / exact)
    return np.maximum(distance, 0), exact, far * (one_way - exact), one_way - 1, first


@of_the_buckets(seen="dmlc/gluon-nlp #1470")
def past_and_future_exchanged(relative_position, **options):
    """The wrong sign: the relative position is query minus key, where key minus query should be."""
    return t5_bucket(-relative_position, **options)


@of_the_buckets()
def direction_lost(relative_position, **options):
    """The table cannot tell left from right: a row is looked up by the distance, without its sign."""
    return t5_bucket(-np.abs(relative_position), **options)


@of_the_buckets(seen="huggingface/candle #1312")
def last_bucket_open(relative_position, **options):
    """Distances beyond the maximum go past the last bucket: the minimum is missing."""
    distance, exact, far, _, first = logarithm(relative_position, **options)
    buckets = np.where(distance < exact, distance, exact + np.floor(far + 1e-9))
    return first + buckets.astype(int)


@of_the_buckets()
def logarithm_rounded(relative_position, **options):
    """Off by one bucket: the logarithm is rounded to the nearest integer, where it should be cut off."""
    distance, exact, far, last, first = logarithm(relative_position, **options)
    return first + np.where(
        distance < exact, distance, np.minimum(exact + np.rint(far).astype(int), last)
    )


@of_the_buckets()
def logarithm_rounded_up(relative_position, **options):
    """Off by one bucket: the logarithm is rounded up, where it should be cut off."""
    distance, exact, far, last, first = logarithm(relative_position, **options)
    up = np.ceil(far - 1e-9).astype(int)
    return first + np.where(distance < exact, distance, np.minimum(exact + up, last))


@of_the_buckets()
def logarithm_in_float32(relative_position, **options):
    """Off by one bucket at boundaries: the logarithm should be an integer, and float32 falls short of it."""
    _, _, far, _, _ = logarithm(relative_position, **options)
    fragile = (np.abs(far - np.rint(far)) < 1e-5) & (far > 0.5)
    return Near(t5_bucket(relative_position, **options), fragile)


@of_the_buckets()
def one_bucket_off(relative_position, **options):
    """Off by one bucket."""
    exact = t5_bucket(relative_position, **options)
    return Near(exact, np.ones(exact.shape, bool))


@fault("sandwich")
def frequencies_from_one(
    query_positions, key_positions, *, num_heads, dim=128, base=10000.0
):
    """The frequencies are counted from 1: the fastest is missing, and there is one too slow."""
    omega = base ** (-2 * np.arange(1, dim // 2 + 1) / dim)
    angles = relative(query_positions, key_positions)[..., None] * omega
    scales = num_heads / (8 * np.arange(1, num_heads + 1))
    return scales[:, None, None] * np.cos(angles).sum(-1)[..., None, :, :]


@misuse("sandwich")
def heads_alike(definition, *positions, num_heads, **keywords):
    """All heads have the same measure."""
    last = definition(*positions, num_heads=num_heads, **keywords)[..., -1:, :, :]
    return 8 * np.repeat(last, num_heads, axis=-3)


@misuse("swin")
def rows_and_columns_exchanged(
    definition, query_positions, key_positions, *, height, width, table
):
    """Rows and columns are exchanged: cells are numbered column by column."""
    order = np.arange(height * width).reshape(width, height).T.ravel()
    options = {"table": table, "height": height, "width": width}
    return definition(order[query_positions], order[key_positions], **options)
