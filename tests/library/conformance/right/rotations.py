"""Rotations as others write them. All are right."""

import jax.numpy as jnp
import numpy as np
import torch

from tests.library.conformance.examples import right

NEAR = {"max_position": 4096}  # where float32 angles are exact enough
HALF, NEIGHBORS = {"layout": "half"}, {"layout": "interleaved"}


def places(x, positions):
    """The positions, or 0, 1, 2 and so on."""
    return torch.arange(x.shape[-2]) if positions is None else positions


def angles_of(x, positions, base):
    """Angles of all pairs in float64."""
    even = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    return places(x, positions)[..., None] * base ** (-even / x.shape[-1])


@right("rotary", "torch", settings=NEIGHBORS)
def complex_numbers(x, positions=None, base=10000.0):
    """Pairs are complex numbers: view_as_complex, polar and a product, as in Meta's Llama."""
    angles = angles_of(x, positions, base)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = x.double().unflatten(-1, (x.shape[-1] // 2, 2)).contiguous()
    rotated = torch.view_as_complex(pairs) * turns
    return torch.view_as_real(rotated).flatten(-2).to(x.dtype)


@right("rotary", "torch", settings=HALF)
def rotate_half_of_tables(x, positions=None, base=10000.0, attention_factor=1.0):
    """Angles are written twice, and rotate_half puts minus the second half first, as in transformers."""
    angles = angles_of(x, positions, base)
    both = torch.cat([angles, angles], dim=-1)
    cos, sin = (table(both) * attention_factor for table in (torch.cos, torch.sin))
    first, second = x.chunk(2, dim=-1)
    across = torch.cat([-second, first], dim=-1)
    return x * cos.to(x.dtype) + across * sin.to(x.dtype)


@right("rotary", "torch", settings=NEIGHBORS)
def stack_and_flatten(x, positions=None, base=10000.0):
    """Every two entries are rotated: strides, stack and flatten, as in GPT-J and CodeGen."""
    angles = angles_of(x, positions, base).repeat_interleave(2, dim=-1)
    across = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    return x * angles.cos().to(x.dtype) + across * angles.sin().to(x.dtype)


@right("rotary")
def matrices_by_einsum(x, positions=None, *, base=10000.0):
    """A matrix of two rows for each position and pair, and one einsum."""
    n, d = x.shape[-2:]
    positions = np.arange(n) if positions is None else positions
    angles = positions[..., None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    turns = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    pairs = x.reshape(*x.shape[:-1], d // 2, 2)
    return np.einsum("...pij,...pj->...pi", turns, pairs).reshape(x.shape).astype(x.dtype)


@right("rotary")
def one_sparse_matrix(x, positions=None, *, base=10000.0):
    """The block-diagonal matrix of the paper, one for each position."""
    n, d = x.shape[-2:]
    positions = np.arange(n) if positions is None else positions
    matrix = np.zeros((*positions.shape, d, d))
    for j in range(d // 2):
        angle = positions * base ** (-2 * j / d)
        matrix[..., 2 * j, 2 * j] = matrix[..., 2 * j + 1, 2 * j + 1] = np.cos(angle)
        matrix[..., 2 * j + 1, 2 * j] = np.sin(angle)
        matrix[..., 2 * j, 2 * j + 1] = -np.sin(angle)
    return (matrix @ x[..., None])[..., 0].astype(x.dtype)


@right("rotary", settings=NEIGHBORS, dtype="float32", **NEAR)
def tables_of_float32(x, positions=None, base=10000.0):
    """Frequencies, angles and tables are float32, as almost everywhere."""
    n, d = x.shape[-2:]
    positions = np.arange(n) if positions is None else positions
    exponents = np.arange(0, d, 2, dtype=np.float32) / np.float32(d)
    frequencies = np.float32(1.0) / np.float32(base) ** exponents
    angles = positions.astype(np.float32)[..., None] * frequencies
    cos, sin = np.cos(angles), np.sin(angles)
    made = np.empty_like(x)
    made[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    made[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return made


@right("rotary", "torch", settings=HALF, skip=("fractions",), **NEAR)
class TablesToAMaximum:
    """Tables are built for 4096 positions, once for each width and base, and read at the positions."""

    def __init__(self):
        self.tables = {}

    def __call__(self, x, positions=None, base=10000.0):
        """Rotate."""
        key = x.shape[-1], base
        if key not in self.tables:
            self.tables[key] = angles_of(x, torch.arange(4096), base)
        angles = self.tables[key][places(x, positions)]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@right("rotary", "torch", settings=HALF)
class GrowsWhenAsked(torch.nn.Module):
    """A layer whose cosines are kept until other positions, another width or another base come."""

    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x, positions=None, base=10000.0):
        """Rotate."""
        key = places(x, positions).tolist(), x.shape[-1], base
        if self.kept is None or self.kept[0] != key:
            self.kept = key, angles_of(x, positions, base)
        angles = self.kept[1]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.tensor_split(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


@right("rotary", "jax", settings=HALF, **NEAR)
def rolled_in_jax(x, positions=None, base=10000.0):
    """The head is rolled by half, and its first half changes its sign."""
    half = x.shape[-1] // 2
    positions = jnp.arange(x.shape[-2]) if positions is None else positions
    angles = positions[..., None] / base ** (jnp.arange(half) / half)
    angles = jnp.tile(angles, 2)
    signs = jnp.where(jnp.arange(2 * half) < half, -1, 1)
    across = jnp.roll(x, half, axis=-1) * signs.astype(x.dtype)
    return x * jnp.cos(angles).astype(x.dtype) + across * jnp.sin(angles).astype(x.dtype)


@right("rotary", "jax", settings=NEIGHBORS, **NEAR)
def powers_of_i_in_jax(x, positions=None, base=10000.0):
    """Complex numbers, and the exponential of an imaginary angle."""
    positions = jnp.arange(x.shape[-2]) if positions is None else positions
    exponents = jnp.arange(0, x.shape[-1], 2) / x.shape[-1]
    turns = jnp.exp(1j * positions[..., None] * base**-exponents)
    rotated = (x[..., ::2] + 1j * x[..., 1::2]) * turns
    return jnp.stack([rotated.real, rotated.imag], -1).reshape(x.shape).astype(x.dtype)


@right("rotary", "torch", settings=HALF)
def a_part_that_turns(x, positions=None, *, frequencies=None, base=10000.0):
    """The first entries turn and the rest pass, as in GPT-NeoX and Phi."""
    if frequencies is None:
        even = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
        frequencies = 1.0 / base ** (even / x.shape[-1])
    width = 2 * len(frequencies)
    rotation, passing = x[..., :width], x[..., width:]
    angles = torch.einsum("...n,f->...nf", places(x, positions).double(), frequencies)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = rotation[..., : width // 2], rotation[..., width // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, passing], dim=-1)


@right("rotary", "torch", settings=NEIGHBORS)
def kernel_in_loops(x, positions=None, *, frequencies=None, base=10000.0):
    """A loop over the pairs, each written in its place, as a kernel does it."""
    made, d = x.clone(), x.shape[-1]
    given = [base ** (-2 * j / d) for j in range(d // 2)]
    for j, omega in enumerate(given if frequencies is None else frequencies.tolist()):
        angle = (places(x, positions).double() * omega).to(torch.float64)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        made[..., 2 * j] = x[..., 2 * j] * cos - x[..., 2 * j + 1] * sin
        made[..., 2 * j + 1] = x[..., 2 * j] * sin + x[..., 2 * j + 1] * cos
    return made


@right("rotary_scores", settings=NEIGHBORS)
def only_the_distance(query, key, query_positions, key_positions, *, base=10000.0):
    """No rotation of either: the product with the conjugate, rotated by the distance."""
    d = query.shape[-1]
    q, k = (x[..., 0::2] + 1j * x[..., 1::2] for x in (query, key))
    far = query_positions[..., :, None] - key_positions[..., None, :]
    turns = np.exp(1j * far[..., None] * base ** (-np.arange(0, d, 2) / d))
    made = np.einsum("...ip,...jp,...ijp->...ij", q, k.conj(), turns, optimize=True)
    return made.real.astype(query.dtype)


@right("to_half", "torch")
def halves_by_strides(x):
    """First every other entry from the first, then from the second."""
    return torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)


@right("weight_to_half", skip=("partial",))
def permuted_checkpoint(weight, num_heads):
    """A view of heads and pairs, transposed, as a checkpoint's conversion to transformers does it."""
    pairs = weight.reshape(*weight.shape[:-1], num_heads, -1, 2)
    return np.swapaxes(pairs, -1, -2).reshape(weight.shape)


@right("xpos_query", settings=HALF)
def fading_in_halves(x, positions=None, *, base=10000.0, gamma=0.4, scale_base=512.0):
    """The xPos of torchscale: a table of scales that are raised to the power of the position."""
    d = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else positions
    scale = (np.arange(0, d, 2) + gamma * d) / ((1 + gamma) * d)
    power = np.tile(scale ** (positions[..., None] / scale_base), 2)
    angles = np.tile(positions[..., None] / base ** (np.arange(0, d, 2) / d), 2)
    across = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], axis=-1)
    return ((x * np.cos(angles) + across * np.sin(angles)) * power).astype(x.dtype)


@right("rotary", "torch", settings=HALF)
def a_narrower_head_within(x, positions=None, rotary_dim=None, base=10000.0):
    """The first entries are a smaller head with exponents of its own, as in GPT-NeoX and Qwen3-Next."""
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    rotation, passing = x.split([width, x.shape[-1] - width], dim=-1)
    angles = angles_of(rotation, positions, base)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = rotation.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, passing], dim=-1)


@right("rotary", settings=NEIGHBORS)
def neighbors_within(x, positions=None, *, rotary_dim=None, base=10000.0):
    """Neighbors of the first entries, written into a copy, as in GPT-J."""
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    positions = np.arange(x.shape[-2]) if positions is None else positions
    by = positions[..., None] * base ** (-np.arange(0, width, 2) / width)
    made, pairs = x.copy(), x[..., :width]
    made[..., 0:width:2] = pairs[..., 0::2] * np.cos(by) - pairs[..., 1::2] * np.sin(by)
    made[..., 1:width:2] = pairs[..., 1::2] * np.cos(by) + pairs[..., 0::2] * np.sin(by)
    return made


@right("inverse_rotation", "torch", settings=NEIGHBORS)
def conjugate_turns(x, positions, base=10000.0):
    """The product with the conjugate, as for the output of attention in DeepSeek-V4."""
    angles = angles_of(x, positions, base)
    turns = torch.polar(torch.ones_like(angles), angles).conj()
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


@right("inverse_rotation", settings=HALF)
def negated_sines(x, positions, *, base=10000.0, attention_factor=1.0):
    """The same function as forwards, with minus the sines."""
    angles = positions[..., None] * base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    cos, sin = np.cos(angles) * attention_factor, -np.sin(angles) * attention_factor
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)
