"""xllamacpp: the operators of llama.cpp, which its wheel exports, called through `ctypes`."""

import numpy as np

from posattn.conformance.adapters import attention_of_heads, rotation_of_heads
from posattn.conformance.calls import Skip
from tests.nightly.conformance.adapting import FLOAT32, Reason, against
from tests.nightly.world.xllamacpp import _compute

NEIGHBORS, HALVES = 0, 2
LOWEST = Reason(
    ("lowest float",),
    "convention",
    "a mask is float16, in which the lowest float is minus infinity and hides its key",
)


def rotated(x, positions, base, rotary_dim, mode, *yarn):
    """`ggml_rope_ext` of `(b, h, n, d)`; examples follow each other as tokens do."""
    b, h, n, d = x.shape
    if positions.dtype.kind != "i":
        raise Skip("positions are int32")
    tokens = x.swapaxes(1, 2).reshape(1, b * n, h, d)
    places = np.broadcast_to(positions, (b, n)).reshape(-1).astype("i4")
    length, *numbers = yarn or (0, 1.0, 0.0, 1.0, 32.0, 1.0)
    options = rotary_dim or d - d % 2, mode, length, base, *numbers
    out = _compute(tokens.shape, "ggml_rope_ext", (tokens, places, None), *options)
    return out.reshape(b, n, h, d).swapaxes(1, 2)


@against("rotary", FLOAT32, framework="numpy", dtype="float32", layout="half")
@rotation_of_heads
def halves(x, positions, *, base=10000.0, rotary_dim=None):
    """`ggml_rope_ext` of llama.cpp, of type NEOX."""
    return rotated(x, positions, base, rotary_dim, HALVES)


@against("rotary", FLOAT32, framework="numpy", dtype="float32", layout="interleaved")
@rotation_of_heads
def neighbors(x, positions, *, base=10000.0, rotary_dim=None):
    """`ggml_rope_ext` of llama.cpp."""
    return rotated(x, positions, base, rotary_dim, NEIGHBORS)


@against("yarn", framework="numpy", dtype="float32")
def yarn(dim, *, base=10000.0, factor, trained_length, beta_fast=32.0, beta_slow=1.0):
    """`ggml_rope_ext` with `ext_factor` 1, whose frequencies are read from what it does to (1, 0)."""
    x = np.zeros((1, 1, 1, dim), "f4")
    x[..., ::2] = 1
    numbers = trained_length, 1.0 / factor, 1.0, 1.0, float(beta_fast), float(beta_slow)
    pairs = rotated(x, np.ones((1, 1), int), float(base), None, NEIGHBORS, *numbers)
    cos, sin = pairs.reshape(-1, 2).astype("f8").T
    return np.arctan2(sin, cos).astype("f4"), np.hypot(cos, sin)[-1].astype("f4")


def attend(query, key, value, mask, bias, scale, soft_cap=0.0, **sinks):
    """`ggml_flash_attn_ext`, whose mask is float16 and whose output has heads last."""
    added = np.where(mask, 0.0 if bias is None else bias, -np.inf).astype("f2")
    scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
    b, h, n, _ = query.shape
    shape, given = (b, n, h, value.shape[-1]), (query, key, value, added)
    options = scale, 0.0, soft_cap
    return _compute(shape, "ggml_flash_attn_ext", given, *options, **sinks).swapaxes(1, 2)


@against("attention", LOWEST, framework="numpy", dtype="float32")
@attention_of_heads
def masked(query, key, value, *, mask, bias=None, scale=None):
    """`ggml_flash_attn_ext` of llama.cpp with a mask."""
    return attend(query, key, value, mask, bias, scale)


@against("soft_cap", framework="numpy", dtype="float32")
@attention_of_heads
def capped(query, key, value, *, mask, bias=None, scale=None, soft_cap):
    """`ggml_flash_attn_ext` of llama.cpp with `logit_softcap`."""
    return attend(query, key, value, mask, bias, scale, float(soft_cap))


@against("sinks", framework="numpy", dtype="float32")
def with_sinks(query, key, value, *, mask=True, bias=None, scale=None, sinks):
    """`ggml_flash_attn_ext` of llama.cpp with sinks."""
    pairs = np.ones((1, 1, query.shape[-2], key.shape[-2]), bool)
    sinks = {"ggml_flash_attn_ext_add_sinks": sinks.astype("f4")}
    return attend(query, key, value, pairs & mask, bias, scale, **sinks)
