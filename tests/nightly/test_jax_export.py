"""Programs of the JAX column: one for all lengths, without tables or waiting for the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from posattn import jax as ours
from tests.conftest import BOUND, draw, error
from tests.nightly.studies.schemes import Column
from tests.nightly.test_compile import DIM, HEADS, LAYERS

KEY = jax.random.key(0)
SCHEMES = {name: made(Column("jax", KEY)) for name, made in LAYERS.items()}
SCHEMES["Swin"] = {"bias": ours.SwinBias.init(KEY, HEADS, 4, 4)}
SCHEMES["PoPE"]["num_kv_heads"] = HEADS  # of which each has phases


def numbers(seed, *shape):
    return jnp.asarray(draw(seed, *shape), "float32")


def close(got, want):
    return error(np.asarray(got), np.asarray(want)) <= BOUND["float32"]


def exported(function, *shapes, constraints=()):
    """A program for all sizes that letters stand for; each shape is a string, or a pair with a dtype."""
    scope = export.SymbolicScope(constraints)
    named = [(s, "float32") if isinstance(s, str) else s for s in shapes]
    given = [
        jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope), dtype)
        for s, dtype in named
    ]
    return export.export(jax.jit(function))(*given).call


@pytest.mark.parametrize("name", SCHEMES)
def test_one_program_serves_a_layer_at_all_lengths(unchecked, name):
    layer = ours.MultiHeadAttention.init(
        KEY, DIM, HEADS, **{"num_kv_heads": 2} | SCHEMES[name]
    )

    def attend(x):
        return layer(x, causal=True)

    run, want = exported(attend, f"b, n, {DIM}"), jax.jit(attend)
    for b, n in [(1, 1), (2, 5)]:
        x = numbers(1, b, n, DIM)
        assert close(run(x), want(x))


def test_one_program_serves_attention_at_all_lengths(unchecked):
    bias = ours.ALiBi(HEADS), SCHEMES["T5Bias"]["bias"]

    def attend(query, key, value, mask):
        return ours.scaled_dot_product_attention(
            ours.rotate(query), ours.rotate(key), value, mask=mask, causal=True, bias=bias
        )

    shapes = (
        f"b, {HEADS}, n_q, 4",
        "b, 2, n_k, 4",
        "b, 2, n_k, 3",
        ("b, 1, n_q, n_k", "bool"),
    )
    run = exported(attend, *shapes)
    for b, n_q, n_k in [(2, 3, 5), (1, 5, 3)]:
        arrays = [
            numbers(2, b, HEADS, n_q, 4),
            numbers(3, b, 2, n_k, 4),
            numbers(4, b, 2, n_k, 3),
        ]
        mask = jnp.asarray(draw(5, b, 1, n_q, n_k) < 0.5)
        assert close(run(*arrays, mask), jax.jit(attend)(*arrays, mask))


@pytest.mark.parametrize("function", [
    ours.rotate, ours.Rotary(layout="half"), ours.PositionalEncoding(64), ours.xpos_query,
    lambda x: x + ours.sinusoidal_encoding(x.shape[-2], 64),
    ours.MultiHeadAttention.init(KEY, 64, 1, rotate=ours.Rotary(), bias=ours.ALiBi(1)),
])  # fmt: skip
def test_no_table_is_part_of_a_program(unchecked, function):
    short, long = (
        len(jax.jit(function).lower(jax.ShapeDtypeStruct((n, 64), "float32")).as_text())
        for n in (1000, 10000)  # both long enough for tiles
    )
    assert long < 1.01 * short + 1000


ON_DEVICE = {
    "rotate": lambda x, n: ours.rotate(x, n),
    "Rotary": lambda x, n: ours.Rotary(frequencies=(1.0, 0.5))(x),
    "PositionalEncoding": lambda x, n: ours.PositionalEncoding(DIM)(x),
    "length_mask": lambda x, n: ours.length_mask(n, 5),
    "layer": lambda x, n: ours.MultiHeadAttention.init(KEY, DIM, 2, **SCHEMES["Rotary"])(x, causal=True),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_DEVICE)
def test_nothing_is_read_from_the_device(unchecked, monkeypatch, name):
    from jax._src.array import ArrayImpl

    def refuse(*_):
        raise AssertionError("an array was read on the host")

    x, n = numbers(9, 5, DIM), jnp.arange(5)
    monkeypatch.setattr(ArrayImpl, "__array__", refuse)
    monkeypatch.setattr(ArrayImpl, "_value", property(refuse))
    ON_DEVICE[name](x, n)


def test_lengths_on_the_device_are_cut_to_the_keys():
    got = ours.length_mask(jnp.array([-1, 2, 9]), 3)
    assert np.array_equal(got[:, 0], [[0, 0, 0], [1, 1, 0], [1, 1, 1]])


def test_masks_are_made_of_two_ranges():
    n = 1000
    for make in (lambda: ours.causal_mask(n), lambda: ours.window_mask(n, n, 9)):
        made = jax.jit(make).lower().compile().memory_analysis()
        assert made.temp_size_in_bytes + made.output_size_in_bytes < 2 * n * n
