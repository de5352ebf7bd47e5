"""Vectors made from a model's configuration: the attention of one layer, between its projections."""

from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from posattn.configs.reading import chosen
from posattn.conformance.computation import attend, counted, learned, scheme_of, seen
from posattn.conformance.faults.registry import Fault
from posattn.conformance.generate import TOLERANCE
from posattn.conformance.misreadings import misreadings
from posattn.conformance.neighbors import other_norms
from posattn.conformance.rank import of_rank
from posattn.conformance.report import as_list
from posattn.conformance.slips import slips
from posattn.conformance.vectors import UsageError, names
from posattn.reference import mrope_positions

__all__ = ["planned"]

CALLED = ("query", "key", "value", "query_positions", "key_positions")
PER_EXAMPLE = "positions per example"
ALONE = (
    "Check the function that rotates on its own: --scheme rotary knows more of its faults"
)
AT_REST = (
    "A query at position 0 that sees keys at 0 only is wrong, too, where nothing rotates: look at the scale, "
    "the softmax and the order of heads before the rotation."
)
LATER = (
    "Prompts pass, so queries and keys are rotated right if they come in one call. What fails comes later or "
    "has positions of its own in each text: look at the mask, and at the positions of later calls."
)
FAR_BELOW = "scores far below zero"
# the schemes of scalings that a configuration calls otherwise
SCALINGS = {"linear": "position_interpolation", "dynamic": "dynamic_ntk"}


