"""What is measured: each part of the library in which digits can be lost."""

import math

import jax
import numpy as np
import torch

from posattn import reference
from tests.nightly.numerics import truth
from tests.nightly.numerics.measuring import Case

LENGTHS = (2**10, 2**15, 2**20)
WIDTH, HEADS, QUERIES = 64, 8, 4
NARROW = ("float32", "bfloat16", "float16")
ANGLES = {"peer": "angles in float32", "their_dtypes": NARROW}
OWN = {"peer": "the framework's own"}


def drawn(seed, *shape):
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape)


# rotation, and the sinusoid


def usual_tables(column, positions, frequencies=None, factor=1.0):
    """Cosines and sines as popular code makes them: frequencies, positions and angles in float32."""
    if frequencies is None:
        steps = column.numbers.arange(0, WIDTH, 2, dtype=column.numbers.float32)
        frequencies = 1.0 / 10000.0 ** (steps / WIDTH)
    else:
        frequencies = column.cast(column.numbers.asarray(frequencies), "float32")
    angles = column.cast(positions, "float32")[..., None] * frequencies
    return [
        column.cast(f(angles) * factor) for f in (column.numbers.cos, column.numbers.sin)
    ]


def usual_rotation(column, x, *where):
    """The usual tables, and products in the dtype of the queries."""
    cos, sin = (
        column.numbers.concatenate([t, t], -1) for t in usual_tables(column, *where)
    )
    a, b = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
    return x * cos + column.numbers.concatenate([-b, a], -1) * sin


def queries(where, length, dtype):
    """One at each position."""
    return drawn(where[0], len(where), WIDTH).astype(dtype), where


def rotation(name, turns, rule=None, right_factor=1, **options):
    """A case of `rotate`, at the frequencies of a rule."""

    def scaled(library):
        found = getattr(library, rule)(WIDTH, **options) if rule else None
        return found if isinstance(found, tuple) else (found, 1.0)

    def ours(column, x, positions):
        frequencies, factor = scaled(column.library)
        options = {"frequencies": frequencies, "attention_factor": factor}
        return column.library.rotate(x, positions, layout="half", **options)

    def theirs(column, x, positions):
        return usual_rotation(column, x, positions, *scaled(reference))

    def right(x, positions):
        return right_factor * truth.rotated(x, *truth.cos_sin(positions[:, None], turns))

    said = [f"{key.replace('_', ' ')} {value:g}" for key, value in options.items()]
    setting = ", ".join([f"width {WIDTH}", *said])
    return Case(
        name, setting, "row", LENGTHS, queries, right, ours, theirs=theirs, **ANGLES
    )


def sinusoid():
    """The table that is added to the tokens."""

    def right(positions):
        cos, sin = truth.cos_sin(positions[:, None], truth.plain(WIDTH))
        return np.stack([sin, cos], -1).reshape(len(positions), WIDTH)

    def ours(column, positions):
        return column.library.sinusoidal_encoding(positions, WIDTH, **column.option())

    def theirs(column, positions):
        cos, sin = usual_tables(column, positions)
        return column.numbers.stack([sin, cos], -1).reshape(len(positions), WIDTH)

    def given(where, length, dtype):
        return (where,)

    name, setting = "sinusoidal_encoding", f"width {WIDTH}"
    return Case(name, setting, "row", LENGTHS, given, right, ours, theirs=theirs, **ANGLES)


