"""What a layer computes between its projections, by the reference; and with a part of it replaced."""

from functools import partial

import numpy as np

from posattn import reference
from posattn.configs import Buckets, Slopes
from posattn.conformance.generate import SCHEMES

__all__ = ["attend", "counted", "learned", "scheme_of", "seen"]


def scheme_of(bias):
    """The scheme whose bias a layer adds to its scores."""
    return {Slopes: "alibi", Buckets: "t5"}.get(type(bias))


def learned(layer):
    """The shapes of what a layer has learned that is no projection, by name."""
    shapes = {"sinks": (layer.num_heads,)} if layer.sinks else {}
    if isinstance(layer.bias, Buckets):
        shapes["table"] = layer.bias.count, layer.num_heads
    for name in ("query_norm", "key_norm"):
        norm = getattr(layer, name)
        if norm is not None and norm.after and norm.learned:
            shapes[name] = (layer.head_dim,)
    return shapes


def attend(
    layer, query, key, value, query_positions, key_positions, *, mask=None, biased=None, coordinates=None,
    attention=reference.scaled_dot_product_attention, **learned,
):  # fmt: skip
    """What a plan says of a layer; `mask`, `biased` and `attention` take the place of what is right.

    `coordinates`, `(n_k, axes)`, are what it rotates by instead of positions.
    """
    where = [x if x.ndim == 1 else x[:, None] for x in (query_positions, key_positions)]
    at = where if coordinates is None else [coordinates[-query.shape[-2] :], coordinates]
    query = prepared(layer, query, at[0], layer.query_norm, learned.get("query_norm"))
    key = prepared(layer, key, at[1], layer.key_norm, learned.get("key_norm"))
    if layer.temperature is not None:
        query = query * growth(layer.temperature, where[0])[..., None]
    more = {"mask": seen(layer, *where) if mask is None else mask, "scale": layer.scale}
    if layer.bias is not None:
        biased = biased or SCHEMES[scheme_of(layer.bias)].function
        more["bias"] = added(layer, biased, learned.get("table"))(
            query_positions, key_positions
        )
    if layer.soft_cap is not None:
        more["soft_cap"] = layer.soft_cap
    if layer.sinks:
        more["sinks"] = learned["sinks"]
    else:  # which faults with sinks do without
        group = query.shape[1] // key.shape[1]
        key, value = (np.repeat(x, group, axis=1) for x in (key, value))
    return attention(query, key, value, **more)


def prepared(layer, x, positions, norm, weight):
    """Queries or keys rotated, with a norm that has a weight here or follows; the last entries, if latent."""

    def normed(x):
        x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + norm.eps)
        return x if weight is None else x * (weight + norm.plus_one)

    if norm is not None and weight is not None and not norm.after:  # misread
        x = normed(x)
    if layer.rope is not None:
        options = {
            "layout": layer.rope.layout,
            "attention_factor": layer.rope.attention_factor,
        }
        if positions.ndim == 2:  # on axes
            rotary = reference.RotaryAxes(layer.rope.axis_frequencies, **options)
        else:
            rotary = reference.Rotary(frequencies=layer.rope.frequencies, **options)
        first = 0 if layer.latent is None else layer.latent.content_dim
        turned = rotary(x[..., first:], positions)
        x = np.concatenate([x[..., :first], turned], axis=-1)
    return normed(x) if norm is not None and norm.after else x


def added(layer, biased, table):
    """The bias of a layer, a function of positions: that of its scheme, with the layer's numbers."""
    bias = layer.bias
    if isinstance(bias, Slopes):
        times = bias.values[0] / reference.alibi_slopes(layer.num_heads)[0]
        return lambda *where: times * biased(*where, num_heads=layer.num_heads)
    sizes = {"max_distance": bias.max_distance, "bidirectional": bias.bidirectional}
    return partial(biased, table=table, **sizes)


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


def counted(query, key, *_, at_the_end=False):
    """Where queries and keys stand if the rows of a call are counted."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    return np.arange(n_q) + at_the_end * (n_k - n_q), np.arange(n_k)
