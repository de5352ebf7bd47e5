"""Functions in the style of released code, which must pass."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tests.library.conformance.examples import right

HALF, NEIGHBORS = {"layout": "half"}, {"layout": "interleaved"}
NEAR = {"max_position": 4096}  # where float32 angles are exact enough


def angles_of(x, positions, base):
    """Angles of all pairs in float64."""
    positions = torch.arange(x.shape[-2]) if positions is None else positions
    even = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    return positions[..., None] * base ** (-even / x.shape[-1])


@right("rotary", "torch", settings=NEIGHBORS)
def complex_numbers(x, positions=None, base=10000.0):
    """Pairs are complex numbers: view_as_complex, polar and a product, as in Meta's Llama."""
    angles = angles_of(x, positions, base)
    phases = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * phases).flatten(-2).to(x.dtype)


@right("rotary", settings=NEIGHBORS, dtype="float32", **NEAR)
def tables_of_float32(x, positions=None, base=10000.0):
    """Frequencies, angles and tables are float32, as almost everywhere."""
    n, d = x.shape[-2:]
    positions = np.arange(n) if positions is None else positions
    frequencies = np.float32(base) ** (-np.arange(0, d, 2, dtype=np.float32) / d)
    angles = positions.astype(np.float32)[..., None] * frequencies
    cos, sin = np.cos(angles), np.sin(angles)
    made = np.empty_like(x)
    made[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    made[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return made


@right("rotary", "torch", settings=HALF)
class GrowsWhenAsked(torch.nn.Module):
    """A layer whose tables are kept until other positions, another width or base come."""

    def __init__(self):
        super().__init__()
        self.key = self.angles = None

    def forward(self, x, positions=None, rotary_dim=None, base=10000.0):
        """Rotate the first entries, a smaller head with exponents of its own."""
        width = x.shape[-1] if rotary_dim is None else rotary_dim
        rotating, passing = x.split([width, x.shape[-1] - width], dim=-1)
        at = None if positions is None else positions.tolist()
        if self.key != (key := (at, x.shape[-2], width, base)):
            self.key, self.angles = key, angles_of(rotating, positions, base)
        cos, sin = self.angles.cos().to(x.dtype), self.angles.sin().to(x.dtype)
        a, b = rotating.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, passing], dim=-1)


@right("rotary", "jax", settings=HALF, only="positions", **NEAR)
def rolled_in_jax(x, positions=None, base=10000.0):
    """The head is rolled by half, and its first half changes its sign."""
    half = x.shape[-1] // 2
    positions = jnp.arange(x.shape[-2]) if positions is None else positions
    angles = jnp.tile(positions[..., None] / base ** (jnp.arange(half) / half), 2)
    signs = jnp.where(jnp.arange(2 * half) < half, -1, 1).astype(x.dtype)
    across = jnp.roll(x, half, axis=-1) * signs
    return x * jnp.cos(angles).astype(x.dtype) + across * jnp.sin(angles).astype(x.dtype)


@right("rotary", "torch", settings=NEIGHBORS)
def kernel_in_loops(x, positions=None, *, frequencies=None, base=10000.0):
    """A loop over the pairs, each written in its place, as a kernel does it."""
    made, one = x.clone(), angles_of(x, torch.ones(1), base)[0]
    positions = torch.arange(x.shape[-2]) if positions is None else positions
    for j, omega in enumerate(one if frequencies is None else frequencies):
        angle = positions.double() * omega
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        made[..., 2 * j] = x[..., 2 * j] * cos - x[..., 2 * j + 1] * sin
        made[..., 2 * j + 1] = x[..., 2 * j] * sin + x[..., 2 * j + 1] * cos
    return made


@right("causal_mask")
def least_number_to_add(query_positions, key_positions):
    """The smallest float32 where the future is, and 0 elsewhere, to be added to the scores."""
    future = key_positions[..., None, :] > query_positions[..., :, None]
    return np.where(future, np.finfo(np.float32).min, np.float32(0))


@right("length_mask")
def ten_thousand_for_padding(lengths, n_k):
    """Minus 10000 where there is padding, as BERT's first code added it."""
    shown = np.arange(n_k) < np.reshape(lengths, (len(lengths), -1, 1))
    return (1.0 - shown) * -10000.0


@right("ids_left_padding", "torch")
def running_sum_of_the_mask(mask):
    """The running sum of the mask less one, and 0 for padding."""
    return (mask.long().cumsum(-1) - 1).masked_fill(~mask, 0)


