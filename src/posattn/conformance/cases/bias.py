"""Cases of the biases that are functions of positions."""

import numpy as np

from posattn.conformance.cases import FRACTIONS, PAIRS, Scheme, draw, of_positions
from posattn.reference.position.alibi import ALiBi
from posattn.reference.position.alibi import alibi_slopes as slopes
from posattn.reference.position.fire import FIRE
from posattn.reference.position.kerple import KerpleLog, KerplePower
from posattn.reference.position.sandwich import sandwich_bias
from posattn.reference.position.swin import SwinBias
from posattn.reference.position.swin_v2 import SwinV2Bias
from posattn.reference.position.t5 import T5Bias
from posattn.reference.position.t5 import t5_bucket as bucket


def alibi_slopes():
    """The slopes of ALiBi, for any number of heads."""
    for num_heads in (8, 1, 2, 3, 5, 6, 7, 12, 16, 20, 32):
        yield f"{num_heads} heads", (num_heads,), {}


def alibi():
    """The bias of ALiBi in both directions: minus the slope times the distance."""
    for name, pair in {**PAIRS, **FRACTIONS}.items():
        yield name, pair, {"num_heads": 4}
    for num_heads in (1, 3, 8, 12):
        yield f"{num_heads} heads", PAIRS["six tokens"], {"num_heads": num_heads}


def t5_bucket():
    """The bucket of a relative position, key minus query, exact at the boundaries."""
    fragile = [7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128]
    causal = [
        15,
        16,
        18,
        19,
        20,
        21,
        23,
        24,
        26,
        27,
        30,
        31,
        34,
        35,
        39,
        40,
        45,
        46,
        51,
        52,
    ]
    causal += [58, 59, 66, 67, 76, 77, 86, 87, 98, 99, 112, 113, 127, 128]
    one_way = {"bidirectional": False}
    yield "near, both directions", (np.arange(-12, 13),), {}
    yield "boundaries in the past", (-np.array(fragile),), {}
    yield "boundaries in the future", (np.array(fragile),), {}
    yield "a table of six tokens", (np.arange(6) - np.arange(6)[:, None],), {}
    yield "large distances, up to 2**20", (np.array([-(2**20), 2**20, 4095, -2049]),), {}
    yield "causal, near", (np.arange(-20, 4),), one_way
    yield "causal, boundaries", (-np.array(causal),), one_way
    yield "causal, large distances, up to 2**20", (np.array([-(2**20), 2**20]),), one_way
    few = {"num_buckets": 8, "max_distance": 20}
    yield "eight buckets", (np.arange(-25, 26),), few
    yield "eight buckets, causal", (np.arange(-25, 3),), {**few, **one_way}
    yield "a maximal distance of 1024", (-(2 ** np.arange(11)),), {"max_distance": 1024}


def t5():
    """The bias of T5: a learned number per head and bucket."""
    table, one_way = draw(0, 32, 3), {"bidirectional": False}
    for name, pair in PAIRS.items():
        yield name, pair, {"table": table}
    edges = (
        np.array([200]),
        200 - np.array([128, 127, 91, 64, 32, 16, 8, 7, 0, -8, -16, -64]),
    )
    yield "boundaries of buckets", edges, {"table": table}
    yield "causal, six tokens", PAIRS["six tokens"], {"table": table, **one_way}
    yield "causal, boundaries of buckets", edges, {"table": table, **one_way}
    few = {"table": draw(1, 8, 5), "max_distance": 20}
    fewer = np.array([30]), np.arange(0, 60, 3)
    yield "eight buckets, five heads", fewer, few
    yield "eight buckets, causal", fewer, {**few, "bidirectional": False}


def kerple():
    """The logarithmic kernel of KERPLE, with two parameters per head."""
    given = {"r1": np.array([0.5, 1.0, 2.0]), "r2": np.array([1.0, 0.25, 0.0625])}
    for name, pair in {**PAIRS, **FRACTIONS}.items():
        yield name, pair, given


def kerple_power():
    """The power kernel of KERPLE, with two parameters per head."""
    given = {"r1": np.array([0.5, 1.0, 2.0]), "r2": np.array([1.0, 2.0, 0.5])}
    for name, pair in {**PAIRS, **FRACTIONS}.items():
        yield name, pair, given


