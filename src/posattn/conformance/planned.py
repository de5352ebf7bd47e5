"""Vectors made from a model's configuration: the attention of one layer, between its projections."""

import inspect

import numpy as np

from posattn import reference
from posattn.configs import Slopes
from posattn.configs.reading import as_heads, chosen
from posattn.conformance.faults.registry import Fault
from posattn.conformance.generate import TOLERANCE
from posattn.conformance.misread import misreadings
from posattn.conformance.vectors import UsageError

__all__ = ["attend", "planned"]

ALONE = (
    "Check the function that rotates on its own: --scheme rotary knows more of its faults."
)


def planned(config, layer=0, *, length=None):
    """Make the vectors of one layer of a model.

    The function that they check is called `attention(query, key, value, query_positions, key_positions)`,
    with the keyword `sinks` if the layer has them.
    It is what stands between the projections, with norms of queries and keys before it: queries `(b, h,
    n_q, d)`, keys and values `(b, h_kv, n_k, d)`, not turned yet, and positions `(n)` or `(b, n)`.
    It turns queries and keys, scales, caps and masks the scores as the configuration says, and returns
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
            f"layer {layer} must turn with one position, and turns with several"
        )
    if not (described.bias is None or isinstance(described.bias, Slopes)):
        raise UsageError(f"layer {layer} must have no learned bias, got {described.bias!r}")
    keyword = [{"name": "sinks", "data": True, "keyword": True}] * described.sinks
    positional = [
        p for p in inspect.signature(attend).parameters if p not in ("layer", "sinks")
    ]
    return {
        "version": 1,
        "scheme": f"layer {described.index} of {plan.model_type}",
        "function": "attention",
        "what": str(described),
        "source": "the configuration",
        "parameters": [
            *[
                {"name": p, "data": "positions" not in p, "keyword": False}
                for p in positional
            ],
            *keyword,
        ],
        "relative": False,
        "cases": [finished(described, *case) for case in cases(described)],
        "faults": [misread(*mistake) for mistake in misreadings(described, plan)],
        "hint": ALONE if described.rope is not None else "",
    }


def misread(name, sentence, layer):
    """What a layer computes whose configuration was read wrongly, as a known fault."""

    def attention(*given, **sinks):
        return attend(layer, *given, **sinks)

    attention.__name__, attention.__doc__ = name, sentence
    return Fault(attention, (), "")


def attend(layer, query, key, value, query_positions, key_positions, *, sinks=None):
    """What a plan says of a layer, computed by the reference."""
    where = [x if x.ndim == 1 else x[:, None] for x in (query_positions, key_positions)]
    if layer.temperature is not None:
        query = query * growth(layer.temperature, where[0])[..., None]
    if layer.rope is not None:
        turn = reference.Rotary(
            layout=layer.rope.layout,
            frequencies=layer.rope.frequencies,
            attention_factor=layer.rope.attention_factor,
        )
        query, key = turn(query, where[0]), turn(key, where[1])
    apart = where[0][..., :, None] - where[1][..., None, :]
    mask = apart >= 0 if layer.causal else np.ones(apart.shape, bool)
    if layer.window is not None:
        mask = mask & (np.abs(apart) < layer.window)
    if layer.chunk is not None:
        mask = mask & (
            where[0][..., :, None] // layer.chunk == where[1][..., None, :] // layer.chunk
        )
    bias = None
    if layer.bias is not None:
        slopes = np.array(layer.bias.values)[:, None, None]
        bias = -slopes * np.abs(apart if apart.ndim > 2 else apart[None])
    return reference.scaled_dot_product_attention(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=layer.scale,
        sinks=sinks if layer.sinks else None,
        soft_cap=layer.soft_cap,
    )


def growth(temperature, positions):
    """The factor of queries by their positions."""
    share = (positions + 1) / temperature.floor
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
        "left padding: positions per example",
        np.array([[3, 4], [0, 1]]),
        np.array([[0, 1, 2, 3, 4], [0, 0, 0, 0, 1]]),
    )
    yield "far positions", np.unique(far), np.unique(far)


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
    sinks = np.clip(np.round(16 * rng.normal(size=layer.num_heads)) / 16, -7, 7)
    keywords = {"sinks": sinks} if layer.sinks else {}
    far = 2.0**-20 * float(np.max(key_positions))
    return {
        "name": name,
        "arguments": given,
        "keywords": keywords,
        "expected": attend(layer, *given, **keywords),
        "tolerance": {dtype: bound + far for dtype, bound in TOLERANCE.items()},
    }