def planned(config, layer=0, *, length=None, rank=None):
    """Make the vectors of one layer of a model.

    The function that they check is called `attention(query, key, value, query_positions, key_positions)`,
    with a keyword for what the layer has learned besides: `sinks` `(h)`, `table` `(buckets, h)` of T5's bias,
    `query_norm` and `key_norm` `(d)` where norms follow the rotation.
    It is what stands between the projections, with other norms of queries and keys before it: queries `(b,
    h, n_q, d)`, keys and values `(b, h_kv, n_k, d)`, not rotated yet, and positions `(n)` or `(b, n)`.
    It rotates queries and keys, scales, caps and masks the scores as the configuration says, and returns
    `(b, h, n_q, d)`.
    In latent attention (MLA) a key is `[content, rotary part]`, made from the latent vector already.
    With M-RoPE, texts with pictures come with the keyword `coordinates`, `(n_k, 3)`, time, row and column of
    keys, the last of which are the queries; in other cases all three are the position. An indexer is checked
    on so few keys that it chooses all. A query that may attend to nothing does not occur.

    Args:
        config: what `posattn.configs.plan` reads, or a plan.
        layer: the number of the layer, from 0 on.
        length: for how long a text, which matters to methods such as LongRoPE.
        rank: `(number, how many)` for the heads of one of several ranks that share the layer, as in tensor
            parallelism; None for all heads.

    Returns:
        A dict as `load` returns it. A report on it names what was read wrongly.

    Raises:
        UsageError: if the configuration is not clear, there is no such layer, ranks cannot share its heads,
            or it is no attention by positions: DeBERTa's and Inkling's biases need their layer's weights, and
            DeepSeek V4 has compressed keys.

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
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(str(error)) from None
    refuse(described)
    parameters = [
        {"name": p, "data": "positions" not in p, "keyword": False} for p in CALLED
    ]
    parameters += [{"name": p, "data": True, "keyword": True} for p in learned(described)]
    if described.rope is not None and len(described.rope.sections) == 3:
        parameters.append(
            {"name": "coordinates", "data": False, "keyword": True, "default": None}
        )
    norm = described.query_norm
    norms = other_norms(described) if norm is not None and norm.after else ()
    misread = (
        (*what, partial(attend, other))
        for *what, other in chain(misreadings(described, plan), norms)
    )
    vectors = {
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
    return vectors if rank is None else of_rank(vectors, described, rank)


def refuse(layer):
    """Refuse a layer that computes between its projections what no function of positions does."""
    most = max(keys.shape[-1] for _, _, keys, *_ in cases(layer))
    found = {
        "bias": None if scheme_of(layer.bias) else layer.bias,
        "compressed": layer.compressed,
        "turns_back": layer.turns_back or None,
        "selected": layer.selected if (layer.selected or most) < most else None,
    }
    for name, value in found.items():
        if value is not None:
            raise UsageError(
                f"layer {layer.index} has {name} = {value!r}, which is not checked: "
                "check its rotation or its mask alone, by --scheme"
            )


def where_to_look(layer, runs):
    """What to try where nothing explains the failures: by the cases in which they are."""
    failed = [run for run in runs if run.failed]
    if layer.rope is None or not all(run.comparable for run in failed):
        return ""
    if not any(only_rotates(layer, run.case) for run in failed):
        return LATER
    if any(wrong_at_rest(layer, run) for run in failed):
        return AT_REST
    scheme = SCALINGS.get(layer.rope.method, layer.rope.method)
    more = f", and --scheme {scheme} those of the frequencies" if scheme in names() else ""
    return f"{ALONE}{more}."


def only_rotates(layer, case):
    """Whether all that a case has of positions is the rotation, and causality in one call."""
    queries, keys = case["arguments"][3:]
    plain = replace(layer, window=None, chunk=None)
    rows = counted(*case["arguments"][:2])
    return np.array_equal(seen(layer, queries, keys), seen(plain, *rows))


def wrong_at_rest(layer, run):
    """Whether a query at position 0 is wrong that sees keys at 0 only: nothing rotates there."""
    if not layer.causal or run.case["name"] != PER_EXAMPLE:
        return False
    got, want = (x[1, :, 0] for x in (as_list(run.got)[0], run.case["expected"]))
    return not np.allclose(got, want, rtol=0, atol=10 * run.tolerance)


def named(name, sentence, attention):
    """What a layer computes where something is wrong, as a known fault."""
    made = partial(attention)
    made.__name__, made.__doc__ = name, sentence
    return Fault(made, (), "")


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
        PER_EXAMPLE,
        np.array([[3, 4], [0, 1]]),
        np.array([[0, 1, 2, 3, 4], [0, 0, 0, 0, 1]]),
    )
    yield "far positions", np.unique(far), np.unique(far)
    if layer.window or layer.chunk:
        for at in sorted({size - 1, size, size + 1, 3 * size}):
            yield f"decoding: one token at position {at}", *cached(size, at)
        yield "decoding: three tokens", *cached(size, *(3 * size + np.arange(3)))
    if layer.rope is not None and len(layer.rope.sections) == 3:
        parts = [2, (1, 2, 3), 1, (2, 3, 2), 2]
        coordinates = {"coordinates": mrope_positions(parts)[0]}
        at = np.arange(len(coordinates["coordinates"]))
        yield "two pictures in a text", at, at, coordinates
        yield "decoding: two tokens after pictures", at[-2:], at, coordinates
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


def finished(layer, name, query_positions, key_positions, more=None):
    """A case with what is expected."""
    rng = np.random.default_rng(len(name))

    def draw(*shape):
        return np.clip(np.round(16 * rng.normal(size=shape)) / 16, -7, 7)

    n_q, n_k, latent = query_positions.shape[-1], key_positions.shape[-1], layer.latent
    width = layer.value_dim if latent is None else latent.value_dim
    given = [
        draw(2, layer.num_heads, n_q, layer.head_dim),
        draw(2, layer.num_kv_heads, n_k, layer.head_dim),
        draw(2, layer.num_kv_heads, n_k, width or layer.head_dim),
        query_positions,
        key_positions,
    ]
    if latent is not None:  # all heads share the part that rotates
        given[1][..., latent.content_dim :] = given[1][:, :1, :, latent.content_dim :]
    tolerance = {**TOLERANCE}
    if name == FAR_BELOW:
        size = np.round(316 / abs(layer.scale * layer.head_dim) ** 0.5)
        signs = size * np.sign(given[0][:, :1, :1] + 1 / 32)
        given[:2] = signs + 0 * given[0], -signs + 0 * given[1]
        tolerance = {dtype: TOLERANCE[dtype] for dtype in ("float64", "float32")}
    keywords = {name: draw(*shape) for name, shape in learned(layer).items()} | (more or {})
    far = 0.0 if layer.rope is None else 2.0**-20 * float(np.max(key_positions))
    return {
        "name": name,
        "arguments": given,
        "keywords": keywords,
        "expected": attend(layer, *given, **keywords),
        "tolerance": {dtype: bound + far for dtype, bound in tolerance.items()},
    }
