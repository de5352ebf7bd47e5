"""Cases of the schemes whose scores depend on content as well as on positions."""

import numpy as np

from posattn.conformance.cases import PAIRS, Scheme, draw, flat, of_content, of_positions
from posattn.reference.position.cope import CoPE
from posattn.reference.position.dape import DAPE
from posattn.reference.position.disentangled import DisentangledBias
from posattn.reference.position.disentangled import deberta_bucket as bucket
from posattn.reference.position.forgetting import ForgettingGate, forgetting_bias
from posattn.reference.position.relative import RelativeGlobalAttention, ShawRelative
from posattn.reference.position.relative import skew as skewed
from posattn.reference.position.stick_breaking import StickBreaking
from posattn.reference.position.transformer_xl import TransformerXLBias
from posattn.reference.position.tupe import TUPEBias

HEADS, WIDTH = 3, 4


def heads(query_positions, key_positions):
    """Queries and keys of three heads at positions, and the positions."""
    batch = query_positions.shape[:-1]
    query, key = (
        draw(seed, *batch, HEADS, where.shape[-1], WIDTH)
        for seed, where in enumerate((query_positions, key_positions))
    )
    return query, key, query_positions, key_positions


def everywhere(**parameters):
    """The same parameters at all kinds of positions."""
    for name, pair in PAIRS.items():
        yield name, heads(*pair), parameters


def shaw():
    """Shaw's term of the scores: a vector for each offset, clipped."""
    yield from everywhere(key_table=draw(2, 5, WIDTH))
    yield "far apart", heads(*PAIRS["six tokens"]), {"key_table": draw(3, 21, WIDTH)}
    yield "one vector", heads(*PAIRS["six tokens"]), {"key_table": draw(4, 1, WIDTH)}


def shaw_values():
    """Shaw's addition to the output of the heads."""
    for name, (query_positions, key_positions) in PAIRS.items():
        shape = *query_positions.shape[:-1], HEADS, query_positions.shape[-1]
        weights = np.abs(draw(0, *shape, key_positions.shape[-1]))
        tables = {"key_table": draw(1, 5, WIDTH), "value_table": draw(2, 5, WIDTH)}
        yield name, (weights, query_positions, key_positions), tables


def skew():
    """The Music Transformer's skewing, the numbers above the diagonal included."""
    yield "four tokens", (draw(0, 4, 4),), {}
    yield "two examples of three heads", (draw(1, 2, 3, 5, 5),), {}
    yield "one token", (draw(2, 1, 1),), {}


def music():
    """The Music Transformer's term of the scores: a vector for each head and distance."""
    yield from everywhere(table=draw(2, HEADS, 5, WIDTH))


def transformer_xl():
    """Transformer-XL's terms of the score beside that of query and key."""
    given = {
        "content_bias": draw(2, HEADS, WIDTH),
        "position_bias": draw(3, HEADS, WIDTH),
        "weight": draw(4, 6, HEADS * WIDTH),
    }
    yield from everywhere(**given)
    yield "another base", heads(*PAIRS["six tokens"]), {**given, "base": 500.0}


def disentangled():
    """DeBERTa's content to position and position to content, at the scale of three terms."""
    weights = {
        "query_weight": draw(2, 6, HEADS * WIDTH),
        "key_weight": draw(3, 6, HEADS * WIDTH),
        "num_heads": HEADS,
    }
    yield from everywhere(table=draw(4, 4, 6), **weights)
    yield (
        "a longer table",
        heads(*PAIRS["six tokens"]),
        {"table": draw(5, 14, 6), **weights},
    )
    given = {"table": draw(6, 8, 6), **weights}
    pair = heads(*PAIRS["six tokens"])
    yield "both terms read the row of the query", pair, {**given, "same_row": True}
    far = heads(np.array([9, 40]), np.array([0, 3, 6, 7, 9, 12, 40]))
    given = {"table": draw(6, 12, 6), **weights}
    options = {"same_row": True, "bucketed_to": 16}
    yield "buckets of distances up to 15", far, {**given, **options}
    yield "buckets and the paper's rows", far, {**given, "bucketed_to": 16}


def deberta_bucket():
    """The bucket of a relative position in DeBERTa's second version, exact at the boundaries."""
    ends = [127, 128, 129, 130, 131, 132, 133, 134, 499, 500, 505, 506, 511, 512, 2**20]
    yield "near", (np.arange(-6, 7),), {}
    yield "boundaries", (np.array(ends),), {}
    yield "boundaries on the other side", (-np.array(ends),), {}
    yield "a table of six tokens", (np.arange(6)[:, None] - np.arange(6),), {}
    few = {"num_buckets": 8, "max_distance": 20}
    yield "eight buckets", (np.arange(-25, 26),), few


