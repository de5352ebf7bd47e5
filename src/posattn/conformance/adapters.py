"""Functions of other shapes, as the checker calls them.

Many code bases rotate by `apply_rotary_pos_emb(q, k, cos, sin)`, by an object that takes the positions
first, or by a layer that wants four axes; they mask by a function of indices.
Each adapter takes such a function and returns one that `check` can call.
"""

import functools
import importlib
import inspect
import math

import numpy as np

from posattn.conformance import frameworks
from posattn.conformance.calls import name_of, signature_of
from posattn.conformance.vectors import UsageError

__all__ = [
    "attention_of_heads",
    "bias_of_score_mod",
    "mask_of_mask_mod",
    "rotation_by_tables",
    "rotation_of_cos_and_sin",
    "rotation_of_heads",
    "rotation_of_tokens",
]


def rotation_of_heads(rope, *, head_axis=1):
    """Make a rotation of `rope(x, positions)`, which wants its arguments in one shape.

    That is how operators, layers and modules are called: `RotaryEmbedding` of ONNX and of KerasHub, and
    most modules of Flax.
    Check it with the scheme `"rotary"`, and with `settings={"layout": "half"}` where halves are paired.

    Args:
        rope: takes `(b, h, n, d)` and positions of shape `(b, n)`, and returns what is rotated; keywords
            that it has beside these, such as `base`, stay.
        head_axis: where `rope` has the heads: 1, or 2 for `(b, n, h, d)`, or None for `(b * h, n, d)`
            and positions of shape `(b * h, n)`.

    Returns:
        `rotate(x, positions)`, with the other keywords of `rope`.

    Raises:
        UsageError: if `head_axis` is another.

    Examples:
        >>> from posattn.conformance import check
        >>> from posattn import reference
        >>> def rope(x, positions, base=10000.0):
        ...     return reference.rotate(x, positions[:, None], base=base)
        >>> check(rotation_of_heads(rope), "rotary", framework="numpy").failures
        []
    """
    one_of(head_axis, 1, 2, None)

    def rotate(x, positions, **options):
        """Rotate each head of each example."""
        *lead, tokens, _ = x.shape
        where = home(x).broadcast_to(positions, (*lead, tokens))
        if head_axis is None:
            where = home(x).reshape(where, (math.prod(lead), tokens))
        elif len(lead) > 1:  # heads share them
            where = where[:, 0]
        rotated = rope(in_heads(x, head_axis), where, **options)
        return home(x).reshape(in_order(rotated, head_axis), x.shape)

    return named(rotate, rope, keywords(rope, after=2))


def rotation_by_tables(apply, tables, *, key=False, head_axis=1):
    """Make a rotation of `apply(q, k, cos, sin)` and the function that makes its tables.

    Check it with the scheme `"rotary"`, and with `settings={"layout": "half"}` where halves are paired.

    Args:
        apply: takes queries, keys, cosines and sines, and returns queries and keys.
        tables: `tables(positions, dim)`, with a keyword `base` if it can have another; it is given
            positions of shape `(b, n)`, and returns cosines and sines.
        key: look at what comes back for the key, and not for the query.
        head_axis: where `apply` has the heads: 1 for `(b, h, n, d)`, 2 for `(b, n, h, d)`, or None for
            `(b * h, n, d)` and positions of shape `(b * h, n)`.

    Returns:
        `rotate(x, positions)`, with a keyword `base` if `tables` has it.

    Raises:
        UsageError: if `head_axis` is another.

    Examples:
        >>> from posattn.conformance import check
        >>> def tables(positions, dim, base=10000.0):
        ...     angles = positions[..., None] * base ** (-np.arange(0, dim, 2) / dim)
        ...     angles = np.concatenate([angles, angles], -1)
        ...     return np.cos(angles), np.sin(angles)
        >>> def rotate_half(x):
        ...     a, b = np.split(x, 2, -1)
        ...     return np.concatenate([-b, a], -1)
        >>> def apply(q, k, cos, sin):
        ...     cos, sin = cos[:, None], sin[:, None]
        ...     return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        >>> rope = rotation_by_tables(apply, tables)
        >>> check(rope, "rotary", framework="numpy", settings={"layout": "half"}).failures
        []
    """

    def rope(x, positions, **base):
        """Rotate by the tables of the positions."""
        cos, sin = tables(positions, x.shape[-1], **base)
        return apply(*query_and_key(x, key), cos, sin)[1 if key else 0]

    rope = named(rope, apply, keywords(tables, after=2))
    return rotation_of_heads(rope, head_axis=head_axis)


