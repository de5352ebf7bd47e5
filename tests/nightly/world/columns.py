"""What is asked of each library, and how an answer is named: by the formula that gives the same numbers."""

import numpy as np

from posattn.reference import rotate, scaled_dot_product_attention
from tests.nightly.world.inside import GIVEN

ANYTHING = np.inf  # in an answer that differs from call to call
NEAR = 5e-3  # the formulas lie further apart, half precision lies closer


def attended(keys=slice(None), queries="query", **options):
    """What the formula gives the queries, of these keys."""
    query, key, value = (GIVEN[name].astype("f8") for name in (queries, "key", "value"))
    return scaled_dot_product_attention(
        query, key[..., keys, :], value[..., keys, :], **options
    )


def softened(scores):
    """The weighted sum of values for these scores."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ GIVEN["value"].astype("f8")


def capped(first):
    """Scores with a soft cap, before or after what is hidden gets a large negative number."""
    query, key, cap = GIVEN["query"].astype("f8"), GIVEN["key"].astype("f8"), GIVEN["cap"]
    scores, hidden = query @ key.swapaxes(-1, -2) / 4, np.where(GIVEN["mask"], 0, -1e9)
    scores = (
        cap * np.tanh(scores / cap) + hidden
        if first
        else cap * np.tanh((scores + hidden) / cap)
    )
    return softened(scores)


def rows(instead):
    """The rows of a mask, of which row 2 may attend to nothing and gets something."""
    out = attended(mask=GIVEN["empty"])
    out[:, :, 2] = instead
    return out


def spoiled():
    """Only what comes before an empty row is right."""
    out = np.full_like(rows(0.0), ANYTHING)
    out[:, 0, :2] = rows(0.0)[:, 0, :2]
    return out


def back(keys, ahead=0):
    """A window of so many keys up to the query's own, and so many after it."""
    apart = np.arange(6)[:, None] - np.arange(6)
    return attended(mask=(apart < keys) & (apart >= -ahead))


def turned(positions, layout="half", frequencies=None, x=None, **options):
    """A rotation by the formula."""
    x = GIVEN["x"].astype("f8") if x is None else x
    if frequencies is not None:
        options["frequencies"] = frequencies
    return rotate(x, np.asarray(positions, "f8"), layout=layout, **options)


def layouts(name, **options):
    """One answer in both layouts."""
    ends = {"half": "halves", "interleaved": "neighbors"}
    return {
        f"{name}, {end}" if name else end: turned(**options, layout=layout)
        for layout, end in ends.items()
    }


def last_part():
    """Only the last columns rotate."""
    x, part = GIVEN["x"].astype("f8"), GIVEN["part"]
    return {
        f"last entries, {end}": np.concatenate(
            [x[..., :part], turned(np.arange(6), layout, x=x[..., part:])], -1
        )
        for layout, end in (("half", "halves"), ("interleaved", "neighbors"))
    }


def either(name, **options):
    """An answer that has one name in either layout."""
    return [(name, array) for array in layouts("", **options).values()]


def apart(far):
    """How far an answer is off at a distant position, in the better layout."""
    return min(
        abs(far - right).max() for right in layouts("", positions=GIVEN["far"]).values()
    )


