"""The cards and cases of the rotation of queries and keys, and of its layouts."""

import inspect

import numpy as np

from posattn.reference.cases import PAIRS, Cases, draw, single
from posattn.reference.position import rotary as definition
from posattn.reference.position.card import SMALL, Card, Scheme
from posattn.reference.position.sinusoidal import frequencies as plain

FAR = np.array([2**20, 2**20 - 1, 2**19 + 1, 65537, 100003])
FINE = np.array([257, 999, 1021, 2049, 4095])
PARTS = np.array([-2.5, 0.25, 1000.75, 3.0, 0.5])
SLOW = single(plain(8)[:2] / 4)
PROMPTS = {
    "a prompt of two documents": (np.array([7, 8, 9, 0, 1]),) * 2,
    "prompts with left padding and with a gap": (
        np.array([[0, 0, 0, 1, 2], [7, 8, 9, 20, 21]]),
    )
    * 2,
}


def rotary():
    """Rotation of queries or keys by their positions, in both layouts, whole and partial."""
    for rotary_dim in (None, 4):
        for layout in ("interleaved", "half"):
            yield from places(layout, rotary_dim)
    x, first = draw(0, 2, 5, 8), np.arange(5)
    for layout in ("interleaved", "half"):
        given = {**of_layout(layout), "frequencies": SLOW}
        said = named(layout, None)
        yield f"{said}frequencies given: two pairs rotate", (x, first), given
        odd = draw(3, 1, 5, 7), FINE
        yield f"{said}frequencies given, an odd width", odd, given
        factor = {**given, "attention_factor": 1.25}
        yield f"{said}frequencies given, an attention factor", (x, first), factor
    zeros = {"layout": "half", "frequencies": np.pad(SLOW, (0, 2))}
    few = x[:1, :3], first[:3]
    yield "layout half, frequencies given, two are 0, as in Gemma 4", few, zeros


def named(layout, rotary_dim):
    """The beginning of a case's name."""
    return "layout half, " * (layout == "half") + "partial, " * (rotary_dim is not None)


def of_layout(layout):
    """The keyword for a layout, which has a default."""
    return {"layout": layout} if layout == "half" else {}


def places(layout, rotary_dim):
    """Rotations at all kinds of positions, with one layout and one width of what rotates."""
    options = of_layout(layout) | ({} if rotary_dim is None else {"rotary_dim": rotary_dim})
    for name, arguments, keywords in turns(rotary_dim):
        yield named(layout, rotary_dim) + name, arguments, {**keywords, **options}
    every = {"base": 500.0, "attention_factor": 1.25, **options}
    said = f"{named(layout, rotary_dim)}all options at once"
    yield said, (draw(5, 1, 5, 8), np.arange(7, 12)), every


def turns(rotary_dim):
    """The cases of one layout; partial rotations of one example, where that will do."""
    x, first, later = draw(0, 2, 5, 8), np.arange(5), np.arange(7, 12)
    x = x if rotary_dim is None else x[:1]
    yield "another base, positions that do not begin at 0", (x, later), {"base": 500.0}
    yield "positions that do not begin at 0", (x, later), {}
    yield "another base", (x, first), {"base": 500.0}
    yield "positions 0 to 4", (x, first), {}
    if rotary_dim is None:
        yield "half the width", (x[..., :4], first), {}
        yield "a pair alone", (x[..., :2], first), {}
    else:
        yield "an odd width", (x[..., :7], later), {}
    yield "no positions given", (x,), {}
    yield "an order of their own", (x, np.array([0, 3, 1, 3, 4])), {}
    yield "positions that bfloat16 and float16 cannot hold", (x, FINE), {}
    yield "large positions, up to 2**20", (x, FAR), {}
    both = draw(4, 2, 3, 8)
    padded = np.array([[0, 0, 1], [0, 1, 2]])
    yield "left padding: positions per example", (both, padded), {}
    apart = np.array([[9, 10, 11], [0, 0, 1]])
    yield "the first example stands elsewhere", (both, apart), {}
    if rotary_dim is None:  # a cache that looks at one example only must meet both
        again = np.array([[9, 10, 11], [0, 1, 2]])
        yield "the second example stands elsewhere", (both, again), {}
    heads = draw(1, 3, 2, 3, 6)  # never as many examples as heads
    per_head = np.array([[[5, 6, 7]], [[0, 0, 1]], [[2, 3, 9]]])
    yield "two heads, positions per example", (heads, per_head), {}
    yield "as many examples as tokens", (draw(2, 3, 3, 8),), {}
    yield "decoding: one token", (x[:1, :1], np.array([41])), {}
    yield "decoding: one token of each example", (both[:, :1], np.array([[41], [7]])), {}
    yield "no tokens", (x[:, :0], first[:0]), {}
    yield "fractions and negative positions", (x[:1], PARTS), {}
    yield "an attention factor", (x[:1], first), {"attention_factor": 1.25}