def tupe():
    """TUPE's term of the score: positions attend to positions, at the scale of two terms."""
    given = {
        "table": draw(0, 10, 6),
        "query_weight": draw(1, 6, HEADS * WIDTH),
        "key_weight": draw(2, 6, HEADS * WIDTH),
        "num_heads": HEADS,
    }
    reset = {**given, "cls_bias": draw(3, 2, HEADS)}
    for name, pair in PAIRS.items():
        if max(map(np.max, pair)) < len(given["table"]):
            yield name, pair, given
            yield f"{name}, with a reset", pair, reset
    yield "an order of their own", (np.array([4, 0, 7]), np.array([1, 0, 5, 9])), given


def cope():
    """CoPE's term of the scores: the position of a key is a count by gates."""
    yield from everywhere(table=draw(2, 4, WIDTH))
    yield "counts below the end", heads(*PAIRS["six tokens"]), {"table": draw(3, 9, WIDTH)}


def stick_breaking():
    """Stick-breaking, as what is added to the scores: each key takes a share of what is left."""
    yield from everywhere()
    query, key, *where = heads(*PAIRS["six tokens"])
    yield "large scores", (query, 6 * np.round(key), *where), {}


def adapted(query, key, bias, *, hidden_weight, hidden_bias, output_weight, output_bias):
    """DAPE, given the numbers of the bias that it adapts."""
    network = hidden_weight, hidden_bias, output_weight, output_bias
    where = np.arange(query.shape[-2]), np.arange(key.shape[-2])
    return DAPE(lambda *positions: bias, *network).scores(query, key, *where)


def dape():
    """A bias, given as numbers, and what a network of it and of the scores of all heads adds."""
    network = {
        "hidden_weight": draw(3, 2 * HEADS, 5) / 4,
        "hidden_bias": draw(4, 5) / 4,
        "output_weight": draw(5, 5, HEADS) / 4,
        "output_bias": draw(6, HEADS) / 4,
    }
    for name in (
        "six tokens",
        "decoding: three queries, five keys",
        "positions per example",
    ):
        query, key, *_ = heads(*PAIRS[name])
        bias = draw(7, HEADS, query.shape[-2], key.shape[-2])
        yield name, (query, key, bias), network
    each = draw(8, *query.shape[:-1], key.shape[-2])
    yield "a bias per example", (query, key, each), network


def forgetting():
    """The bias of the forgetting gate: the log gates between a key and a query."""
    gates = -np.abs(draw(0, 2, 3, 6))
    yield "two examples of three heads", (gates,), {}
    yield "decoding: one query", (gates, 1), {}
    yield "decoding: three queries", (gates, 3), {}
    yield "open gates", (np.zeros((1, 4)),), {}
    yield "gates that are nearly closed", (gates - 7,), {}
    yield "a long past", (-np.abs(draw(1, 1, 500)) - 1, 2), {}


def forgetting_gate():
    """The log gates of tokens, for each head."""
    given = {"weight": draw(0, 6, 3), "offset": draw(1, 3)}
    x = draw(2, 2, 4, 6)
    yield "two examples of four tokens", (x,), given
    yield "gates open and closed", (x * 8,), given
    yield "one token", (x[:1, :1],), given


SHAW, MUSIC = "shaw2018self, equations 3 and 4", "huang2019music, the skewing procedure"
SCHEMES = {
    "shaw": of_content(ShawRelative, shaw, SHAW),
    "shaw_values": Scheme(
        flat(ShawRelative, "weights", "query_positions", "key_positions", method="values"),
        shaw_values,
        SHAW,
        name="ShawRelative",
        method="values",
    ),
    "skew": Scheme(skewed, skew, MUSIC),
    "music_transformer": of_content(RelativeGlobalAttention, music, MUSIC),
    "transformer_xl": of_content(
        TransformerXLBias, transformer_xl, "dai2019transformerxl, section 3.3"
    ),
    "disentangled": of_content(
        DisentangledBias, disentangled, "he2021deberta, equations 3 and 4"
    ),
    "deberta_bucket": Scheme(
        bucket, deberta_bucket, "he2021deberta, and the authors' program"
    ),
    "tupe": of_positions(TUPEBias, tupe, "ke2021rethinking, sections 3.1 and 3.2"),
    "cope": of_content(CoPE, cope, "golovneva2024contextual, section 4"),
    "stick_breaking": of_content(
        StickBreaking, stick_breaking, "tan2025scaling, the remainder kept"
    ),
    "dape": Scheme(adapted, dape, "zheng2024dape, section 3", name="DAPE"),
    "forgetting": Scheme(forgetting_bias, forgetting, "lin2025forgetting, section 3"),
    "forgetting_gate": Scheme(
        flat(ForgettingGate, "x"),
        forgetting_gate,
        "lin2025forgetting, section 3",
        name="ForgettingGate",
    ),
}