def sandwich():
    """The bias of Sandwich: products of sinusoids, scaled per head."""
    for name, pair in {**PAIRS, **FRACTIONS}.items():
        yield name, pair, {"num_heads": 3, "dim": 8}
    yield "another base", PAIRS["six tokens"], {"num_heads": 3, "dim": 8, "base": 500.0}
    yield "the default width", PAIRS["six tokens"], {"num_heads": 2}


def fire():
    """The bias of FIRE: a small network reads the normalised logarithm of the distance."""
    weights = {
        "c": np.array(0.125),
        "multiplier": np.array(1.5),
        "hidden_weight": draw(0, 5),
        "hidden_bias": draw(1, 5),
        "output_weight": draw(2, 5, 3),
        "output_bias": draw(3, 3),
    }
    for name, pair in PAIRS.items():
        yield name, pair, weights
    yield "a threshold of 4", PAIRS["six tokens"], {**weights, "threshold": 4.0}
    far = PAIRS["decoding: three queries, five keys"]
    yield "decoding beyond a threshold of 2", far, {**weights, "threshold": 2.0}
    negative = {**weights, "c": np.array(-0.125), "multiplier": np.array(-1.5)}
    yield "negative c and multiplier", far, {**negative, "threshold": 2.0}
    yield "a c of 0", PAIRS["six tokens"], {**weights, "c": np.array(0.0)}
    yield "a multiplier of 0", PAIRS["six tokens"], {**weights, "multiplier": np.array(0.0)}


def swin():
    """The bias of a window of an image, its cells numbered row by row."""
    table, wide = draw(0, 15, 3), draw(1, 25, 2)
    every = np.arange(6)
    yield (
        "two rows of three cells",
        (every, every),
        {"table": table, "height": 2, "width": 3},
    )
    yield (
        "three rows of two cells",
        (every, every),
        {"table": table, "height": 3, "width": 2},
    )
    yield "a square", (np.arange(9), np.arange(9)), {"table": wide, "height": 3, "width": 3}
    some = (np.array([4, 1]), np.array([0, 5, 2]))
    yield "some of the cells", some, {"table": table, "height": 2, "width": 3}
    one = np.array([4]), some[1]
    yield "one query", one, {"table": table, "height": 2, "width": 3}


def swin_v2():
    """The bias of a window of an image as a network of its displacements, scaled by the trained window."""
    cells = np.arange(6), np.arange(6)
    given = {
        "hidden_weight": draw(0, 2, 5),
        "hidden_bias": draw(1, 5) / 4,
        "output_weight": draw(2, 5, 3) / 4,
        "height": 2,
        "width": 3,
    }
    yield "two rows of three cells", cells, given
    yield "three rows of two cells", cells, {**given, "height": 3, "width": 2}
    larger = {**given, "trained_height": 3, "trained_width": 2}
    yield "another window in training", cells, larger
    yield "one row", cells, {**given, "height": 1, "width": 6, "trained_height": 4}
    yield "some of the cells", (np.array([4, 1]), np.array([0, 5, 2])), given
    yield "one query", (np.array([4]), np.array([0, 5, 2])), given


TABLE = "raffel2020exploring, section 2.1"
SCHEMES = {
    "alibi_slopes": Scheme(
        slopes, alibi_slopes, "press2022alibi, section 3", relative=True
    ),
    "alibi": of_positions(ALiBi, alibi, "press2022alibi, section 3", relative=True),
    "t5_bucket": Scheme(bucket, t5_bucket, TABLE),
    "t5": of_positions(T5Bias, t5, TABLE),
    "kerple_log": of_positions(KerpleLog, kerple, "chi2022kerple, the logarithmic variant"),
    "kerple_power": of_positions(
        KerplePower, kerple_power, "chi2022kerple, the power variant", relative=True
    ),
    "sandwich": of_positions(sandwich_bias, sandwich, "chi2023dissecting"),
    "fire": of_positions(FIRE, fire, "li2024fire"),
    "swin": of_positions(SwinBias, swin, "liu2021swin, section 3.2, equation 4"),
    "swin_v2": of_positions(
        SwinV2Bias, swin_v2, "liu2022swin, section 3.3, as in the authors' program"
    ),
}
