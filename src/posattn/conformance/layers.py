"""Vectors made from a model's configuration: the attention of one layer, between its projections."""

from dataclasses import replace
from functools import partial

import numpy as np

from posattn import reference
from posattn.configs import Slopes
from posattn.configs.reading import as_heads, chosen
from posattn.conformance.faults import FAULTS
from posattn.conformance.faults.bias import RANKS, SLOPES_OF_A_RANK
from posattn.conformance.faults.registry import Fault
from posattn.conformance.generate import TOLERANCE
from posattn.conformance.misreadings import misreadings, rotation
from posattn.conformance.vectors import UsageError, names

__all__ = ["attend", "planned"]

CALLED = ("query", "key", "value", "query_positions", "key_positions")
ONE_CALL = ("a prompt", "positions that do not begin at 0", "far positions")
ALONE = (
    "Check the function that rotates on its own: --scheme rotary knows more of its faults"
)
LATER = (
    "Prompts pass, so queries and keys are rotated right if they come in one call. What fails comes later or "
    "has positions of its own in each text: look at the mask, and at the positions of later calls."
)
FAR_BELOW = "scores far below zero"
# the schemes of scalings that a configuration calls otherwise
SCALINGS = {"linear": "position_interpolation", "dynamic": "dynamic_ntk"}


def planned(config, layer=0, *, length=None):
    """Make the vectors of one layer of a model.

    The function that they check is called `attention(query, key, value, query_positions, key_positions)`,
    with the keyword `sinks` if the layer has them.
    It is what stands between the projections, with norms of queries and keys before it: queries `(b, h,
    n_q, d)`, keys and values `(b, h_kv, n_k, d)`, not rotated yet, and positions `(n)` or `(b, n)`.
    It rotates queries and keys, scales, caps and masks the scores as the configuration says, and returns
    `(b, h, n_q, d)`.
    A query that may attend to nothing does not occur.

    Args:
        config: what `posattn.configs.plan` reads, or a plan.
        layer: the number of the layer, from 0 on.
        length: for how long a text, which matters to methods such as LongRoPE.

    Returns:
        A dict as `load` returns it. A report on it names what was read wrongly.

    Raises:
        UsageError: if the configuration is not clear, there is no such layer, or it is no plain attention.

    Examples:
        >>> from posattn.conformance import check
        >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
        ...     "num_hidden_layers": 1, "rope_theta": 500000.0}
        >>> vectors = planned(config)
        >>> def attention(query, key, value, query_positions, key_positions):
        ...     ...
        >>> [case["name"] for case in vectors["cases"]][:2]
        ['a prompt', 'decoding: one token']
    """
    try:
        plan, described = chosen(config, layer, length=length)
        as_heads(described)
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(str(error)) from None
    if described.rope is not None and described.rope.sections:
        raise UsageError(
            f"layer {layer} must rotate with one position, and rotates with several"
        )
    if not (described.bias is None or isinstance(described.bias, Slopes)):
        raise UsageError(f"layer {layer} must have no learned bias, got {described.bias!r}")
    parameters = [
        {"name": p, "data": "positions" not in p, "keyword": False} for p in CALLED
    ]
    parameters += [{"name": "sinks", "data": True, "keyword": True}] * described.sinks
    misread = (
        (*what, partial(attend, other)) for *what, other in misreadings(described, plan)
    )
    return {
        "version": 1,
        "scheme": f"layer {described.index} of {plan.model_type}",
        "function": "attention",
        "what": str(described),
        "source": "the configuration",
        "parameters": parameters,
        "relative": False,
        "cases": [finished(described, *case) for case in cases(described)],
        "faults": [named(*known) for known in (*misread, *slips(described))],
        "hint": partial(where_to_look, described),
    }


def where_to_look(layer, runs):
    """What to try where nothing explains the failures: by the cases in which they are."""
    failed = [run for run in runs if run.failed]
    if layer.rope is None or not all(run.comparable for run in failed):
        return ""
    only = ONE_CALL[:2] if layer.window or layer.chunk else ONE_CALL  # not masked
    if not {run.case["name"] for run in failed}.intersection(only):
        return LATER
    scheme = SCALINGS.get(layer.rope.method, layer.rope.method)
    more = f", and --scheme {scheme} those of the frequencies" if scheme in names() else ""
    return f"{ALONE}{more}."


def named(name, sentence, attention):
    """What a layer computes where something is wrong, as a known fault."""
    made = partial(attention)
    made.__name__, made.__doc__ = name, sentence
    return Fault(made, (), "")