WINDOW, MEAN = GIVEN["window"], GIVEN["value"].astype("f8").mean(-2)
PLACES, SCALES = np.arange(6.0), 10000.0 ** (-np.arange(8) / 8)
QUERY, KEY = (GIVEN[name].astype("f8") for name in ("query", "key"))
SLOW, FREQS, STRETCH = (
    np.where(np.arange(8) < 4, SCALES, 0),
    GIVEN["freqs"],
    GIVEN["stretch"],
)
LAST = np.eye(2, 6, dtype=bool) | [[False], [True]]
ANSWERS = {  # what the answers to each probe are called
    "causal": {  # with fewer queries than keys
        "lower right": attended(queries="last", causal=True),
        "upper left": attended(queries="last", mask=np.tri(2, 6, dtype=bool)),
        "every key": attended(queries="last"),
        "upper left, but every key for the last": attended(queries="last", mask=LAST),
    },
    "empty_row": {
        "zeros": rows(0.0),
        "mean": rows(MEAN),
        "NaN": rows(np.nan),
        "unmasked": rows(attended()[:, :, 2]),
        "first value": rows(GIVEN["value"][:, :, 0]),
        "spoils the rows after it": spoiled(),
    },
    "true": {
        "may attend": attended(mask=GIVEN["mask"]),
        "hidden": attended(mask=~GIVEN["mask"]),
        "added as 1": softened(QUERY @ KEY.swapaxes(-1, -2) / 4 + GIVEN["mask"]),
    },
    "scale": {"1/√d": attended(), "none": attended(scale=1.0), "1/d": attended(scale=1 / 16)},
    "soft_cap": {
        "before the mask": capped(True),
        "after the mask": capped(False),
        "ignored": attended(mask=GIVEN["mask"]),
    },
    "sliding": {
        "W keys": back(WINDOW),
        "W + 1 keys": back(WINDOW + 1),
        "W - 1 keys": back(WINDOW - 1),
        "W before and after": back(WINDOW + 1, WINDOW),
        "W around": back(WINDOW // 2 + 1, WINDOW // 2),
        "W - 1 before and after": back(WINDOW, WINDOW - 1),
        "W keys, nothing causal": back(WINDOW, 6),
        "ignored": back(6),
        "ignored, nothing causal": back(6, 6),
    },
    "rotated": layouts("", positions=PLACES) | {
        "halves, backwards": turned(-PLACES),
        "neighbors, backwards": turned(-PLACES, "interleaved"),
    },
    "partly": {
        **layouts("first entries", positions=PLACES, frequencies=SCALES[::2]),
        **last_part(),
        **layouts("slow pairs stand still", positions=PLACES, frequencies=SLOW),
    },
    "by_freqs": [
        *either("freqs: radians a position", positions=PLACES, frequencies=FREQS),
        *either("freqs: positions a radian", positions=PLACES, frequencies=1 / FREQS),
        *either("freqs: divide the frequencies", positions=PLACES, frequencies=SCALES / FREQS),
        *either("freqs: multiply the frequencies", positions=PLACES, frequencies=SCALES * FREQS),
    ],
    "stretched": [
        *either("scale: multiplies positions", positions=PLACES * STRETCH),
        *either("scale: divides positions", positions=PLACES / STRETCH),
        *either("scale: raises the base", positions=PLACES, base=1e4 * STRETCH ** (16 / 14)),
    ],
    "shifted": [
        *either("offset: added to positions", positions=PLACES + GIVEN["offset"]),
        *either("offset: ignored", positions=PLACES),
    ],
    "distant": apart,
    "packed": ("kept apart", "mixed"),
    "padded": ("same as alone", "differs"),
    "cached": ("same as one pass", "differs"),
}  # fmt: skip


def named(probe, told):
    """The class of an answer, and what was printed or computed, in a few words."""
    if "error" in told:
        return "raises", told["error"]
    answers = ANSWERS[probe]
    got = [np.array(array) for array in told["arrays"]]
    if isinstance(answers, tuple):
        off = abs(got[0] - got[1]).max()
        word = "NaN" if np.isnan(got[1]).any() else answers[int(not off < NEAR)]
        return word, f"largest difference {off:.2g}"
    if callable(answers):
        off = answers(got[0])
        limits = (("float64", 2e-6), ("float32", 0.03), ("coarser", np.inf))
        word = next((name for name, most in limits if off < most), "NaN")
        return word, f"largest error {off:.2g}"
    listed = answers.items() if isinstance(answers, dict) else answers
    shown = np.array2string(got[0][0, 0, :, :6], precision=2, suppress_small=True)
    for name, array in listed:
        if array.shape != got[0].shape:
            continue
        near = np.isclose(got[0], array, atol=NEAR, rtol=0, equal_nan=True)
        if np.all(near | (array == ANYTHING)):
            return name, shown
    return "something else", shown