def rotation_of_cos_and_sin(tables):
    """Make a rotation of tables alone, where nothing of yours rotates by them.

    Check it with the scheme `"rotary"`.
    Tables with a column for each pair fit both layouts; those with a column for each entry are made for
    one, so choose it with `settings`.

    Args:
        tables: `tables(positions, dim)`, with a keyword `base` if it can have another; it is given
            positions of shape `(b, n)`, and returns cosines and sines of shape `(b, n, d / 2)` or
            `(b, n, d)`.

    Returns:
        `rotate(x, positions, layout="interleaved")`, with a keyword `base` if `tables` has it.

    Examples:
        >>> from posattn.conformance import check
        >>> def tables(positions, dim, base=10000.0):
        ...     angles = positions[..., None] * base ** (-np.arange(0, dim, 2) / dim)
        ...     return np.cos(angles), np.sin(angles)
        >>> check(rotation_of_cos_and_sin(tables), "rotary", framework="numpy").failures
        []
    """

    def rope(x, positions, *, layout="interleaved", **base):
        """Rotate each pair by the columns of its two entries."""
        half = x.shape[-1] // 2
        cuts, axis = [slice(half), slice(half, None)], -2
        if layout == "interleaved":
            cuts, axis = [slice(0, None, 2), slice(1, None, 2)], -1
        a, b = (x[..., cut] for cut in cuts)
        both = tables(positions, x.shape[-1], **base)
        (cos_a, cos_b), (sin_a, sin_b) = (
            [table[:, None][..., cut] for cut in cuts]
            if table.shape[-1] == x.shape[-1]
            else [table[:, None]] * 2
            for table in both
        )
        rotated = home(x).stack([a * cos_a - b * sin_a, b * cos_b + a * sin_b], axis)
        return home(x).asarray(home(x).reshape(rotated, x.shape), dtype=x.dtype)

    layout = inspect.signature(rope).parameters["layout"]
    rope = named(rope, tables, [layout, *keywords(tables, after=2)])
    return rotation_of_heads(rope)


def rotation_of_tokens(rope, *, key=False):
    """Make a rotation of `rope(positions, query, key)`, which has all tokens of a batch in one row.

    That is how vLLM and SGLang call theirs: positions `(tokens)`, queries and keys `(tokens, h * d)`.
    Check it with the scheme `"rotary"`; an object has one base and one width, so choose them with
    `settings` and `only`.

    Args:
        rope: takes positions, queries and keys, and returns queries and keys.
        key: look at what comes back for the key, and not for the query.

    Returns:
        `rotate(x, positions)`.

    Examples:
        >>> from posattn.conformance import check
        >>> from posattn import reference
        >>> def rope(positions, query, key):
        ...     return [reference.rotate(x[:, None], positions[:, None])[:, 0] for x in (query, key)]
        >>> check(rotation_of_tokens(rope), "rotary", framework="numpy").failures
        []
    """

    def rotate(x, positions):
        """Rotate all tokens of all examples."""
        tokens = math.prod(x.shape[:-1])
        where = home(x).broadcast_to(positions, x.shape[:-1])
        rows = home(x).reshape(x, (tokens, x.shape[-1]))
        both = query_and_key(rows, key)
        rotated = rope(home(x).reshape(where, (tokens,)), *both)[1 if key else 0]
        return home(x).reshape(rotated, x.shape)

    return named(rotate, rope)


def query_and_key(x, key):
    """The query and the key: one is `x`, and the other its negative, so that neither passes for both."""
    return (-x, x) if key else (x, -x)


def attention_of_heads(attend, *, head_axis=1):
    """Make an attention of `attend(query, key, value)`, which wants its arguments in one shape.

    That is how `Attention` of ONNX is called, and `dot_product_attention` of JAX, Flax and Keras.
    Check it with the scheme `"attention"`.

    Args:
        attend: takes queries, keys and values of shape `(b, h, n, d)`; `mask` of shape `(b, 1, n_q, n_k)`,
            in one case `(b, 1, 1, n_k)`, is always given if it has one, and `bias` of the first shape if
            there is one; other keywords, such as `scale`, stay.
        head_axis: where `attend` has the heads: 1, or 2 for `(b, n, h, d)`.

    Returns:
        `attention(query, key, value)`, with the other keywords of `attend`.

    Raises:
        UsageError: if `head_axis` is another.

    Examples:
        >>> from posattn.conformance import check
        >>> from posattn.reference import scaled_dot_product_attention
        >>> def attend(query, key, value, mask):
        ...     return scaled_dot_product_attention(query, key, value, mask=mask)
        >>> check(attention_of_heads(attend), "attention", framework="numpy").failures
        []
    """
    one_of(head_axis, 1, 2)
    taken = keywords(attend, after=3)

    def attention(query, key, value, **options):
        """Attend in each head of each example."""
        shape = (query.shape[0], query.shape[-2], key.shape[-2])
        if any(each.name == "mask" for each in taken) and options.get("mask") is None:
            options["mask"] = like(query, np.ones(1, bool))
        for name in {"mask", "bias"} & {*options}:
            if options[name] is not None and len(options[name].shape) < 4:
                options[name] = home(query).broadcast_to(options[name], shape)[:, None]
        heads = [in_heads(x, head_axis) for x in (query, key, value)]
        out = in_order(attend(*heads, **options), head_axis)
        return home(query).reshape(out, (*query.shape[:-1], value.shape[-1]))

    optional = [
        each.replace(default=None) if each.name == "mask" else each for each in taken
    ]
    return named(attention, attend, optional)