def axes():
    """M-RoPE's rotation by a time, a row and a column."""
    sections = (8, 12, 12)
    axis = np.repeat(np.arange(3), sections)

    def given(where, length, dtype):
        return queries(where, length, dtype)[0], np.stack(
            [where, where // 7 % 1024, where % 1024], -1
        )

    def right(x, coordinates):
        return truth.rotated(x, *truth.cos_sin(coordinates[:, axis], truth.plain(WIDTH)))

    def ours(column, x, coordinates):
        frequencies = column.library.mrope_frequencies(WIDTH, sections)
        return column.library.rotate_axes(x, coordinates, frequencies, layout="half")

    def theirs(column, x, coordinates):
        tables = [usual_tables(column, coordinates[:, i]) for i in range(3)]
        cos, sin = (
            column.numbers.concatenate(
                [t[i][:, axis == a] for a, t in enumerate(tables)], -1
            )
            for i in range(2)
        )
        a, b = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
        return column.numbers.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    name = "rotate_axes, M-RoPE"
    setting = f"width {WIDTH}, a time that grows with the token, row and column below 1024"
    return Case(name, setting, "row", LENGTHS, given, right, ours, theirs=theirs, **ANGLES)


def fading():
    """A query of xPos, whose pairs fade with the position."""

    def right(x, positions):
        cos, sin = truth.cos_sin(positions[:, None], truth.plain(WIDTH))
        fade = np.log(
            (np.arange(0, WIDTH, 2, dtype=truth.WIDE) / WIDTH + zeta) / (1 + zeta)
        )
        scale = np.exp(fade * positions[:, None] / 512)
        return truth.rotated(x, scale * cos, scale * sin)

    def ours(column, x, positions):
        return column.library.xpos_query(x, positions, layout="half")

    zeta = 0.4
    return Case("xpos_query", f"width {WIDTH}", "row", LENGTHS[:2], queries, right, ours)


# biases, of the query at the last position of a length


def bias(name, parameters, right, sizes=(HEADS,), options=(), unit="number", **more):
    """A case of a layer with these parameters; `right` has them and the distances."""

    def given(where, length, dtype):
        values = [np.asarray(x).astype(dtype) for x in parameters.values()]
        return [*values, np.array([length - 1]), where]

    def ours(column, *given):
        *values, query, keys = given
        named = dict(zip(parameters, values, strict=True))
        layer = column.layer(name, named, *sizes, **dict(options))
        return layer(query, keys)[:, 0]

    def wide(*given):
        *values, query, keys = given
        return right(*values, query[0] - keys)

    setting = f"{sizes[0]} heads"
    return Case(name, setting, unit, LENGTHS, given, wide, ours, **more)


def alibi():
    """A slope in each head, which is a power of two."""

    def right(query, keys):
        slopes = np.ldexp(truth.WIDE(1), -np.arange(1, HEADS + 1))
        return -slopes[:, None] * (query - keys)

    def ours(column, query, keys):
        return column.library.ALiBi(HEADS, **column.option())(query, keys)[:, 0]

    def given(where, length, dtype):
        return np.array([length - 1]), where

    return Case("ALiBi", f"{HEADS} heads", "number", LENGTHS, given, right, ours)


def kerple_log(r1, r2, distance):
    return -r1[:, None] * np.log1p(r2[:, None] * distance)


def kerple_power(r1, r2, distance):
    powers = np.maximum(distance, 1).astype(truth.WIDE) ** r2[:, None]
    return np.where(distance == 0, 0, -r1[:, None] * powers)


def t5():
    """The table's row of a bucket, beside a bucket from logarithms in float32."""

    def theirs(column, table, query, keys):
        distance = query[:, None] - keys
        ratio = column.numbers.log(column.cast(distance, "float32") / 16) / math.log(8)
        far = 16 + column.cast(ratio * 16, "int32")
        far = column.numbers.where(far > 31, 31, far)
        bucket = column.numbers.where(distance < 16, distance, far)
        return table[bucket[0]].T

    table = {"table": drawn(1, 32, HEADS)}
    return bias(
        "T5Bias",
        table,
        lambda table, distance: table[truth.bucket(distance)].T,
        options={"bidirectional": False},
        peer="logarithms in float32",
        theirs=theirs,
    )


def kerple():
    """Parameters within their bounds."""
    r1, r2 = np.random.default_rng(2).uniform(0.1, 1, (2, HEADS))
    for name, right in (("KerpleLog", kerple_log), ("KerplePower", kerple_power)):
        yield bias(name, {"r1": r1, "r2": r2}, right)


def fire():
    """A small network for two heads."""
    shapes = {
        "hidden_weight": 32,
        "hidden_bias": 32,
        "output_weight": (32, 2),
        "output_bias": 2,
    }
    rng = np.random.default_rng(3)
    parameters = {"c": 0.1, "multiplier": 1.0}
    parameters |= {n: rng.uniform(-1, 1, shape) for n, shape in shapes.items()}
    return bias("FIRE", parameters, truth.fire, (2,), unit="row", blocks=False)


# attention


def softmax():
    """The weights of scores with a spread of 3."""

    def given(where, length, dtype):
        return (3 * drawn(4, QUERIES, length).astype(dtype),)

    def theirs(column, scores):
        return (torch if column.numbers is torch else jax.nn).softmax(scores, -1)

    def ours(column, scores):
        return column.library.masked_softmax(scores)

    options = {"theirs": theirs, "blocks": False, **OWN}
    name, setting = "masked_softmax", f"{QUERIES} rows of scores, standard deviation 3"
    return Case(name, setting, "row", LENGTHS, given, truth.softmax, ours, **options)


def own_attention(column, query, key, value, penalty=None, causal=False):
    """What the framework has, called with an axis of examples, which its fused kernel needs."""
    one = [x[None] for x in (query, key, value)]
    penalty = None if penalty is None else penalty[None]
    if column.numbers is torch:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*one, attn_mask=penalty, is_causal=causal)[0]
    heads_last = [x.swapaxes(1, 2) for x in one]
    out = jax.nn.dot_product_attention(*heads_last, bias=penalty, is_causal=causal)
    return out[0].swapaxes(0, 1)