def slips(layer):
    """What goes wrong in code, however well the configuration is read: names, sentences, functions."""

    def counted(query, key, *_, at_the_end=False):
        n_q, n_k = query.shape[-2], key.shape[-2]
        return np.arange(n_q) + at_the_end * (n_k - n_q), np.arange(n_k)

    def masked_by(mask):
        return lambda *given, **sinks: attend(layer, *given, **sinks, mask=mask(*given))

    def rotated_by(order):
        return lambda *given, **sinks: attend(
            layer, *given[:3], *order(*given), **sinks, mask=seen(layer, *given[3:])
        )

    def in_decoding(**changed):
        one = replace(layer, **changed)
        return lambda query, *given, **sinks: attend(
            one if query.shape[-2] == 1 else layer, query, *given, **sinks
        )

    for name in ("window", "chunk", "bias"):
        if getattr(layer, name) is not None:
            yield (
                f"{name}_not_in_decoding",
                f"The {name} is ignored where there is one query: decoding has a program of its own.",
                in_decoding(**{name: None}),
            )
    if layer.window is not None:
        yield (
            "window_one_too_large_in_decoding",
            f"The window is one too large in decoding: it holds {layer.window} with the query's own.",
            in_decoding(window=layer.window + 1),
        )
    if layer.bias is not None:
        for ranks in (r for r in RANKS if layer.num_heads % r == 0):
            slopes = reference.alibi_slopes(layer.num_heads // ranks)
            local = replace(layer, bias=Slopes(tuple(slopes) * ranks))
            yield f"slopes_of_{ranks}_ranks", SLOPES_OF_A_RANK, partial(attend, local)
    if layer.causal:
        yield (
            "mask_from_the_top_left",
            "The causal mask counts queries from 0 in each call, so it begins in the top left corner: the "
            "last query must see the last key.",
            masked_by(lambda *given: seen(layer, *counted(*given))),
        )
    yield (
        "mask_by_rows",
        "The mask counts the rows of a call, the last query at the last key: it should go by positions.",
        masked_by(lambda *given: seen(layer, *counted(*given, at_the_end=True))),
    )
    if layer.rope is not None:
        yield (
            "queries_from_0",
            "Each call rotates its queries as if the first of them stood at position 0.",
            rotated_by(lambda *given: (counted(*given)[0], given[-1])),
        )
        yield (
            "positions_from_0",
            "Each call rotates its queries and keys as if the first of them stood at position 0.",
            rotated_by(counted),
        )
        twice = {"frequencies": 2 * np.array(layer.rope.frequencies)}
        twice["attention_factor"] = layer.rope.attention_factor**2
        yield (
            "rotated_twice",
            "Queries and keys are rotated twice, as where a layer and its kernel both rotate.",
            partial(attend, rotation(layer, **twice)),
        )
    if 1 < layer.num_kv_heads < layer.num_heads:
        group = layer.num_heads // layer.num_kv_heads

        def tiled(query, key, value, *positions, **sinks):
            key, value = (np.concatenate([x] * group, axis=1) for x in (key, value))
            return attend(layer, query, key, value, *positions, **sinks)

        yield (
            "key_heads_tiled",
            "Key heads are repeated one after the other, as tile does: each belongs to neighboring query "
            "heads, as with repeat_interleave.",
            tiled,
        )
    scheme = "attention" if layer.soft_cap is None else "soft_cap"
    scheme = "sinks" if layer.sinks else scheme
    for fault in FAULTS:
        if scheme in fault.schemes:
            yield fault.name, fault.sentence, partial(attend, layer, attention=fault.make)


def attend(
    layer, query, key, value, query_positions, key_positions, *, sinks=None, mask=None,
    attention=reference.scaled_dot_product_attention,
):  # fmt: skip
    """What a plan says of a layer, by the reference or a faulty `attention`, with another mask if given."""
    where = [x if x.ndim == 1 else x[:, None] for x in (query_positions, key_positions)]
    if layer.temperature is not None:
        query = query * growth(layer.temperature, where[0])[..., None]
    if layer.rope is not None:
        rotary = reference.Rotary(
            layout=layer.rope.layout,
            frequencies=layer.rope.frequencies,
            attention_factor=layer.rope.attention_factor,
        )
        query, key = rotary(query, where[0]), rotary(key, where[1])
    apart = where[0][..., :, None] - where[1][..., None, :]
    more = {"mask": seen(layer, *where) if mask is None else mask, "scale": layer.scale}
    if layer.bias is not None:
        slopes = np.array(layer.bias.values)[:, None, None]
        more["bias"] = -slopes * np.abs(apart if apart.ndim > 2 else apart[None])
    if layer.soft_cap is not None:
        more["soft_cap"] = layer.soft_cap
    if layer.sinks:
        more["sinks"] = sinks
    else:  # which faults with sinks do without
        group = query.shape[1] // key.shape[1]
        key, value = (np.repeat(x, group, axis=1) for x in (key, value))
    return attention(query, key, value, **more)


def seen(layer, queries, keys):
    """Which key each query may attend to, by where they stand."""
    queries, keys = (x if x.ndim != 2 else x[:, None] for x in (queries, keys))
    queries, keys = queries[..., :, None], keys[..., None, :]
    apart = queries - keys
    mask = apart >= 0 if layer.causal else np.ones(apart.shape, bool)
    if layer.window is not None:
        mask = mask & (np.abs(apart) < layer.window)
    if layer.chunk is not None:
        mask = mask & (queries // layer.chunk == keys // layer.chunk)
    return mask


def growth(temperature, positions):
    """The factor of queries by their positions."""
    share = (positions + temperature.first) / temperature.floor
    steps = np.maximum(share, 1) if temperature.smooth else 1 + np.floor(share)
    return 1 + temperature.scale * np.log(steps)


def cases(layer):
    """Queries, keys, values and where they stand, near and far."""
    size = layer.window or layer.chunk or 8
    far = np.array([0, 1, 2, size - 1, size, size + 1, 4095, 8191, 100003])
    edge = np.arange(size + 2)[-6:] if size < 4096 else np.arange(size - 4, size + 2)
    first = np.arange(6)
    yield "a prompt", first, first
    yield "decoding: one token", np.array([5]), first
    yield "a part of a prompt, after what is cached", np.arange(3, 6), first
    yield "positions that do not begin at 0", first + 100, first + 100
    yield "around the end of the window or chunk", edge, np.unique([0, 1, *edge])
    yield (
        "positions per example",
        np.array([[3, 4], [0, 1]]),
        np.array([[0, 1, 2, 3, 4], [0, 0, 0, 0, 1]]),
    )
    yield "far positions", np.unique(far), np.unique(far)
    if layer.window or layer.chunk:
        for at in sorted({size - 1, size, size + 1, 3 * size}):
            yield f"decoding: one token at position {at}", *cached(size, at)
        yield "decoding: three tokens", *cached(size, *(3 * size + np.arange(3)))
    if not layer.sinks:  # a capped layer has two tokens, both at minus the cap
        few = first[: 1 if layer.soft_cap is None else 2]
        yield FAR_BELOW, few, few


def cached(size, *queries):
    """Where queries stand, and keys before them: all of them, or both ends of a large window or chunk."""
    last = queries[-1]
    if size <= 64:
        return np.array(queries), np.arange(last + 1)
    near = (np.arange(at - end - 2, at - end + 3) for at in queries for end in (0, size))
    keys = np.unique([0, 1, *np.concatenate([*near])])
    return np.array(queries), keys[(keys >= 0) & (keys <= last)]


def finished(layer, name, query_positions, key_positions):
    """A case with what is expected."""
    rng = np.random.default_rng(len(name))

    def draw(heads, n):
        shape = 2, heads, n, layer.head_dim
        return np.clip(np.round(16 * rng.normal(size=shape)) / 16, -7, 7)

    given = [
        draw(layer.num_heads, query_positions.shape[-1]),
        draw(layer.num_kv_heads, key_positions.shape[-1]),
        draw(layer.num_kv_heads, key_positions.shape[-1]),
        query_positions,
        key_positions,
    ]
    tolerance = {**TOLERANCE}
    if name == FAR_BELOW:
        size = np.round(316 / abs(layer.scale * layer.head_dim) ** 0.5)
        signs = size * np.sign(given[0][:, :1, :1] + 1 / 32)
        given[:2] = signs + 0 * given[0], -signs + 0 * given[1]
        tolerance = {dtype: TOLERANCE[dtype] for dtype in ("float64", "float32")}
    sinks = np.clip(np.round(16 * rng.normal(size=layer.num_heads)) / 16, -7, 7)
    keywords = {"sinks": sinks} if layer.sinks else {}
    far = 0.0 if layer.rope is None else 2.0**-20 * float(np.max(key_positions))
    return {
        "name": name,
        "arguments": given,
        "keywords": keywords,
        "expected": attend(layer, *given, **keywords),
        "tolerance": {dtype: bound + far for dtype, bound in tolerance.items()},
    }