def mask_of_mask_mod(mask_mod):
    """Make a mask of `mask_mod(b, h, q_idx, kv_idx)`, as FlexAttention takes it.

    Args:
        mask_mod: takes indices of example, head, query and key, and returns True where the query may
            attend; the indices are arrays that broadcast.

    Returns:
        `mask(query_positions, key_positions)`, which returns `(*batch, n_q, n_k)`.

    Examples:
        >>> causal = mask_of_mask_mod(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx)
        >>> causal(np.arange(2, 4), np.arange(4)).astype(int)
        array([[1, 1, 1, 0],
               [1, 1, 1, 1]])
    """

    def mask(query_positions, key_positions):
        """Which query may attend to which key."""
        query, key = query_positions[..., :, None], key_positions[..., None, :]
        zero = 0 * query
        seen = mask_mod(zero, zero, query, key)
        return home(query).broadcast_to(seen, (zero + key).shape)

    return named(mask, mask_mod)


def bias_of_score_mod(score_mod, num_heads):
    """Make a bias of `score_mod(score, b, h, q_idx, kv_idx)`, as FlexAttention takes it.

    Args:
        score_mod: takes a score and the indices of example, head, query and key, and returns the score
            with what it adds.
        num_heads: the number of heads.

    Returns:
        `bias(query_positions, key_positions)`, which returns `(*batch, h, n_q, n_k)`: what is added to a
        score of 0.

    Examples:
        >>> nearer = bias_of_score_mod(lambda score, b, h, q, k: score + (h + 1) * (k - q), 2)
        >>> nearer(np.array([2]), np.arange(3))
        array([[[-2., -1.,  0.]],
        <BLANKLINE>
               [[-4., -2.,  0.]]])
    """

    def bias(query_positions, key_positions):
        """What is added to each score."""
        query = query_positions[..., None, :, None]
        key = key_positions[..., None, None, :]
        head = like(query, np.arange(num_heads)[:, None, None])
        score = like(query, np.zeros(1)) * (0 * (query + key))
        return score_mod(score + 0 * head, 0 * query, head, query, key)

    return named(bias, score_mod)


def one_of(head_axis, *axes):
    """Refuse an axis of heads that an adapter has no meaning for."""
    if head_axis not in axes or isinstance(head_axis, bool):
        raise UsageError(f"head_axis must be one of {axes}, got {head_axis!r}")


def in_heads(x, head_axis):
    """An array `(b, n, d)` or `(b, h, n, d)` with its heads on that axis, or among the examples."""
    *lead, tokens, dim = x.shape
    if head_axis is None:
        return home(x).reshape(x, (math.prod(lead), tokens, dim))
    heads = home(x).reshape(x, (lead[0], math.prod(lead[1:]), tokens, dim))
    return in_order(heads, head_axis)


def in_order(x, head_axis):
    """An array with heads and tokens exchanged, if the heads are on axis 2."""
    return home(x).einsum("bhnd->bnhd", x) if head_axis == 2 else x


def keywords(function, *, after):
    """The parameters of a function after the first ones, as keywords."""
    others = [*signature_of(function).parameters.values()][after:]
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    kind = inspect.Parameter.KEYWORD_ONLY
    return [each.replace(kind=kind) for each in others if each.kind in named]


def named(made, source, keywords=()):
    """Give an adapted function the name, text and module of its source, and these keywords for its `**`."""
    functools.update_wrapper(made, source, updated=())
    made.__name__ = name_of(source)
    plain = [
        each
        for each in inspect.signature(made, follow_wrapped=False).parameters.values()
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    made.__signature__ = inspect.Signature([*plain, *keywords])
    return made


def framework_of(x):
    """The name of the framework that an array belongs to."""
    name = type(x).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def home(x):
    """The module with the functions of an array's framework."""
    module, _ = frameworks.MAKERS[framework_of(x)]
    return importlib.import_module(module)


def like(x, values):
    """Values as an array of the framework of `x`."""
    return frameworks.make(framework_of(x), values)
