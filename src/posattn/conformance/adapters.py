"""Functions of other shapes, as the checker calls them.

Many code bases rotate by `apply_rotary_pos_emb(q, k, cos, sin)`, by an object that takes the positions
first, or mask by a function of indices.
Each adapter takes such a function and returns one that `check` can call.
"""

import importlib
import inspect
import math

import numpy as np

from posattn.conformance import frameworks

__all__ = [
    "bias_of_score_mod",
    "mask_of_mask_mod",
    "rotation_by_tables",
    "rotation_of_tokens",
]


def rotation_by_tables(apply, tables, *, key=False, head_axis=True):
    """Make a rotation of `apply(q, k, cos, sin)` and the function that makes its tables.

    Check it with the scheme `"rotary"`, and with `settings={"layout": "half"}` where halves are paired.

    Args:
        apply: takes queries, keys, cosines and sines, and returns queries and keys.
        tables: `tables(positions, dim)`, with a keyword `base` if it can have another; it is given
            positions of shape `(b, n)`, and returns cosines and sines.
        key: look at what comes back for the key, and not for the query.
        head_axis: whether `apply` takes `(b, h, n, d)`, or else `(b, n, d)`.

    Returns:
        `rotate(x, positions)`, with a keyword `base` if `tables` has it.

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

    def rotate(x, positions, **base):
        """Rotate by the tables of the positions."""
        tokens, dim = x.shape[-2:]
        given = x if x.ndim == 4 else x[:, None]
        where = positions if positions.ndim > 1 else positions[None]
        if not head_axis:  # each head is an example
            given = x.reshape((math.prod(x.shape[:-2]), tokens, dim))
            where = home(x).broadcast_to(positions, x.shape[:-1])
        where = where.reshape((math.prod(where.shape[:-1]), tokens))
        cos, sin = tables(where, dim, **base)
        turned = apply(*query_and_key(given, key), cos, sin)[1 if key else 0]
        return turned.reshape(x.shape)

    return named(rotate, apply, base="base" in inspect.signature(tables).parameters)


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
        where = home(x).broadcast_to(positions, x.shape[:-1]).reshape((tokens,))
        rows = x.reshape((tokens, x.shape[-1]))
        turned = rope(where, *query_and_key(rows, key))[1 if key else 0]
        return turned.reshape(x.shape)

    return named(rotate, rope)


def query_and_key(x, key):
    """The query and the key: one is `x`, and the other its negative, so that neither passes for both."""
    return (-x, x) if key else (x, -x)


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


def named(made, source, *, base=False):
    """Give an adapted function the name of its source, and a keyword `base` if it takes one."""
    made.__name__ = getattr(source, "__name__", type(source).__name__)
    parameters = [*inspect.signature(made).parameters.values()]
    if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        keyword = inspect.Parameter("base", inspect.Parameter.KEYWORD_ONLY, default=10000.0)
        made.__signature__ = inspect.Signature([*parameters[:-1], *[keyword] * base])
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
