"""Checks of latent attention and its cache."""

from typing import NamedTuple

from posattn.contract.arrays import _shape, floating, integer_array, parameter, sequence
from posattn.contract.numbers import integer
from posattn.contract.positions import batch_axes, per_token


class LatentWidths(NamedTuple):
    """How many numbers a latent vector has, and each head of contents, rotations and values."""

    rank: int
    content: int
    rotary: int
    value: int

    def scale(self, given):
        """The factor on the products of queries and keys."""
        return (self.content + self.rotary) ** -0.5 if given is None else given

    def absorb(self, n):
        """Whether `n` queries cost less if keys and values are not made from a cache of latent vectors."""
        made = self.content + self.value
        return n * (2 * self.rank - made) < self.rank * made


class LatentSizes(NamedTuple):
    """The number of heads, the widths, and the shapes `(inputs, outputs)` of the weights by name."""

    num_heads: int
    widths: LatentWidths
    weights: dict


def latent_sizes(*sizes, raw=False, gate=False, lent=False):
    """Return the sizes of a layer of latent attention."""
    dim, num_heads, query_rank, kv_rank, content_dim, rotary_dim, value_dim = sizes
    dim = integer("dim", dim, least=1)
    num_heads = integer("num_heads", num_heads, least=1)
    kv_rank = integer("kv_rank", kv_rank, least=1)
    content = integer("content_dim", content_dim, least=1)
    rotary = integer("rotary_dim", rotary_dim, even=True)
    value = content if value_dim is None else integer("value_dim", value_dim, least=1)
    weights, width = {}, dim
    if query_rank is not None:
        width = integer("query_rank", query_rank, least=1)
        weights["query_down"] = dim, width
        width *= 1 + raw
    elif raw:
        raise ValueError("raw must be False where query_rank is None, got True")
    weights["query"] = width, num_heads * (content + rotary)
    if not lent:
        weights["kv_down"] = dim, kv_rank + rotary
    weights["key"] = kv_rank, num_heads * content
    weights["value"] = kv_rank, num_heads * value
    weights["output"] = num_heads * value, dim
    if gate:
        weights["gate"] = width if raw else dim, num_heads * value
    widths = LatentWidths(kv_rank, content, rotary, value)
    return LatentSizes(num_heads, widths, weights)


def latent_weights(layer, x):
    """Return the widths of a layer of latent attention, whose weights and input must belong together."""
    rank, dim = layer.key_weight.shape[0], layer.output_weight.shape[1]
    _shape("value_weight", layer.value_weight, (rank, "h * value_dim"))
    num_heads = integer("num_heads", layer.num_heads, least=1)
    content, value = (w.shape[1] for w in (layer.key_weight, layer.value_weight))
    for name, columns in (("key_weight", content), ("value_weight", value)):
        if columns % num_heads:
            raise ValueError(
                f"num_heads must divide the {columns} columns of {name}, got {num_heads}"
            )
    _shape("output_weight", layer.output_weight, (value, dim))
    if layer.kv_down_weight is None:
        rotary = max(layer.query_weight.shape[1] - content, 0) // num_heads
    else:
        _shape("kv_down_weight", layer.kv_down_weight, (dim, "r + rotary_dim"))
        rotary = layer.kv_down_weight.shape[1] - rank
        if rotary < 0:
            raise ValueError(
                f"kv_down_weight must have {rank} columns or more, as many as key_weight has rows, "
                f"got shape {(dim, rank + rotary)}"
            )
        parameter("kv_norm_weight", layer.kv_norm_weight, (rank,))
    source = dim
    if layer.query_down_weight is not None:
        _shape("query_down_weight", layer.query_down_weight, (dim, "query_rank"))
        source = layer.query_down_weight.shape[1]
        parameter("query_norm_weight", layer.query_norm_weight, (source,))
        if layer.raw:
            dim = source = 2 * source
    _shape("query_weight", layer.query_weight, (source, content + num_heads * rotary))
    if layer.gate_weight is not None:
        _shape("gate_weight", layer.gate_weight, (dim, value))
    if layer.temperature is not None:
        parameter("temperature", layer.temperature, (2, num_heads))
    sequence("x", x, layer.output_weight.shape[1])
    return LatentWidths(rank, content // num_heads, rotary, value // num_heads)


def latent_shape(batch_shape, max_len, width):
    """Return the shape of what a cache of latent vectors keeps."""
    batch = batch_axes(batch_shape)
    max_len = integer("max_len", max_len, least=1)
    return (*batch, max_len, integer("width", width, least=0))


def lent(latent, lends, like, shape):
    """Reject latent vectors for a layer that makes its own, or their absence in one that doesn't."""
    if latent is not None:
        floating("latent", latent, like=like, owner="the layer")
    if lends == (latent is None):
        told = "given: what another layer has returned" if lends else "None"
        raise ValueError(f"latent must be {told} where lent is {lends}")
    if lends:
        _shape("latent", latent, shape)


def latent_arrays(cache):
    """Reject a cache of latent vectors whose arrays do not belong together."""
    _shape("positions", cache.positions, tuple(cache.latent.shape[:-1]))


def latent_entry(latent, where, cache):
    """Reject latent vectors and positions that do not fit what a cache keeps."""
    latent_arrays(cache)
    *batch, _, width = cache.latent.shape
    floating("latent", latent, like=cache.latent, owner="the cache")
    _shape("latent", latent, (*batch, "n", width))
    integer_array("query_positions", where)
    per_token("query_positions", where, batch, latent.shape[-2])