def decoding():
    """The last queries over all keys."""

    def given(where, length, dtype):
        rng = np.random.default_rng(5)
        return [rng.normal(size=(1, n, 32)).astype(dtype) for n in (2, length, length)]

    def ours(column, *given):
        return column.library.scaled_dot_product_attention(*given)

    name, options = "scaled_dot_product_attention", {"blocks": False, **OWN}
    options |= {"theirs": own_attention}
    setting = "two queries over all keys, as in decoding, width 32"
    return Case(name, setting, "row", LENGTHS, given, truth.attention, ours, **options)


def reading():
    """All queries of a text, with ALiBi, of which some rows are looked at."""
    heads = 8
    slopes = 2.0 ** -np.arange(1, heads + 1)

    def rows(n):
        return np.linspace(0, n - 1, 64).astype(int)

    def penalty(n):
        distance = rows(n)[:, None] - np.arange(n)
        return np.where(distance < 0, np.inf, slopes[:, None, None] * distance)

    def given(where, length, dtype):
        return [drawn(seed, heads, length, WIDTH).astype(dtype) for seed in (6, 7, 8)]

    def right(query, key, value):
        n = key.shape[-2]
        return truth.attention(query[:, rows(n)], key, value, penalty(n))

    def ours(column, query, key, value):
        n = key.shape[-2]
        attend = column.library.scaled_dot_product_attention
        if column.name == "NumPy":  # which has all pairs in memory
            return attend(query[:, rows(n)], key, value, bias=-penalty(n))
        layer = column.library.ALiBi(heads, **column.option())
        return attend(query, key, value, causal=True, bias=layer)[:, rows(n)]

    def theirs(column, query, key, value):
        n = key.shape[-2]
        bias = column.cast(column.numbers.asarray(-penalty(n)))
        return own_attention(column, query[:, rows(n)], key, value, bias)

    name, options = "scaled_dot_product_attention, causal, ALiBi", {"blocks": False, **OWN}
    lengths = (2**10, 2**13, 2**16)
    setting = f"all queries of a text, {heads} heads of width {WIDTH}, 64 rows compared"
    return Case(name, setting, "row", lengths, given, right, ours, theirs=theirs, **options)


def cases():
    """All of them, in the order of the page."""
    yarned, factor = truth.yarn(WIDTH, 32, 4096)
    return [
        rotation("rotate", truth.plain(WIDTH)),
        rotation("rotate, YaRN", yarned, "yarn", factor, factor=32.0, trained_length=4096),
        rotation("rotate, Llama 3", truth.llama3(WIDTH), "llama3"),
        rotation("rotate, NTK-aware", truth.ntk_aware(WIDTH, 8), "ntk_aware", factor=8.0),
        axes(),
        fading(),
        sinusoid(),
        alibi(),
        t5(),
        *kerple(),
        fire(),
        softmax(),
        decoding(),
        reading(),
    ]