@right("ids_mrope")
def counters_for_three_axes(is_image, grids):
    """A walk through the text, which goes on after the largest coordinate of a picture."""
    made, at, after = [], 0, 0
    pictures = iter(grids.tolist())
    while at < len(is_image):
        if is_image[at]:
            grid = next(pictures)
            made += [[after + c for c in cell] for cell in np.ndindex(*grid)]
            at, after = at + int(np.prod(grid)), after + max(grid)
        else:
            made.append([after] * 3)
            at, after = at + 1, after + 1
    return np.array(made)


@right("t5_bucket", "torch")
def buckets_by_logarithm(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """Half of the buckets are exact, a float32 logarithm has the others, as in Mesh TensorFlow."""
    made, distance = 0, -relative_position.clamp(max=0)
    if bidirectional:
        num_buckets //= 2
        made, distance = (relative_position > 0) * num_buckets, relative_position.abs()
    exact = num_buckets // 2
    share = torch.log(distance.float() / exact) / math.log(max_distance / exact)
    large = exact + (share * (num_buckets - exact)).to(torch.long)
    large = large.clamp(max=num_buckets - 1)
    return made + torch.where(distance < exact, distance, large)


@right("masked_softmax", "jax")
def softmax_where(scores, mask=None):
    """The argument where of JAX's own softmax."""
    return jax.nn.softmax(scores, axis=-1, where=mask)


@right("attention", "torch", skip=("NaN",))
def kernel_of_torch(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """PyTorch's own function, with one mask for all: aligned at the end, added to the bias."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    seen = torch.ones(n_q, n_k, dtype=torch.bool)
    seen = seen.tril(n_k - n_q) if causal else seen
    seen = seen if mask is None else seen & mask
    added = torch.zeros(()) if bias is None else bias
    added = torch.where(seen, added, float("-inf")).to(query.dtype)
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=added, scale=scale)


@right("attention")
def key_after_key(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """One key after the other, a running maximum and a running sum, as in FlashAttention."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    n_q, n_k = query.shape[-2], key.shape[-2]
    shape = (*query.shape[:-1], 1)
    seen = np.tri(n_q, n_k, n_k - n_q if causal else n_k, dtype=bool)
    seen = np.broadcast_to(seen if mask is None else seen & mask, (*query.shape[:-1], n_k))
    bias = np.zeros((n_q, n_k)) if bias is None else bias
    top, total, made = np.full(shape, -1e300), np.zeros(shape), 0.0
    for j in range(n_k):
        here = seen[..., j : j + 1]
        score = np.sum(query * key[..., j : j + 1, :], -1, keepdims=True) * scale
        score = np.where(here, score + bias[..., j : j + 1], -1e300)
        new = np.maximum(top, score)
        weight, kept = np.where(here, np.exp(score - new), 0), np.exp(top - new)
        part = np.where(here, value[..., j : j + 1, :], 0) * weight
        top, total, made = new, total * kept + weight, made * kept + part
    return (made / np.where(total == 0, 1, total)).astype(value.dtype)


@right("sinks", "torch")
def sink_as_a_column(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, sinks=None
):
    """The sink is one more column of scores, dropped after the softmax, as in gpt-oss."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    n_q, n_k = scores.shape[-2:]
    seen = torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q if causal else n_k)
    scores = scores.masked_fill(~(seen if mask is None else seen & mask), float("-inf"))
    column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, column], dim=-1).softmax(dim=-1)
    return weights[..., :-1] @ value


@right("frequencies", "jax")
def one_after_the_other(dim, base=10000.0):
    """A list: each is the one before it, divided by the same ratio."""
    made = [1.0]
    while 2 * len(made) < dim:
        made.append(made[-1] / base ** (2 / dim))
    return np.array(made)


@right("yarn", "torch")
def ramp_with_every_option(
    dim, base=10000.0, factor=1.0, trained_length=2048, beta_fast=32.0, beta_slow=1.0,
    truncate=True, mscale=None, mscale_all_dim=None,
):  # fmt: skip
    """A correction range, lerp over its ramp, and weights as in DeepSeek's code."""
    low, high = (
        dim * math.log(trained_length / (2 * math.pi * beta)) / (2 * math.log(base))
        for beta in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    stay = 1 - ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = base ** (-2 * pairs / dim)
    one, other = (mscale, mscale_all_dim) if mscale and mscale_all_dim else (1, 0)
    sharp, dull = (0.1 * weight * math.log(factor) + 1.0 for weight in (one, other))
    return torch.lerp(plain / factor, plain, stay), sharp / dull