def rotated(
    x,
    positions=None,
    *,
    frequencies=None,
    base=10000.0,
    layout="interleaved",
    attention_factor=1.0,
    rotary_dim=None,
):
    """The rotation, of the first `rotary_dim` entries if not all rotate."""
    if rotary_dim is not None:
        frequencies = plain(rotary_dim, base=base)
    return definition.rotate(
        x,
        positions,
        frequencies=frequencies,
        base=base,
        layout=layout,
        attention_factor=attention_factor,
    )


def inverse_rotation():
    """Rotation backwards: what was rotated by its position, a value or a result, is rotated back."""
    x, later = draw(0, 1, 5, 8), np.arange(7, 12)
    for rotary_dim in (None, 4):
        for layout in ("interleaved", "half"):
            options = {} if rotary_dim is None else {"rotary_dim": rotary_dim}
            options, said = options | of_layout(layout), named(layout, rotary_dim)
            yield f"{said}positions that do not begin at 0", (x, later), options
            yield f"{said}another base", (x, later), {"base": 500.0, **options}
            yield f"{said}positions that bfloat16 cannot hold", (x, FINE), options
            both, padded = draw(4, 2, 3, 8), np.array([[0, 0, 1], [5, 6, 7]])
            yield f"{said}positions per example", (both, padded), options
            yield f"{said}decoding: one token", (x[:, :1], np.array([41])), options
            factor = {"attention_factor": 1.25, **options}
            yield f"{said}an attention factor, which stays", (x, later), factor
            yield f"{said}all options at once", (x, later), {"base": 500.0, **factor}


def turned_back(x, positions, **options):
    """The rotation by the opposite of the positions."""
    return rotated(x, -positions, **options)


turned_back.__signature__ = inspect.Signature(
    [
        p.replace(default=p.empty) if p.name == "positions" else p
        for p in inspect.signature(rotated).parameters.values()
    ]
)


def rotary_scores():
    """Scores of queries and keys that were both rotated: `rotate(query, ...) @ rotate(key, ...)`."""
    for layout in ("interleaved", "half"):
        for name, where in {**PAIRS, **PROMPTS}.items():
            shapes = ((*at.shape[:-1], 3, at.shape[-1], 8) for at in where)
            heads = [draw(seed, *shape) for seed, shape in enumerate(shapes)]
            if where[0].ndim > 1:
                where = tuple(at[:, None] for at in where)
            said, options = named(layout, None), of_layout(layout)
            yield f"{said}{name}", (*heads, *where), options
            if name in ("six tokens", "positions per example"):
                other = {"base": 500.0, **options}
                yield f"{said}{name}, another base", (*heads, *where), other


def scores(
    query, key, query_positions, key_positions, *, base=10000.0, layout="interleaved"
):
    """The two rotations and the product, as one function."""
    options = {"base": base, "layout": layout}
    rotated = definition.rotate(query, query_positions, **options)
    return rotated @ definition.rotate(key, key_positions, **options).mT


def to_half():
    """Activations of the layout interleaved, put into the layout half."""
    yield "eight columns", (draw(0, 2, 3, 8),), {}
    yield "six columns", (draw(1, 4, 6),), {}
    yield "an odd width", (draw(2, 2, 7),), {}
    yield "two columns", (draw(3, 2, 2),), {}


