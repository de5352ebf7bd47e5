"""Checks of shapes and dtypes: sequences, heads, masks and biases."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from posattn.contract.numbers import dtype, integer


@runtime_checkable
class Rotation(Protocol):
    """What rotates the queries or keys of heads by their positions."""

    def __call__(self, x: Any, positions: Any, /) -> Any:
        """Return `x`, `(*batch, h, n, d_h)`, rotated by `positions`, `(n)` or `(*batch, 1, n)`."""


@runtime_checkable
class PositionBias(Protocol):
    """What is added to the scores, as a function of positions only."""

    def __call__(self, query_positions: Any, key_positions: Any, /) -> Any:
        """Return `(*batch, h, n_q, n_k)` for positions `(*batch, n_q)` and `(*batch, n_k)`."""


@runtime_checkable
class PositionMask(Protocol):
    """Which query may attend to which key, as a function of their positions."""

    def __call__(self, query_positions: Any, key_positions: Any, /) -> Any:
        """Return bool, `(*batch, n_q, n_k)` for positions `(*batch, n_q)` and `(*batch, n_k)`."""


@runtime_checkable
class ContentBias(Protocol):
    """A bias that depends on content, and not only on positions.

    It may also have `values(weights, query_positions, key_positions)`, `(*batch, h, n_q, d_h)`, which
    is added to the output of the heads.
    Where a score depends only on its own query and key, an attribute `needs_all_keys` that is false says
    so, and long sequences are scored tile by tile; otherwise each query is given together with all keys.
    """

    def scores(self, query: Any, key: Any, query_positions: Any, key_positions: Any) -> Any:
        """What is added to the scores, `(*batch, h, n_q, n_k)`."""


@runtime_checkable
class Attention(Protocol):
    """What computes the output of the heads, called as `scaled_dot_product_attention` is."""

    def __call__(self, query: Any, key: Any, value: Any, /, **options: Any) -> Any:
        """Return `(*batch, h, n_q, d_v)`."""


def array(name, value):
    """Reject what has no shape and dtype: lists, numbers, None."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise TypeError(f"{name} must be an array, got {type(value).__name__}")


def floating(name, value, *, like=None, owner="query"):
    """Reject arrays that do not hold floating-point numbers, or hold others than `like` does."""
    array(name, value)
    kind = str(value.dtype)
    if "float" not in kind and "complex" not in kind:
        raise TypeError(f"{name} must have a floating dtype, got {dtype(value)}")
    if like is not None and kind != str(like.dtype) and dtype(value) != dtype(like):
        raise TypeError(
            f"{name} must have the dtype of {owner}, {dtype(like)}, got {dtype(value)}"
        )


def _shape(name, value, expected):
    """Compare a shape with a tuple in which a string stands for any size."""
    got = tuple(value.shape)
    if len(got) != len(expected) or any(
        not isinstance(e, str) and e != g for e, g in zip(expected, got)
    ):
        wanted = ", ".join(str(e) for e in expected)
        raise ValueError(f"{name} must have shape ({wanted}), got {got}")


def sequence(name, value, dim=None):
    """Reject what is not `*batch n d`, or whose width is not `dim`."""
    floating(name, value)
    width = "d" if dim is None else dim
    got = tuple(value.shape)
    if len(got) < 2 or (dim is not None and got[-1] != dim):
        raise ValueError(f"{name} must have shape (*batch, n, {width}), got {got}")


def scores(value):
    """Reject scores that are not floating or have no query and key axes."""
    floating("scores", value)
    if len(value.shape) < 2:
        raise ValueError(
            f"scores must have shape (*batch, n_q, n_k), got {tuple(value.shape)}"
        )


def heads(num_heads, dim):
    """Return `num_heads`, which must divide `dim`."""
    num_heads = integer("num_heads", num_heads, least=1)
    if dim % num_heads:
        raise ValueError(f"num_heads must divide dim = {dim}, got {num_heads}")
    return num_heads


def head_sequence(name, value):
    """Reject what is not `*batch h n d_h`."""
    floating(name, value)
    if len(value.shape) < 3:
        raise ValueError(
            f"{name} must have shape (*batch, h, n, d_h), got {tuple(value.shape)}"
        )


def attention(query, key, value=None, *, grouped=False):
    """Reject queries, keys and values whose shapes or dtypes do not belong together.

    If `grouped`, each head of keys and values may serve several heads of queries.
    """
    sequence("query", query)
    *batch, _, width = query.shape
    if width == 0:
        raise ValueError(
            f"query must have a width of at least 1, got shape {tuple(query.shape)}"
        )
    floating("key", key, like=query)
    own = key.shape[-3] if batch and len(key.shape) == len(query.shape) else 0
    if grouped and own and batch[-1] % own == 0:
        batch = [*batch[:-1], own]
    _shape("key", key, (*batch, "n_k", width))
    if value is not None:
        floating("value", value, like=query)
        _shape("value", value, (*batch, key.shape[-2], "d_v"))


def layer_inputs(query, key, value, dim, kv_dim=None, *, mixed=False):
    """Reject what does not have the widths of a layer, or (unless `mixed`) the dtype of the queries."""
    sequence("query", query, dim)
    like = None if mixed else query
    floating("key", key, like=like)
    floating("value", value, like=like)
    *batch, _, _ = query.shape
    kv_dim = dim if kv_dim is None else kv_dim
    _shape("key", key, (*batch, "n_k", kv_dim))
    _shape("value", value, (*batch, key.shape[-2], kv_dim))