def to_interleaved():
    """Activations of the layout half, put into the layout interleaved."""
    yield from to_half()


def weight_to_half():
    """Checkpoint weights of queries or keys, made for the layout interleaved: `x @ weight`."""
    yield "two heads", (draw(0, 5, 12), 2), {}
    yield "three heads", (draw(1, 12, 12), 3), {}
    yield "one head", (draw(2, 4, 6), 1), {}
    yield "partial: four of six entries rotate", (draw(3, 4, 12), 2, 4), {}
    yield "an offset", (draw(4, 12), 3), {}


def weight_to_interleaved():
    """Checkpoint weights of queries or keys, made for the layout half: `x @ weight`."""
    yield from weight_to_half()


CARDS = {
    "rotary": Card(
        title="Rotary (RoPE)",
        year=2021,
        idea=(
            "Rotate each pair of entries of a query or a key by an angle that grows with "
            "the position."
        ),
        formula=(
            r"\mathbf{q}_i \mapsto \mathbf{R}_i\,\mathbf{q}_i, \quad \text{pair } c "
            r"\text{ rotates by } i\,\omega_c"
        ),
        symbols=(
            r"$\mathbf{R}_i$ rotates all pairs, and $\omega_c = b^{-2c/d_h}$ is the frequency "
            "of pair $c$ in radians per position, with the base $b$ = 10000."
        ),
        cites=("su2024roformer",),
        function="rotate",
        shows="stripes along the diagonal, because the score depends only on the offset",
        models=(
            "Llama",
            "Llama 2",
            "Llama 3",
            "Llama 4 (Maverick)",
            "Mistral 7B v0.1",
            "Mixtral 8x7B",
            "Qwen3",
            "Gemma",
            "Gemma 2",
            "Gemma 3 (local layers)",
            "Falcon",
            "OLMo 2",
            "Olmo 3.1 (local layers)",
            "Aya 23",
            "Cohere 2 (local layers)",
            "SmolLM3",
            "Helium",
            "ModernBERT",
            "ESM-2",
        ),
        page="position/rotary",
        make=lambda n, z=SMALL: Scheme(rotate=definition.rotate),
    ),
    "rotary, partial": Card(
        title="Partial rotary",
        year=2021,
        idea="Rotate only the first entries of each head. The others see only content.",
        formula=(
            r"\text{pair } c \text{ rotates by } i\,\omega_c \text{ if } c < m, \text{ "
            "else not}"
        ),
        symbols=r"$m$ is the number of pairs that rotate, and $\omega_c$ is the frequency of pair $c$.",
        cites=("wang2021gptj", "black2022gptneox"),
        function="rotate",
        shows="fine and even stripes along the diagonal, without the slow pairs",
        models=(
            "GPT-J",
            "Pythia",
            "Phi-2",
            "Stable LM 2",
            "GLM-4",
            "Qwen3-Next",
            "DeepSeek-V3 (the last entries of a head)",
        ),
        page="build/conventions",
        make=lambda n, z=SMALL: definition.rotation(plain(z.head_dim // 2)),
    ),
}

LAYOUTS = "biderman2021rotary, the two layouts"
CASES = {
    "rotary": Cases(rotated, rotary, "su2024roformer, section 3.2.2", name="rotate"),
    "inverse_rotation": Cases(
        turned_back,
        inverse_rotation,
        "su2024roformer, section 3.2.2",
        name="rotate at -positions",
    ),
    "rotary_scores": Cases(
        scores,
        rotary_scores,
        "su2024roformer, section 3.2.2",
        name="rotate(query, ...) @ rotate(key, ...).mT",
    ),
    "to_half": Cases(definition.to_half, to_half, LAYOUTS),
    "to_interleaved": Cases(definition.to_interleaved, to_interleaved, LAYOUTS),
    "weight_to_half": Cases(definition.weight_to_half, weight_to_half, LAYOUTS),
    "weight_to_interleaved": Cases(
        definition.weight_to_interleaved, weight_to_interleaved, LAYOUTS
    ),
}