class LayerSizes(NamedTuple):
    """The numbers of heads of a layer, and the shapes `(inputs, outputs)` of its weights, a gate's last."""

    num_heads: int
    num_kv_heads: int
    weights: tuple


def layer_sizes(dim, num_heads, num_kv_heads, head_dim, kv_dim, gate=False):
    """Return the sizes of a layer; those that are not given follow from the others."""
    dim = integer("dim", dim, least=1)
    kv_dim = dim if kv_dim is None else integer("kv_dim", kv_dim, least=1)
    if head_dim is None:
        num_heads = heads(num_heads, dim)
        head_dim = dim // num_heads
    num_heads = integer("num_heads", num_heads, least=1)
    groups = kv_heads(num_kv_heads, num_heads)
    wide, narrow = (n * integer("head_dim", head_dim, least=1) for n in (num_heads, groups))
    shapes = (dim, wide), (kv_dim, narrow), (kv_dim, narrow), (wide, dim)
    return LayerSizes(num_heads, groups, shapes + (shapes[:1] if gate else ()))


def layer_weights(layer):
    """Reject a layer whose weights do not belong together."""
    wide, narrow = tuple(layer.query_weight.shape), tuple(layer.key_weight.shape)
    _shape("value_weight", layer.value_weight, narrow)
    _shape("output_weight", layer.output_weight, wide[::-1])
    if layer.gate_weight is not None:
        _shape("gate_weight", layer.gate_weight, wide)
    elif layer.gate_bias is not None:
        raise ValueError("gate_weight must be given where gate_bias is, got None")
    widths = wide[1], narrow[1], narrow[1], wide[0], wide[1]
    for role, width in zip(("query", "key", "value", "output", "gate"), widths):
        offset = getattr(layer, f"{role}_bias")
        if offset is not None:
            _shape(f"{role}_bias", offset, (width,))


def layer_mask(value, shape):
    """Reject masks that fit the scores of neither all heads nor, with an axis for them, of each."""
    if value is None or callable(value):
        return
    array("mask", value)
    *batch, _, n_q, n_k = shape
    mask(value, shape if len(value.shape) == len(shape) else (*batch, n_q, n_k))


def position_mask(value):
    """Reject a mask of a layer that is no function of positions; an array would be of one length only."""
    if not (value is None or callable(value)):
        raise TypeError(
            "mask of a layer must be a function (query_positions, key_positions) such as Window, "
            f"got {type(value).__name__}"
        )


def kv_heads(num_kv_heads, num_heads):
    """Return the number of heads of keys and values, which divides that of queries; all if not given."""
    if num_kv_heads is None:
        return num_heads
    num_kv_heads = integer("num_kv_heads", num_kv_heads, least=1)
    if num_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide num_heads = {num_heads}, got {num_kv_heads}"
        )
    return num_kv_heads


def _broadcasts(name, value, expected):
    """Accept axes of size 1, but never on the last axis, and no axes that `expected` lacks."""
    got = tuple(value.shape)
    fits = 2 <= len(got) <= len(expected) and got[-1] == expected[-1]
    if not (fits and all(g == 1 or g == e for g, e in zip(got[::-1], expected[::-1]))):
        raise ValueError(
            f"{name} must have a shape that broadcasts to {tuple(expected)}, got {got}"
        )


def mask(value, expected):
    """Reject masks that are not bool or do not fit scores of shape `expected`."""
    if value is None:
        return
    array("mask", value)
    if "bool" not in str(value.dtype):
        raise TypeError(f"mask must be bool (True means may attend), got {dtype(value)}")
    _broadcasts("mask", value, expected)


def bias(value, expected):
    """Reject biases that are not floating or do not fit scores of shape `expected`."""
    if value is None:
        return
    floating("bias", value)
    _broadcasts("bias", value, expected)


def sinks(value, query):
    """Reject sinks that are not floating or are not one number for each head of the queries."""
    if value is None:
        return
    floating("sinks", value)
    _shape("sinks", value, tuple(query.shape[-3:-2]))


def integer_array(name, value):
    """Reject what is no array of integers."""
    array(name, value)
    if "int" not in dtype(value):
        raise TypeError(f"{name} must have an integer dtype, got {dtype(value)}")


def parameter(name, value, expected):
    """Reject a parameter whose shape is not `expected`, in which a string stands for any size."""
    floating(name, value)
    _shape(name, value, expected)


def square(name, value):
    """Reject what is not `*batch n n`."""
    floating(name, value)
    got = tuple(value.shape)
    if len(got) < 2 or got[-1] != got[-2]:
        raise ValueError(f"{name} must have shape (*batch, n, n), got {got}")


def pattern(value, *, least=1):
    """Return how many tokens attend to each other in `weights`, at least `least`."""
    floating("weights", value)
    got = tuple(value.shape)
    if len(got) < 3 or got[-1] != got[-2]:
        raise ValueError(f"weights must have shape (*batch, h, n, n), got {got}")
    n = got[-1]
    if n < least:
        raise ValueError(f"weights must be of at least {least} tokens, got {n}")
    return n


def pattern_distance(value, name, distance, *, least):
    """Return a distance between tokens of `weights`, from `least` to one less than there are."""
    n = pattern(value)
    distance = integer(name, distance, least=least)
    if distance >= n:
        raise ValueError(
            f"{name} must be less than the number of tokens, {n}, got {distance}"
        )
    return distance


def reachable(value, hidden):
    """Reject what holds arrays where no framework would find them to train."""
    if hidden:
        raise TypeError(
            f"{type(value).__name__} must be registered as a pytree, or be a method of one, "
            "because it holds arrays that would not be trained"
        )
