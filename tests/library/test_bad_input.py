"""Bad input: the same exception with the same words in every column, and harmless input that looks bad."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import posattn.jax
from posattn import contract
from tests.conftest import COLUMNS, PROJECTIONS, TWINS, draw

pytestmark = pytest.mark.usefixtures("unchecked")


def floats(*shape):
    return draw(100, *shape)


X, Q, K, V = floats(2, 3, 4), floats(2, 3, 4), floats(2, 5, 4), floats(2, 5, 6)
INTS, BOOLS = np.arange(12).reshape(3, 4), np.ones((2, 3, 5), bool)
GENERATOR = {
    "reference": "numpy.random.Generator",
    "torch": "torch.Generator",
    "jax": "JAX key",
}


def attend(column, *arrays, **options):
    return column.scaled_dot_product_attention(*arrays, **options)


def ring(column, *arrays, **options):
    """Attention around a ring, whose workers nobody asks for before the arrays are good."""
    across = {"reference": 1, "torch": None, "jax": "workers"}[column.name]
    return column.ring_attention(*arrays, across=across, **options)


def room(c, max_len=4):
    """An empty cache for the layer."""
    kind = {"torch": {"dtype": torch.float64}, "jax": {"dtype": "float64"}}.get(c.name, {})
    return c.KVCache.init((2,), 2, max_len, 2, **kind)


def layer(column, **options):
    return column.multi_head([column.array(floats(4, 4))] * 4, 2, **options)


def waves(column, array, x=None, **changed):
    """FoPE with one wave for each of two heads."""
    x = floats(2, 2, 4) if x is None else x
    given = dict.fromkeys(("cos_weight", "sin_weight"), floats(2, 1, 1))
    given |= {"frequencies": floats(1)} | changed
    return column.fope(
        array(x), **{k: array(v) if hasattr(v, "shape") else v for k, v in given.items()}
    )


def make(column, name, *arguments, rng=None, **options):
    """A layer with drawn parameters: `init` takes the rng first, a torch module takes it last or not."""
    kind = getattr(column, name)
    rng = column.rng() if rng is None else rng
    return kind.init(rng, *arguments, **options) if hasattr(kind, "init") else kind(
        *arguments, **options, rng=rng
    )  # fmt: skip


def encoding(column, **options):
    return column.PositionalEncoding(4, **options)


def learned(column):
    return column.learned(column.array(floats(5, 4)))


def gate(column):
    parameters = {"weight": column.array(floats(4, 2)), "offset": column.array(floats(2))}
    return column.with_parameters("ForgettingGate", parameters, 4, 2)


def cope(column, query, key, query_positions, key_positions):
    """Scores of CoPE with a table for heads of width 4; queries and keys are `(2, n, 4)`."""
    encoding = column.with_parameters("CoPE", {"table": column.array(floats(5, 4))}, 5, 4)
    return encoding.scores(query, key, query_positions, key_positions)


def shaw(column, rows=5):
    tables = {name: column.array(floats(rows, 4)) for name in ("key_table", "value_table")}
    return column.with_parameters("ShawRelative", tables, 2, 4)


def music(column):
    sizes = {"table": column.array(floats(3, 6, 4))}, 6, 3, 4
    return column.with_parameters("RelativeGlobalAttention", *sizes)


def xl(column, d=12, width=12, **options):
    shapes = {"content_bias": (3, 4), "position_bias": (3, 4), "weight": (d, width)}
    parameters = {name: column.array(floats(*shape)) for name, shape in shapes.items()}
    return column.with_parameters("TransformerXLBias", parameters, 12, 3, **options)


def projections(column, shapes):
    shapes = {"table": (8, 12), "query_weight": (12, 12), "key_weight": (12, 12)} | shapes
    return {name: column.array(floats(*shape)) for name, shape in shapes.items()}


def deberta(column, num_heads=3, **shapes):
    parameters = projections(column, shapes)
    return column.with_parameters(
        "DisentangledBias", parameters, 4, 12, num_heads=num_heads
    )


def tupe(column, cls_bias=(2, 3), num_heads=3, **shapes):
    parameters = projections(column, {"cls_bias": cls_bias, **shapes})
    return column.with_parameters("TUPEBias", parameters, 8, 12, num_heads=num_heads)


def content(column, scheme, query=(2, 3, 3, 4), key=(2, 3, 5, 4), **positions):
    """Scores for heads of these shapes, or these arrays, at positions of our choice."""
    query, key = (
        column.array(floats(*x)) if isinstance(x, tuple) else x for x in (query, key)
    )
    where = {"query_positions": np.arange(3), "key_positions": np.arange(5)} | positions
    return scheme.scores(
        query,
        key,
        *(column.array(x) if isinstance(x, np.ndarray) else x for x in where.values()),
    )


def sines(column, where, *arguments, **options):
    return column.sinusoidal_encoding(where, *arguments, **options)


def longrope(column, dim=4, **options):
    right = {"short_factors": [1.0, 1.0], "long_factors": (1.0, 2.0), "length": 9,
             "trained_length": 8, "factor": 2.0}  # fmt: skip
    return column.longrope(dim, **right | options)


def half(column, *shape, dtype="float16"):
    """An array in a dtype that has no place in the columns' adapters."""
    import jax.numpy as jnp
    import torch

    return {
        "reference": lambda: np.zeros(shape, jnp.dtype(dtype)),
        "torch": lambda: torch.zeros(shape, dtype=getattr(torch, dtype)),
        "jax": lambda: jnp.zeros(shape, dtype),
    }[column.name]()


def swin_v2(column, **wrong):
    """A window of 2 by 3 cells for 2 heads."""
    right = {
        "hidden_weight": floats(2, 3),
        "hidden_bias": floats(3),
        "output_weight": floats(3, 2),
    }
    named = {name: column.array(value) for name, value in {**right, **wrong}.items()}
    made = column.with_parameters("SwinV2Bias", named, 2, height=2, width=3)
    return made(*[column.positions(np.arange(6))] * 2)


def dape(column, bias=None, **wrong):
    """DAPE of ALiBi for 3 heads, or of another bias."""
    right = {"hidden_weight": floats(6, 4), "hidden_bias": floats(4),
             "output_weight": floats(4, 3), "output_bias": floats(3)}  # fmt: skip
    named = {name: column.array(value) for name, value in {**right, **wrong}.items()}
    bias = column.ALiBi(3) if bias is None else bias
    if column.name == "torch":
        return column.with_parameters("DAPE", named, 3, bias)
    return column.with_parameters("DAPE", {"bias": bias, **named})


def polar(column, x):
    """The keys of PoPE for 3 heads of width 4."""
    return column.with_parameters("PolarKey", {"phase": column.array(floats(3, 4))}, 3, 4)(
        x
    )


def on_host(column, array, values):
    """Values that a check may read without waiting for a device: JAX's are not read."""
    return np.array(values) if column.name == "jax" else array(values)


def kerple(column, name, r1, r2):
    return column.with_parameters(name, {"r1": r1, "r2": r2}, 2)


def fire(column, array, **wrong):
    right = {"c": np.array(0.1), "multiplier": np.array(1.0), "hidden_weight": floats(3),
             "hidden_bias": floats(3), "output_weight": floats(3, 2), "output_bias": floats(2)}  # fmt: skip
    named = {name: array(value) for name, value in {**right, **wrong}.items()}
    return column.with_parameters("FIRE", named, 2)


KIND, RANGE = TypeError, ValueError  # of a wrong kind, of the right kind with a wrong value
# what is called with the column `c` and its array maker `a`, the exception, its whole text
CASES = [
    # masks
    (lambda c, a: c.causal_mask(-1), RANGE, "n_q must be a non-negative integer, got -1"),
    (lambda c, a: c.causal_mask(2.0), KIND, "n_q must be a non-negative integer, got 2.0"),
    (lambda c, a: c.causal_mask(True), KIND, "n_q must be a non-negative integer, got True"),
    (lambda c, a: c.causal_mask("3"), KIND, "n_q must be a non-negative integer, got '3'"),
    (lambda c, a: c.causal_mask(None), KIND, "n_q must be a non-negative integer, got None"),
    (lambda c, a: c.causal_mask(2, -3), RANGE, "n_k must be a non-negative integer, got -3"),
    (lambda c, a: c.window_mask(-2, 3, 1), RANGE, "n_q must be a non-negative integer, got -2"),
    (lambda c, a: c.window_mask(2, 3.5, 1), KIND, "n_k must be a non-negative integer, got 3.5"),
    (lambda c, a: c.window_mask(2, 3, 0), RANGE, "window must be a positive integer, got 0"),
    (lambda c, a: c.window_mask(2, 3, False), KIND, "window must be a positive integer, got False"),
    (lambda c, a: c.Window(0), RANGE, "window must be a positive integer, got 0"),
    (lambda c, a: c.Window(2.0), KIND, "window must be a positive integer, got 2.0"),
    (lambda c, a: c.Chunk(0), RANGE, "size must be a positive integer, got 0"),
    (lambda c, a: c.Chunk(2.0), KIND, "size must be a positive integer, got 2.0"),
    (lambda c, a: c.scaled_dot_product_attention(*[a(floats(2, 4))] * 3, mask=lambda q, k: a(floats(2, 2))),
     KIND, "mask must be bool (True means may attend), got float64"),
    (lambda c, a: c.scaled_dot_product_attention(*[a(floats(2, 4))] * 3, mask=lambda q, k: True),
     KIND, "mask must be an array, got bool"),
    (lambda c, a: c.attention_weights(*[a(floats(2, 4))] * 2, mask=lambda q, k: a(np.ones((3, 2), bool))),
     RANGE, "mask must have a shape that broadcasts to (2, 2), got (3, 2)"),
    (lambda c, a: c.length_mask([1, 2], 3), KIND, "lengths must be an array, got list"),
    (lambda c, a: c.length_mask(2, 3), KIND, "lengths must be an array, got int"),
    (lambda c, a: c.length_mask(a(floats(2)), 3), KIND, "lengths must have an integer dtype, got float64"),
    (lambda c, a: c.length_mask(a(np.ones(2, bool)), 3),
     KIND, "lengths must have an integer dtype, got bool"),
    (lambda c, a: c.length_mask(a(np.array(2)), 3),
     RANGE, "lengths must have shape (batch) or (batch, n_q), got ()"),
    (lambda c, a: c.length_mask(a(np.ones((1, 2, 1), int)), 3),
     RANGE, "lengths must have shape (batch) or (batch, n_q), got (1, 2, 1)"),
    (lambda c, a: c.length_mask(on_host(c, a, [2, 4]), 3),
     RANGE, "lengths must lie between 0 and n_k = 3, got 4"),
    (lambda c, a: c.length_mask(on_host(c, a, [2, -1]), 3),
     RANGE, "lengths must lie between 0 and n_k = 3, got -1"),
    (lambda c, a: c.length_mask(a([2]), -3), RANGE, "n_k must be a non-negative integer, got -3"),
    # attention
    (lambda c, a: c.masked_softmax([[1.0]]), KIND, "scores must be an array, got list"),
    (lambda c, a: c.masked_softmax(a(floats(3))),
     RANGE, "scores must have shape (*batch, n_q, n_k), got (3,)"),
    (lambda c, a: c.masked_softmax(a(INTS)), KIND, "scores must have a floating dtype, got int64"),
    (lambda c, a: c.masked_softmax(a(Q), a(INTS)),
     KIND, "mask must be bool (True means may attend), got int64"),
    (lambda c, a: c.masked_softmax(a(Q), a(BOOLS)),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 4), got (2, 3, 5)"),
    (lambda c, a: c.attention_weights(Q.tolist(), a(K)), KIND, "query must be an array, got list"),
    (lambda c, a: c.attention_weights(None, a(K)), KIND, "query must be an array, got NoneType"),
    (lambda c, a: c.attention_weights(a(Q), K.tolist()), KIND, "key must be an array, got list"),
    (lambda c, a: c.attention_weights(a(floats(4)), a(K)),
     RANGE, "query must have shape (*batch, n, d), got (4,)"),
    (lambda c, a: c.attention_weights(a(Q), a(floats(2, 5, 3))),
     RANGE, "key must have shape (2, n_k, 4), got (2, 5, 3)"),
    (lambda c, a: c.attention_weights(a(Q), a(floats(5, 4))),
     RANGE, "key must have shape (2, n_k, 4), got (5, 4)"),
    (lambda c, a: c.attention_weights(a(Q), a(floats(3, 5, 4))),
     RANGE, "key must have shape (2, n_k, 4), got (3, 5, 4)"),
    (lambda c, a: c.attention_weights(a(floats(2, 3, 0)), a(floats(2, 5, 0))),
     RANGE, "query must have a width of at least 1, got shape (2, 3, 0)"),
    (lambda c, a: c.attention_weights(a(INTS), a(K)), KIND, "query must have a floating dtype, got int64"),
    (lambda c, a: c.attention_weights(a(Q), half(c, 2, 5, 4)),
     KIND, "key must have the dtype of query, float64, got float16"),
    (lambda c, a: c.attention_weights(a(Q), a(K), scale=np.nan),
     RANGE, "scale must be a finite number, got nan"),
    (lambda c, a: c.attention_weights(a(Q), a(K), scale="1"), KIND, "scale must be a finite number, got '1'"),
    (lambda c, a: attend(c, a(Q), a(K), a(floats(2, 4, 6))),
     RANGE, "value must have shape (2, 5, d_v), got (2, 4, 6)"),
    (lambda c, a: attend(c, a(Q), a(K), a(floats(5, 6))),
     RANGE, "value must have shape (2, 5, d_v), got (5, 6)"),
    (lambda c, a: attend(c, a(Q), a(K), V.tolist()), KIND, "value must be an array, got list"),
    (lambda c, a: attend(c, a(Q), a(K), half(c, 2, 5, 6, dtype="bfloat16")),
     KIND, "value must have the dtype of query, float64, got bfloat16"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=a(np.ones((3, 5)))),
     KIND, "mask must be bool (True means may attend), got float64"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=[[True]]), KIND, "mask must be an array, got list"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=a(BOOLS[0, 0])),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 5), got (5,)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=a(BOOLS[..., :1])),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 5), got (2, 3, 1)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=a(BOOLS[:, :2])),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 5), got (2, 2, 5)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=a(BOOLS[None])),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 5), got (1, 2, 3, 5)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), mask=a(BOOLS[:, :2]), causal=True),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 5), got (2, 2, 5)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), bias=a(floats(3, 4))),
     RANGE, "bias must have a shape that broadcasts to (2, 3, 5), got (3, 4)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), bias=a(INTS)),
     KIND, "bias must have a floating dtype, got int64"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), bias=0.5), KIND, "bias must be an array, got float"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), bias=lambda q, k: a(floats(5, 3))),
     RANGE, "bias must have a shape that broadcasts to (2, 3, 5), got (5, 3)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), bias=lambda q, k: k - q[:, None]),
     KIND, "bias must have a floating dtype, got int64"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), scale=np.inf), RANGE, "scale must be a finite number, got inf"),
    (lambda c, a: attend(c, a(Q), a(Q), a(Q), causal=True, scale=True),
     KIND, "scale must be a finite number, got True"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), soft_cap=0.0),
     RANGE, "soft_cap must be a positive finite number, got 0.0"),
    (lambda c, a: c.attention_weights(a(Q), a(K), soft_cap=np.inf),
     RANGE, "soft_cap must be a positive finite number, got inf"),
    (lambda c, a: c.attention_weights(a(Q), a(K), soft_cap="50"),
     KIND, "soft_cap must be a positive finite number, got '50'"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), sinks=a(floats(3))),
     RANGE, "sinks must have shape (2), got (3,)"),
    (lambda c, a: c.attention_weights(a(Q), a(K), sinks=a(floats(2, 1))),
     RANGE, "sinks must have shape (2), got (2, 1)"),
    (lambda c, a: c.attention_weights(a(Q[0]), a(K[0]), sinks=a(floats(1))),
     RANGE, "sinks must have shape (), got (1,)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), sinks=a(np.arange(2))),
     KIND, "sinks must have a floating dtype, got int64"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), sinks=[0.0, 1.0]),
     KIND, "sinks must be an array, got list"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), dropout_rate=1.0),
     RANGE, "dropout_rate must be a number in [0, 1), got 1.0"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), dropout_rate=-0.1),
     RANGE, "dropout_rate must be a number in [0, 1), got -0.1"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), dropout_rate=np.nan),
     RANGE, "dropout_rate must be a number in [0, 1), got nan"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), dropout_rate="half"),
     KIND, "dropout_rate must be a number in [0, 1), got 'half'"),
    (lambda c, a: c.dropout([1.0], 0.5), KIND, "x must be an array, got list"),
    (lambda c, a: c.dropout(a(INTS), 0.5), KIND, "x must have a floating dtype, got int64"),
    (lambda c, a: c.dropout(a(X), None), KIND, "dropout_rate must be a number in [0, 1), got None"),
    # multi-head attention
    (lambda c, a: c.split_heads(a(X), 3), RANGE, "num_heads must divide dim = 4, got 3"),
    (lambda c, a: c.split_heads(a(X), 0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: c.split_heads(a(X), 2.0), KIND, "num_heads must be a positive integer, got 2.0"),
    (lambda c, a: c.split_heads(a(floats(4)), 2), RANGE, "x must have shape (*batch, n, d), got (4,)"),
    (lambda c, a: c.split_heads(a(INTS), 2), KIND, "x must have a floating dtype, got int64"),
    (lambda c, a: c.merge_heads(a(floats(3, 4))), RANGE, "x must have shape (*batch, h, n, d_h), got (3, 4)"),
    (lambda c, a: c.merge_heads([[[1.0]]]), KIND, "x must be an array, got list"),
    (lambda c, a: c.previous_token_score(a(floats(1, 3, 4))),
     RANGE, "weights must have shape (*batch, h, n, n), got (1, 3, 4)"),
    (lambda c, a: c.first_token_score(a(floats(3, 3))),
     RANGE, "weights must have shape (*batch, h, n, n), got (3, 3)"),
    (lambda c, a: c.previous_token_score(a(floats(1, 3, 3)), 3),
     RANGE, "distance must be less than the number of tokens, 3, got 3"),
    (lambda c, a: c.previous_token_score(a(floats(1, 3, 3)), -1),
     RANGE, "distance must be a non-negative integer, got -1"),
    (lambda c, a: c.previous_token_score(a(INTS[:, :3])),
     KIND, "weights must have a floating dtype, got int64"),
    (lambda c, a: c.induction_score(a(floats(1, 3, 3)), 3),
     RANGE, "period must be less than the number of tokens, 3, got 3"),
    (lambda c, a: c.induction_score(a(floats(1, 3, 3)), 0),
     RANGE, "period must be a positive integer, got 0"),
    (lambda c, a: c.induction_score(a(floats(1, 3, 3)), 1.0),
     KIND, "period must be a positive integer, got 1.0"),
    (lambda c, a: c.first_token_score(a(floats(1, 1, 1))),
     RANGE, "weights must be of at least 2 tokens, got 1"),
    (lambda c, a: c.first_token_score([[1.0]]), KIND, "weights must be an array, got list"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 3), RANGE, "num_heads must divide dim = 4, got 3"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "MultiHeadAttention", 0, 1), RANGE, "dim must be a positive integer, got 0"),
    (lambda c, a: make(c, "MultiHeadAttention", 4.0, 2), KIND, "dim must be a positive integer, got 4.0"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, dropout_rate=1),
     RANGE, "dropout_rate must be a number in [0, 1), got 1"),
    (lambda c, a: layer(c)(a(floats(2, 3, 5)), a(X), a(X)),
     RANGE, "query must have shape (*batch, n, 4), got (2, 3, 5)"),
    (lambda c, a: layer(c)(a(X), a(floats(2, 5, 3)), a(X)),
     RANGE, "key must have shape (2, n_k, 4), got (2, 5, 3)"),
    (lambda c, a: layer(c)(a(X), a(X), a(K)), RANGE, "value must have shape (2, 3, 4), got (2, 5, 4)"),
    (lambda c, a: layer(c)(a(X), a(X), 3), KIND, "value must be an array, got int"),
    (lambda c, a: layer(c)(a(X), a(X), half(c, 2, 3, 4)),
     KIND, "value must have the dtype of query, float64, got float16"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), mask=a(INTS)),
     KIND, "mask must be bool (True means may attend), got int64"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), mask=a(np.stack([BOOLS[..., :3]] * 3, 1))),
     RANGE, "mask must have a shape that broadcasts to (2, 2, 3, 3), got (2, 3, 3, 3)"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), key_positions=a([0, 1])),
     RANGE, "key_positions must have shape (3,) or (2, 3), got (2,)"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), key_positions=[0, 1, 2]),
     KIND, "key_positions must be an array, got list"),
    (lambda c, a: layer(c)(a(X), a(X[:, :2]), a(X[:, :2]), key_positions=a([0, 1])),
     RANGE, "key_positions must cover the 3 queries where query_positions are not given, got 2"),
    (lambda c, a: layer(c, bias=lambda q, k: a(floats(3, 3, 3)))(a(X), a(X), a(X)),
     RANGE, "bias must have a shape that broadcasts to (2, 2, 3, 3), got (3, 3, 3)"),
    # sinusoidal encoding
    (lambda c, a: c.frequencies(0), RANGE, "dim must be a positive integer, got 0"),
    (lambda c, a: c.frequencies(-4), RANGE, "dim must be a positive integer, got -4"),
    (lambda c, a: c.frequencies(True), KIND, "dim must be a positive integer, got True"),
    (lambda c, a: c.frequencies(4, base=0), RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: c.frequencies(4, base=-2.0), RANGE, "base must be a positive finite number, got -2.0"),
    (lambda c, a: c.frequencies(4, base=np.inf), RANGE, "base must be a positive finite number, got inf"),
    (lambda c, a: c.frequencies(4, base=np.nan), RANGE, "base must be a positive finite number, got nan"),
    (lambda c, a: c.frequencies(4, base="e"), KIND, "base must be a positive finite number, got 'e'"),
    (lambda c, a: c.frequencies(4, base=True), KIND, "base must be a positive finite number, got True"),
    (lambda c, a: sines(c, -1, 4),
     RANGE, "length_or_positions must be a non-negative integer or an array of positions, got -1"),
    (lambda c, a: sines(c, 2.5, 4),
     KIND, "length_or_positions must be a non-negative integer or an array of positions, got 2.5"),
    (lambda c, a: sines(c, [0, 1], 4),
     KIND, "length_or_positions must be a non-negative integer or an array of positions, got [0, 1]"),
    (lambda c, a: sines(c, True, 4),
     KIND, "length_or_positions must be a non-negative integer or an array of positions, got True"),
    (lambda c, a: sines(c, a(np.ones(2, bool)), 4),
     KIND, "length_or_positions must hold integers, float32 or float64, got bool"),
    (lambda c, a: sines(c, half(c, 2), 4),
     KIND, "length_or_positions must hold integers, float32 or float64, got float16"),
    (lambda c, a: sines(c, half(c, 2, dtype="bfloat16"), 4),
     KIND, "length_or_positions must hold integers, float32 or float64, got bfloat16"),
    (lambda c, a: sines(c, a(np.array(2.5)), 4),
     RANGE, "length_or_positions must have shape (*batch, n), got ()"),
    (lambda c, a: sines(c, 3, 0), RANGE, "dim must be a positive integer, got 0"),
    (lambda c, a: sines(c, 3, 4, base=0.0), RANGE, "base must be a positive finite number, got 0.0"),
    (lambda c, a: c.shift_matrix(1, 5), RANGE, "dim must be a positive even integer, got 5"),
    (lambda c, a: c.shift_matrix(1, 0), RANGE, "dim must be a positive even integer, got 0"),
    (lambda c, a: c.shift_matrix(1, 4.0), KIND, "dim must be a positive even integer, got 4.0"),
    (lambda c, a: c.shift_matrix(np.inf, 4), RANGE, "offset must be a finite number, got inf"),
    (lambda c, a: c.shift_matrix(None, 4), KIND, "offset must be a finite number, got None"),
    (lambda c, a: c.shift_matrix(1, 4, base=-1.0), RANGE, "base must be a positive finite number, got -1.0"),
    (lambda c, a: c.PositionalEncoding(0), RANGE, "dim must be a positive integer, got 0"),
    (lambda c, a: encoding(c, dropout_rate=1.5), RANGE, "dropout_rate must be a number in [0, 1), got 1.5"),
    (lambda c, a: encoding(c, base=0.0), RANGE, "base must be a positive finite number, got 0.0"),
    (lambda c, a: encoding(c)(a(floats(3, 5))), RANGE, "x must have shape (*batch, n, 4), got (3, 5)"),
    (lambda c, a: encoding(c)(a(floats(4))), RANGE, "x must have shape (*batch, n, 4), got (4,)"),
    (lambda c, a: encoding(c)(X.tolist()), KIND, "x must be an array, got list"),
    (lambda c, a: encoding(c)(a(INTS)), KIND, "x must have a floating dtype, got int64"),
    (lambda c, a: encoding(c)(a(X), positions=a([[0, 1, 2]])),
     RANGE, "positions must have shape (3,) or (2, 3), got (1, 3)"),
    (lambda c, a: encoding(c)(a(X), positions=half(c, 3)),
     KIND, "positions must hold integers, float32 or float64, got float16"),
    # learned encoding
    (lambda c, a: make(c, "LearnedPositionalEncoding", 0, 4),
     RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: make(c, "LearnedPositionalEncoding", 5, 0.5),
     KIND, "dim must be a positive integer, got 0.5"),
    (lambda c, a: learned(c)(a(floats(6, 4))), RANGE, "x must have at most max_len = 5 tokens, got 6"),
    (lambda c, a: learned(c)(a(floats(3, 5))), RANGE, "x must have shape (*batch, n, 4), got (3, 5)"),
    (lambda c, a: learned(c)(X.tolist()), KIND, "x must be an array, got list"),
    (lambda c, a: learned(c)(a(X), positions=a([0, 1, 5])),
     RANGE, "positions must lie between 0 and max_len - 1 = 4, got 5"),
    (lambda c, a: learned(c)(a(X), positions=a([0, -1, 4])),
     RANGE, "positions must lie between 0 and max_len - 1 = 4, got -1"),
    (lambda c, a: learned(c)(a(X), positions=a(floats(3))),
     KIND, "positions must have an integer dtype, got float64"),
    (lambda c, a: learned(c)(a(X), positions=a([0, 1])),
     RANGE, "positions must have shape (3,) or (2, 3), got (2,)"),
    (lambda c, a: learned(c)(a(X), positions=[0, 1, 2]), KIND, "positions must be an array, got list"),
    # ring
    (lambda c, a: c.balanced_order(10, 4),
     RANGE, "n must be a multiple of 2 * workers = 8, got 10"),
    (lambda c, a: c.balanced_order(8, 0), RANGE, "workers must be a positive integer, got 0"),
    (lambda c, a: c.balanced_order(8.0, 2), KIND, "n must be a non-negative integer, got 8.0"),
    (lambda c, a: ring(c, a(Q), K.tolist(), a(V)), KIND, "key must be an array, got list"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), scale=np.inf),
     RANGE, "scale must be a finite number, got inf"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), mask=[True]), KIND,
     "mask must be a bool array of keys or a function (query_positions, key_positions), got list"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), mask=a(BOOLS)),
     RANGE, "mask must have a shape that broadcasts to (2, 1, 5), got (2, 3, 5)"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), mask=a(np.ones((1, 5), int))),
     KIND, "mask must be bool (True means may attend), got int64"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), bias=a(floats(3, 5))), KIND,
     "bias must be a function of positions where keys are spread over workers, "
     "got an array of shape (3, 5)"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), bias="ALiBi"), KIND,
     "bias must be a function (query_positions, key_positions) or have a method scores, got str"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), bias=[c.StickBreaking()]),
     RANGE, "bias must score each query and key on their own, got StickBreaking, which needs all keys"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), bias=make(c, "ShawRelative", 2, 4)),
     RANGE, "bias must change only the scores, got ShawRelative, which also changes the values"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), query_positions=a(np.arange(4))),
     RANGE, "query_positions must have shape (3,), got (4,)"),
    (lambda c, a: ring(c, a(Q), a(K), a(V), key_positions=a(np.arange(5))), RANGE,
     "query_positions must be given where key_positions are, unless each query is a key, "
     "got 3 queries and 5 keys"),
    # randomised positions
    (lambda c, a: c.randomized_positions(5, 4, rng=c.rng()),
     RANGE, "length must be at most max_len = 4, got 5"),
    (lambda c, a: c.randomized_positions(-1, 4, rng=c.rng()),
     RANGE, "length must be a non-negative integer, got -1"),
    (lambda c, a: c.randomized_positions(0, 0, rng=c.rng()),
     RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: c.randomized_positions(2.0, 4, rng=c.rng()),
     KIND, "length must be a non-negative integer, got 2.0"),
    (lambda c, a: c.randomized_positions(2, "4", rng=c.rng()),
     KIND, "max_len must be a positive integer, got '4'"),
    # forgetting gate
    (lambda c, a: c.forgetting_bias(a(INTS)), KIND, "log_gates must have a floating dtype, got int64"),
    (lambda c, a: c.forgetting_bias(X.tolist()), KIND, "log_gates must be an array, got list"),
    (lambda c, a: c.forgetting_bias(a(floats(5))),
     RANGE, "log_gates must have shape (*batch, h, n_k), got (5,)"),
    (lambda c, a: c.forgetting_bias(a(floats(2, 5)), 6), RANGE, "n_q must be at most n_k = 5, got 6"),
    (lambda c, a: c.forgetting_bias(a(floats(2, 5)), -1),
     RANGE, "n_q must be a non-negative integer, got -1"),
    (lambda c, a: c.forgetting_bias(a(floats(2, 5)), 1.0),
     KIND, "n_q must be a non-negative integer, got 1.0"),
    (lambda c, a: c.tiled_forgetting_bias(a(INTS)),
     KIND, "log_gates must have a floating dtype, got int64"),
    (lambda c, a: c.tiled_forgetting_bias(a(floats(5))),
     RANGE, "log_gates must have shape (*batch, h, n_k), got (5,)"),
    (lambda c, a: c.tiled_forgetting_bias(a(floats(2, 5)))(a([7]), a([4])),
     RANGE, "query_positions must lie below the number of gates, 5, got 7"),
    (lambda c, a: c.tiled_forgetting_bias(a(floats(2, 5)))(a([0.0]), a([4])),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: c.tiled_forgetting_bias(a(floats(3, 2, 5)))(a([[0]]), a([4])),
     RANGE, "query_positions must have shape (1,) or (3, 1), got (1, 1)"),
    (lambda c, a: make(c, "ForgettingGate", 0, 2), RANGE, "dim must be a positive integer, got 0"),
    (lambda c, a: make(c, "ForgettingGate", 4, 2.0),
     KIND, "num_heads must be a positive integer, got 2.0"),
    (lambda c, a: gate(c)(a(floats(3, 5))), RANGE, "x must have shape (*batch, n, 4), got (3, 5)"),
    (lambda c, a: gate(c)(a(floats(4))), RANGE, "x must have shape (*batch, n, 4), got (4,)"),
    (lambda c, a: gate(c)(a(INTS)), KIND, "x must have a floating dtype, got int64"),
    (lambda c, a: gate(c)(X.tolist()), KIND, "x must be an array, got list"),
    # CoPE
    (lambda c, a: make(c, "CoPE", 0, 4), RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: make(c, "CoPE", 5, None), KIND, "head_dim must be a positive integer, got None"),
    (lambda c, a: cope(c, a(floats(2, 3, 5)), a(K), a([0, 1, 2]), a([0, 1, 2, 3, 4])),
     RANGE, "query must have shape (*batch, h, n_q, 4), got (2, 3, 5)"),
    (lambda c, a: cope(c, a(floats(3, 4)), a(K), a([0, 1, 2]), a([0, 1, 2, 3, 4])),
     RANGE, "query must have shape (*batch, h, n_q, 4), got (3, 4)"),
    (lambda c, a: cope(c, a(INTS), a(K), a([0, 1, 2]), a([0, 1, 2, 3, 4])),
     KIND, "query must have a floating dtype, got int64"),
    (lambda c, a: cope(c, a(Q), a(K[:1]), a([0, 1, 2]), a([0, 1, 2, 3, 4])),
     RANGE, "key must have shape (2, n_k, 4), got (1, 5, 4)"),
    (lambda c, a: cope(c, a(Q), half(c, 2, 5, 4), a([0, 1, 2]), a([0, 1, 2, 3, 4])),
     KIND, "key must have the dtype of query, float64, got float16"),
    (lambda c, a: cope(c, a(Q), a(K), a([0, 1]), a([0, 1, 2, 3, 4])),
     RANGE, "query_positions must have shape (3,), got (2,)"),
    (lambda c, a: cope(c, a(Q), a(K), a([0, 1, 2]), a([0, 1, 2])),
     RANGE, "key_positions must have shape (5,), got (3,)"),
    (lambda c, a: cope(c, a(Q), a(K), [0, 1, 2], a([0, 1, 2, 3, 4])),
     KIND, "query_positions must be an array, got list"),
    (lambda c, a: cope(c, a(Q), a(K), a([0, 1, 2]), half(c, 5)),
     KIND, "key_positions must hold integers, float32 or float64, got float16"),
    # rotary
    (lambda c, a: c.rotate(X.tolist()), KIND, "x must be an array, got list"),
    (lambda c, a: c.rotate(a(INTS)), KIND, "x must have a floating dtype, got int64"),
    (lambda c, a: c.rotate(a(floats(4))), RANGE, "x must have shape (*batch, n, d), got (4,)"),
    (lambda c, a: c.rotate(a(floats(3, 7))),
     RANGE, "x must have an even width where frequencies are not given, got 7"),
    (lambda c, a: c.rotate(a(X), [0, 1, 2]), KIND, "positions must be an array, got list"),
    (lambda c, a: c.rotate(a(X), half(c, 3)),
     KIND, "positions must hold integers, float32 or float64, got float16"),
    (lambda c, a: c.rotate(a(X), a([0, 1])),
     RANGE, "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (2,)"),
    (lambda c, a: c.rotate(a(X), a(np.zeros((3, 3), int))),
     RANGE, "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (3, 3)"),
    (lambda c, a: c.rotate(a(floats(2, 2, 3, 4)), a(np.zeros((2, 3), int))), RANGE,
     "positions must have shape (3,) or (2, 2, 3), in which a batch axis may be 1, got (2, 3)"),
    (lambda c, a: c.rotate(a(X), a(np.zeros((1, 2, 3), int))),
     RANGE, "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (1, 2, 3)"),
    (lambda c, a: c.rotate(a(X), frequencies=[1.0]), KIND, "frequencies must be an array, got list"),
    (lambda c, a: c.rotate(a(X), frequencies=a([1, 2])),
     KIND, "frequencies must hold float32 or float64, got int64"),
    (lambda c, a: c.rotate(a(X), frequencies=half(c, 2, dtype="bfloat16")),
     KIND, "frequencies must hold float32 or float64, got bfloat16"),
    (lambda c, a: c.rotate(a(X), frequencies=a(floats(3))),
     RANGE, "frequencies must have shape (m) with m <= 2, got (3,)"),
    (lambda c, a: c.rotate(a(X), frequencies=a(floats(1, 2))),
     RANGE, "frequencies must have shape (m) with m <= 2, got (1, 2)"),
    (lambda c, a: c.rotate(a(X), base=0), RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: c.rotate(a(X), layout="neox"),
     RANGE, "layout must be 'interleaved' or 'half', got 'neox'"),
    (lambda c, a: c.rotate(a(X), layout=None), KIND, "layout must be 'interleaved' or 'half', got None"),
    (lambda c, a: c.rotate(a(X), attention_factor=0.0),
     RANGE, "attention_factor must be a positive finite number, got 0.0"),
    (lambda c, a: c.rotate(a(X), attention_factor="1"),
     KIND, "attention_factor must be a positive finite number, got '1'"),
    (lambda c, a: c.to_half([1.0, 2.0]), KIND, "x must be an array, got list"),
    (lambda c, a: c.to_half(a(np.array(1.0))), RANGE, "x must have shape (*batch, d), got ()"),
    (lambda c, a: c.to_interleaved(3), KIND, "x must be an array, got int"),
    (lambda c, a: c.to_interleaved(a(np.array(1.0))), RANGE, "x must have shape (*batch, d), got ()"),
    (lambda c, a: c.weight_to_half([[1.0]], 1), KIND, "weight must be an array, got list"),
    (lambda c, a: c.weight_to_half(a(INTS), 1), KIND, "weight must have a floating dtype, got int64"),
    (lambda c, a: c.weight_to_half(a(X), 1), RANGE, "weight must have 1 or 2 axes, got shape (2, 3, 4)"),
    (lambda c, a: c.weight_to_half(a(floats(4, 4)), 3), RANGE, "num_heads must divide dim = 4, got 3"),
    (lambda c, a: c.weight_to_half(a(floats(4, 4)), 2.0),
     KIND, "num_heads must be a positive integer, got 2.0"),
    (lambda c, a: c.weight_to_half(a(floats(6)), 2),
     RANGE, "rotary_dim must be a positive even integer, got 3"),
    (lambda c, a: c.weight_to_half(a(floats(8)), 2, 3),
     RANGE, "rotary_dim must be a positive even integer, got 3"),
    (lambda c, a: c.weight_to_half(a(floats(8)), 2, 6),
     RANGE, "rotary_dim must be at most the width of a head, 4, got 6"),
    (lambda c, a: c.weight_to_interleaved(a(floats(8)), 2, "4"),
     KIND, "rotary_dim must be a positive even integer, got '4'"),
    (lambda c, a: c.weight_to_interleaved(a(floats(8)), 3), RANGE, "num_heads must divide dim = 8, got 3"),
    # mrope
    (lambda c, a: c.mrope_frequencies(7, (1, 2)), RANGE, "dim must be a positive even integer, got 7"),
    (lambda c, a: c.mrope_frequencies(8, (1, 2)),
     RANGE, "sections must be positive integers with sum 4, got (1, 2)"),
    (lambda c, a: c.mrope_frequencies(8, (0, 4)),
     RANGE, "sections must be positive integers with sum 4, got (0, 4)"),
    (lambda c, a: c.mrope_frequencies(8, (2.0, 2)),
     KIND, "sections must be positive integers with sum 4, got (2.0, 2)"),
    (lambda c, a: c.mrope_frequencies(8, 4), KIND, "sections must be positive integers with sum 4, got 4"),
    (lambda c, a: c.mrope_frequencies(8, (4,), base=-2),
     RANGE, "base must be a positive finite number, got -2"),
    (lambda c, a: c.mrope_frequencies(16, (2, 4, 2), interleaved=True), RANGE,
     "sections must give axis 1 at most 3 of 8 pairs where the axes take turns, got (2, 4, 2)"),
    (lambda c, a: c.mrope_frequencies(16, [4, 1, 3], interleaved=True), RANGE,
     "sections must give axis 2 at most 2 of 8 pairs where the axes take turns, got [4, 1, 3]"),
    (lambda c, a: c.mrope_frequencies(8, (4,), interleaved=1),
     KIND, "interleaved must be True or False, got 1"),
    (lambda c, a: c.mrope_positions(5),
     KIND, "segments must be a list of numbers of words and of grids (t, h, w), got 5"),
    (lambda c, a: c.mrope_positions([2.5]),
     KIND, "segments must hold numbers of words and grids (t, h, w), got 2.5"),
    (lambda c, a: c.mrope_positions([3, "image"]),
     KIND, "segments must hold numbers of words and grids (t, h, w), got 'image'"),
    (lambda c, a: c.mrope_positions([-1]),
     RANGE, "a number of words in segments must be a non-negative integer, got -1"),
    (lambda c, a: c.mrope_positions([(2, 3)]),
     RANGE, "a grid in segments must be (t, h, w) or (t, h, w, step), got (2, 3)"),
    (lambda c, a: c.mrope_positions([(1, 0, 3)]),
     RANGE, "h of a grid in segments must be a positive integer, got 0"),
    (lambda c, a: c.mrope_positions([(1, 2, 3.0)]),
     KIND, "w of a grid in segments must be a positive integer, got 3.0"),
    (lambda c, a: c.mrope_positions([(1, 2, 3, -0.5)]),
     RANGE, "step of a grid in segments must be a finite number of at least 0, got -0.5"),
    (lambda c, a: c.mrope_positions([(1, 2, 3, "1")]),
     KIND, "step of a grid in segments must be a finite number of at least 0, got '1'"),
    (lambda c, a: c.mrope_positions([2], start=-1),
     RANGE, "start must be a non-negative integer, got -1"),
    # proportional
    (lambda c, a: c.proportional_frequencies(7, rotary_dim=2),
     RANGE, "head_dim must be a positive even integer, got 7"),
    (lambda c, a: c.proportional_frequencies(8, rotary_dim=3),
     RANGE, "rotary_dim must be a positive even integer, got 3"),
    (lambda c, a: c.proportional_frequencies(8, rotary_dim=0.25),
     KIND, "rotary_dim must be a positive even integer, got 0.25"),
    (lambda c, a: c.proportional_frequencies(8, rotary_dim=10),
     RANGE, "rotary_dim must be at most the width of a head, 8, got 10"),
    (lambda c, a: c.proportional_frequencies(8, base=0, rotary_dim=2),
     RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: c.proportional_frequencies(8, rotary_dim=2, factor=0.5),
     RANGE, "factor must be a finite number of at least 1, got 0.5"),
    # fope
    (lambda c, a: c.fope_frequencies(7, trained_length=64),
     RANGE, "head_dim must be a positive even integer, got 7"),
    (lambda c, a: c.fope_frequencies(8, trained_length=0),
     RANGE, "trained_length must be a positive integer, got 0"),
    (lambda c, a: c.fope_frequencies(8, trained_length=64.5),
     KIND, "trained_length must be a positive integer, got 64.5"),
    (lambda c, a: c.fope_frequencies(8, trained_length=64, base=0),
     RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: waves(c, a, floats(2, 4)), RANGE, "x must have shape (*batch, h, n, d_h), got (2, 4)"),
    (lambda c, a: waves(c, a, floats(2, 2, 5)), RANGE, "x must have an even width, got 5"),
    (lambda c, a: waves(c, a, frequencies=floats(1, 1)),
     RANGE, "frequencies must have shape (K), got (1, 1)"),
    (lambda c, a: waves(c, a, cos_weight=floats(2, 2, 1)), RANGE,
     "cos_weight must have shape (H, 1, m), where H divides 2 and m <= 2, got (2, 2, 1)"),
    (lambda c, a: waves(c, a, cos_weight=floats(3, 1, 1)), RANGE,
     "cos_weight must have shape (H, 1, m), where H divides 2 and m <= 2, got (3, 1, 1)"),
    (lambda c, a: waves(c, a, cos_weight=floats(2, 1, 3)), RANGE,
     "cos_weight must have shape (H, 1, m), where H divides 2 and m <= 2, got (2, 1, 3)"),
    (lambda c, a: waves(c, a, sin_weight=floats(1, 1, 1)), RANGE,
     "sin_weight must have shape (2, 1, 1), got (1, 1, 1)"),
    (lambda c, a: waves(c, a, sin_weight=INTS),
     KIND, "sin_weight must have a floating dtype, got int64"),
    (lambda c, a: waves(c, a, rest_sine=math.inf),
     RANGE, "rest_sine must be a finite number, got inf"),
    (lambda c, a: waves(c, a, rest_sine="1"), KIND, "rest_sine must be a finite number, got '1'"),
    (lambda c, a: waves(c, a, layout="x"),
     RANGE, "layout must be 'interleaved' or 'half', got 'x'"),
    # scaling
    (lambda c, a: c.position_interpolation(7, factor=2),
     RANGE, "dim must be a positive even integer, got 7"),
    (lambda c, a: c.position_interpolation(8.0, factor=2),
     KIND, "dim must be a positive even integer, got 8.0"),
    (lambda c, a: c.position_interpolation(8, base=-1.0, factor=2),
     RANGE, "base must be a positive finite number, got -1.0"),
    (lambda c, a: c.position_interpolation(8, factor=0.5),
     RANGE, "factor must be a finite number of at least 1, got 0.5"),
    (lambda c, a: c.ntk_aware(0, factor=2), RANGE, "dim must be a positive even integer, got 0"),
    (lambda c, a: c.ntk_aware(8, factor=np.inf),
     RANGE, "factor must be a finite number of at least 1, got inf"),
    (lambda c, a: c.ntk_aware(8, base="1", factor=2),
     KIND, "base must be a positive finite number, got '1'"),
    (lambda c, a: c.dynamic_ntk(8, factor=None, length=1, trained_length=1),
     KIND, "factor must be a finite number of at least 1, got None"),
    (lambda c, a: c.dynamic_ntk(8, factor=2, length=-1, trained_length=1),
     RANGE, "length must be a non-negative integer, got -1"),
    (lambda c, a: c.dynamic_ntk(8, factor=2, length=10, trained_length=0),
     RANGE, "trained_length must be a positive integer, got 0"),
    (lambda c, a: c.dynamic_ntk(9, factor=2, length=10, trained_length=1),
     RANGE, "dim must be a positive even integer, got 9"),
    (lambda c, a: c.dynamic_ntk(8, base=0, factor=2, length=10, trained_length=1),
     RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: c.yarn(9, factor=2, trained_length=1), RANGE, "dim must be a positive even integer, got 9"),
    (lambda c, a: c.yarn(8, factor=0, trained_length=1),
     RANGE, "factor must be a finite number of at least 1, got 0"),
    (lambda c, a: c.yarn(8, base=1, factor=2, trained_length=1),
     RANGE, "base must be a finite number above 1, got 1"),
    (lambda c, a: c.yarn(8, factor=2, trained_length=2048.0),
     KIND, "trained_length must be a positive integer, got 2048.0"),
    (lambda c, a: c.yarn(8, factor=2, trained_length=9, beta_slow=0),
     RANGE, "beta_slow must be a positive finite number, got 0"),
    (lambda c, a: c.yarn(8, factor=2, trained_length=9, beta_fast=1, beta_slow=2),
     RANGE, "beta_fast must be a finite number above beta_slow = 2.0, got 1"),
    (lambda c, a: longrope(c, dim=9), RANGE, "dim must be a positive even integer, got 9"),
    (lambda c, a: longrope(c, base=0), RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: longrope(c, short_factors=[1.0]),
     RANGE, "short_factors must hold 2 positive finite numbers, got 1"),
    (lambda c, a: longrope(c, short_factors=3),
     KIND, "short_factors must hold 2 positive finite numbers, got 3"),
    (lambda c, a: longrope(c, long_factors=[1.0, 0.0]),
     RANGE, "long_factors must hold 2 positive finite numbers, got 0.0"),
    (lambda c, a: longrope(c, long_factors=["a", 1.0]),
     KIND, "long_factors must hold 2 positive finite numbers, got ['a', 1.0]"),
    (lambda c, a: longrope(c, length=2.5), KIND, "length must be a non-negative integer, got 2.5"),
    (lambda c, a: longrope(c, trained_length=0), RANGE, "trained_length must be a positive integer, got 0"),
    (lambda c, a: longrope(c, trained_length=1),
     RANGE, "trained_length must be a finite number above 1, got 1"),
    (lambda c, a: longrope(c, factor=0.9), RANGE, "factor must be a finite number of at least 1, got 0.9"),
    (lambda c, a: c.yarn(8, factor=2, trained_length=9, mscale=-0.5),
     RANGE, "mscale must be a finite number of at least 0, got -0.5"),
    (lambda c, a: c.yarn(8, factor=2, trained_length=9, mscale_all_dim="1"),
     KIND, "mscale_all_dim must be a finite number of at least 0, got '1'"),
    (lambda c, a: c.llama3(True), KIND, "dim must be a positive even integer, got True"),
    (lambda c, a: c.llama3(8, base=np.nan), RANGE, "base must be a positive finite number, got nan"),
    (lambda c, a: c.llama3(8, factor=-8), RANGE, "factor must be a finite number of at least 1, got -8"),
    (lambda c, a: c.llama3(8, low_frequency_factor=0),
     RANGE, "low_frequency_factor must be a positive finite number, got 0"),
    (lambda c, a: c.llama3(8, high_frequency_factor=0.5),
     RANGE, "high_frequency_factor must be a finite number of at least low_frequency_factor = 1.0, got 0.5"),
    (lambda c, a: c.llama3(8, trained_length=-1), RANGE, "trained_length must be a positive integer, got -1"),
    # xpos
    (lambda c, a: c.xpos_query(None), KIND, "x must be an array, got NoneType"),
    (lambda c, a: c.xpos_query(a(floats(2, 5))),
     RANGE, "x must have an even width where frequencies are not given, got 5"),
    (lambda c, a: c.xpos_query(a(X), a([0, 1])),
     RANGE, "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (2,)"),
    (lambda c, a: c.xpos_query(a(X), gamma=0), RANGE, "gamma must be a positive finite number, got 0"),
    (lambda c, a: c.xpos_key(a(X), scale_base=-512),
     RANGE, "scale_base must be a positive finite number, got -512"),
    (lambda c, a: c.xpos_key(a(X), base="e"), KIND, "base must be a positive finite number, got 'e'"),
    (lambda c, a: c.xpos_key(a(X), layout="Half"),
     RANGE, "layout must be 'interleaved' or 'half', got 'Half'"),
    # axial
    (lambda c, a: c.rotate_axes([[1.0]], a(floats(3, 2)), a(floats(2, 2))),
     KIND, "x must be an array, got list"),
    (lambda c, a: c.rotate_axes(a(X), [[0, 1]], a(floats(2, 2))),
     KIND, "coordinates must be an array, got list"),
    (lambda c, a: c.rotate_axes(a(X), half(c, 3, 2), a(floats(2, 2))),
     KIND, "coordinates must hold integers, float32 or float64, got float16"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 3)), a(floats(2, 2))), RANGE,
     "coordinates must have shape (3, 2) or (2, 3, 2), in which a batch axis may be 1, got (3, 3)"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3)), a(floats(2, 2))), RANGE,
     "coordinates must have shape (3, 2) or (2, 3, 2), in which a batch axis may be 1, got (3,)"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 2)), [[1.0]]),
     KIND, "frequencies must be an array, got list"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 2)), half(c, 2, 2)),
     KIND, "frequencies must hold float32 or float64, got float16"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 2)), a(floats(2, 3))),
     RANGE, "frequencies must have shape (c, m) or (c, 2, m) with m <= 2, got (2, 3)"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 2)), a(floats(2, 3, 2))),
     RANGE, "frequencies must have shape (c, m) or (c, 2, m) with m <= 2, got (2, 3, 2)"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 0)), a(floats(0, 2))),
     RANGE, "frequencies must have shape (c, m) or (c, 2, m) with m <= 2, got (0, 2)"),
    (lambda c, a: c.rotate_axes(a(X[0]), a(floats(3, 2)), a(floats(2, 1, 2))),
     RANGE, "frequencies must have shape (c, m) or (c, h, m) with m <= 2, got (2, 1, 2)"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 2)), a(floats(2, 2)), layout=1),
     KIND, "layout must be 'interleaved' or 'half', got 1"),
    (lambda c, a: c.rotate_axes(a(X), a(floats(3, 2)), a(floats(2, 2)), attention_factor=0),
     RANGE, "attention_factor must be a positive finite number, got 0"),
    (lambda c, a: c.RotaryAxes([1.0, 0.5]), KIND,
     "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m), "
     "got [1.0, 0.5]"),
    (lambda c, a: c.RotaryAxes("12"), KIND,
     "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m), "
     "got '12'"),
    (lambda c, a: c.RotaryAxes(None), KIND,
     "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m), "
     "got None"),
    (lambda c, a: c.RotaryAxes(()), RANGE,
     "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m), "
     "got rows of [] numbers"),
    (lambda c, a: c.RotaryAxes([[1.0], [1.0, 2.0]]), RANGE,
     "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m), "
     "got rows of [1, 2] numbers"),
    (lambda c, a: c.RotaryAxes([[np.nan]]), RANGE, "frequencies must be finite, got nan"),
    (lambda c, a: c.RotaryAxes([[1.0]], layout="x"),
     RANGE, "layout must be 'interleaved' or 'half', got 'x'"),
    (lambda c, a: c.RotaryAxes([[1.0]], attention_factor=-1),
     RANGE, "attention_factor must be a positive finite number, got -1"),
    (lambda c, a: c.RotaryAxes([[1.0], [2.0]])(a(X), a(floats(3))), RANGE,
     "coordinates must have shape (3, 2) or (2, 3, 2), in which a batch axis may be 1, got (3,)"),
    (lambda c, a: c.RotaryAxes([[1.0], [2.0]])(a(X), None), KIND,
     "coordinates must be an array, got NoneType"),
    (lambda c, a: c.axial_frequencies(6), RANGE, "dim must be a positive multiple of 4, got 6"),
    (lambda c, a: c.axial_frequencies(6.0), KIND, "dim must be a positive multiple of 4, got 6.0"),
    (lambda c, a: c.axial_frequencies(8, 0), RANGE, "num_axes must be a positive integer, got 0"),
    (lambda c, a: c.axial_frequencies(8, base=0), RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: c.grid_coordinates(0, 2), RANGE, "height must be a positive integer, got 0"),
    (lambda c, a: c.grid_coordinates(2, 2.5), KIND, "width must be a positive integer, got 2.5"),
    (lambda c, a: make(c, "MixedRotary", 6, 2, 3),
     RANGE, "head_dim must be a positive multiple of 4, got 6"),
    (lambda c, a: make(c, "MixedRotary", 8, 0, 3), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "MixedRotary", 8, 2, -3), RANGE, "width must be a positive integer, got -3"),
    (lambda c, a: make(c, "MixedRotary", 8, 2, 3, base=0),
     RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: make(c, "MixedRotary", 8, 2, 3, layout="x"),
     RANGE, "layout must be 'interleaved' or 'half', got 'x'"),
    (lambda c, a: make(c, "MixedRotary", 4, 2, 3)(a(X[0])),
     RANGE, "x must have shape (*batch, h, n, d_h), got (3, 4)"),
    (lambda c, a: make(c, "MixedRotary", 4, 2, 3)(a(X), a(floats(3))),
     KIND, "positions must have an integer dtype, got float64"),
    (lambda c, a: make(c, "MixedRotary", 4, 2, 3)(a(X), a([0, 1])),
     RANGE, "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (2,)"),
    (lambda c, a: make(c, "MixedRotary", 4, 3, 3)(a(X)),
     RANGE, "frequencies must have shape (c, m) or (c, 2, m) with m <= 2, got (2, 3, 2)"),
    # multi-head attention with a bias for one call, and another scale
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, scale=np.nan),
     RANGE, "scale must be a finite number, got nan"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, scale="1"),
     KIND, "scale must be a finite number, got '1'"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), bias=a(floats(3, 4))),
     RANGE, "bias must have a shape that broadcasts to (2, 2, 3, 3), got (3, 4)"),
    (lambda c, a: layer(c, bias=lambda q, k: a(floats(3, 3)))(a(X), a(X), a(X), bias=a(floats(3, 4))),
     RANGE, "bias must have a shape that broadcasts to (2, 2, 3, 3), got (3, 4)"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), bias=a(floats(2, 1, 1, 3, 3))),
     RANGE, "bias must have a shape that broadcasts to (2, 2, 3, 3), got (2, 1, 1, 3, 3)"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), bias=0.5), KIND, "bias must be an array, got float"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), bias=a(INTS)),
     KIND, "bias must have a floating dtype, got int64"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), bias=lambda q, k: None),
     KIND, "bias must be an array, got NoneType"),
    (lambda c, a: layer(c, bias=shaw(c))(a(X), a(X), a(X)),
     RANGE, "query must have shape (*batch, h, n_q, 4), got (2, 2, 3, 2)"),
    # what a layer is told once, and coordinates of a call
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, value_norm=3),
     KIND, "value_norm must be a function, got int"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, rotate=(c.Rotary(), "rope")),
     KIND, "rotate must be a function, got str"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, attention="ring"),
     KIND, "attention must be a function, got str"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, soft_cap=0),
     RANGE, "soft_cap must be a positive finite number, got 0"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, soft_cap="2"),
     KIND, "soft_cap must be a positive finite number, got '2'"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, mask=3), KIND,
     "mask of a layer must be a function (query_positions, key_positions) such as Window, got int"),
    (lambda c, a: layer(c)(a(X), coordinates=a(floats(2, 2))),
     RANGE, "coordinates must have shape (3, 2) or (2, 3, 2), in which a batch axis may be 1, got (2, 2)"),
    (lambda c, a: layer(c)(a(X), coordinates=a(floats(3))),
     RANGE, "coordinates must have shape (3, 3) or (2, 3, 3), in which a batch axis may be 1, got (3,)"),
    (lambda c, a: layer(c)(a(X), a(X), coordinates=a(floats(3, 2))), RANGE,
     "coordinates must be None where key is given: they are those of query, got shape (3, 2)"),
    (lambda c, a: layer(c)(a(X), coordinates=a(floats(3, 2)),
                           cache=c.KVCache.init((2,), 2, 4, 2, rotated=False)),
     RANGE,
     "coordinates must be None with a cache whose keys are not rotated (rotated=False): "
     "it would need those of all tokens at each step, got shape (3, 2)"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2).init_cache((2,), 0),
     RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2).init_cache(2, 4),
     KIND, "batch_shape must be a tuple of non-negative integers, got 2"),
    # heads, widths and positions of a layer
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, num_kv_heads=3),
     RANGE, "num_kv_heads must divide num_heads = 2, got 3"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, num_kv_heads=0),
     RANGE, "num_kv_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, head_dim=2.0),
     KIND, "head_dim must be a positive integer, got 2.0"),
    (lambda c, a: make(c, "MultiHeadAttention", 4, 2, kv_dim=-1),
     RANGE, "kv_dim must be a positive integer, got -1"),
    (lambda c, a: layer(c)(a(X), query_positions=a([0, 1])),
     RANGE, "query_positions must have shape (3,) or (2, 3), got (2,)"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), key_positions=a([0, 1])),
     RANGE, "key_positions must have shape (5,), got (2,)"),
    # a cache
    (lambda c, a: c.KVCache.init((2,), 2, 0, 2), RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: c.KVCache.init((2,), 2, 4, 2, window=0),
     RANGE, "window must be a positive integer, got 0"),
    (lambda c, a: c.KVCache.init((2,), "2", 4, 2),
     KIND, "num_kv_heads must be a positive integer, got '2'"),
    (lambda c, a: c.KVCache.init((-1,), 2, 4, 2),
     RANGE, "batch_shape[0] must be a non-negative integer, got -1"),
    (lambda c, a: layer(c)(a(X), value=a(X), cache=room(c)),
     RANGE, "value must be None where a cache is given, got shape (2, 3, 4)"),
    (lambda c, a: layer(c)(a(X), cache=room(c), key_positions=a([0, 1, 2])),
     RANGE, "key_positions must be None where a cache is given, got shape (3,)"),
    (lambda c, a: layer(c)(a(X), cache=room(c, 2)),
     RANGE, "query_positions must be less than max_len = 2 of the cache, got 2"),
    (lambda c, a: layer(c)(a(X), cache=room(c), query_positions=a(floats(3))),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: layer(c)(a(X), cache=room(c), query_positions=a([0, 1])),
     RANGE, "query_positions must have shape (3,) or (2, 3), got (2,)"),
    # rotary and ALiBi as values
    (lambda c, a: c.ALiBi(0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: c.Rotary(rotary_dim=3), RANGE, "rotary_dim must be a positive even integer, got 3"),
    (lambda c, a: c.Rotary(layout="neox"), RANGE, "layout must be 'interleaved' or 'half', got 'neox'"),
    (lambda c, a: c.Rotary(base=-1.0), RANGE, "base must be a positive finite number, got -1.0"),
    (lambda c, a: c.Rotary(frequencies="fast"),
     KIND, "frequencies must be numbers, or a float32 or float64 array (m), got 'fast'"),
    (lambda c, a: c.Rotary(frequencies=[1.0, np.nan]), RANGE, "frequencies must be finite, got nan"),
    (lambda c, a: c.Rotary(rotary_dim=8, frequencies=[1.0]),
     RANGE, "frequencies must hold 4 numbers, half of rotary_dim, got 1"),
    (lambda c, a: c.Rotary(attention_factor=0.0),
     RANGE, "attention_factor must be a positive finite number, got 0.0"),
    (lambda c, a: c.Rotary(frequencies=[1.0, 0.1, 0.01])(a(X), a([0, 1, 2])),
     RANGE, "frequencies must have shape (m) with m <= 2, got (3,)"),
    # Shaw's relative representations
    (lambda c, a: make(c, "ShawRelative", -1, 4),
     RANGE, "max_distance must be a non-negative integer, got -1"),
    (lambda c, a: make(c, "ShawRelative", 2.0, 4),
     KIND, "max_distance must be a non-negative integer, got 2.0"),
    (lambda c, a: make(c, "ShawRelative", 2, 0), RANGE, "head_dim must be a positive integer, got 0"),
    (lambda c, a: content(c, shaw(c, 6)),
     RANGE, "key_table must have 2 * max_distance + 1 rows, got shape (6, 4)"),
    (lambda c, a: shaw(c, 6).values(a(floats(2, 3, 3, 5)), a(np.arange(3)), a(np.arange(5))),
     RANGE, "value_table must have 2 * max_distance + 1 rows, got shape (6, 4)"),
    (lambda c, a: content(c, shaw(c), query=(2, 3, 3, 5)),
     RANGE, "query must have shape (*batch, h, n_q, 4), got (2, 3, 3, 5)"),
    (lambda c, a: content(c, shaw(c), query=(3, 4)),
     RANGE, "query must have shape (*batch, h, n_q, 4), got (3, 4)"),
    (lambda c, a: content(c, shaw(c), query=Q.tolist()), KIND, "query must be an array, got list"),
    (lambda c, a: content(c, shaw(c), key=(2, 3, 5, 3)),
     RANGE, "key must have shape (2, 3, n_k, 4), got (2, 3, 5, 3)"),
    (lambda c, a: content(c, shaw(c), key=half(c, 2, 3, 5, 4)),
     KIND, "key must have the dtype of query, float64, got float16"),
    (lambda c, a: content(c, shaw(c), query_positions=np.arange(4)),
     RANGE, "query_positions must have shape (3,) or (2, 3), got (4,)"),
    (lambda c, a: content(c, shaw(c), key_positions=np.arange(5)[None]),
     RANGE, "key_positions must have shape (5,) or (2, 5), got (1, 5)"),
    (lambda c, a: content(c, shaw(c), query_positions=floats(3)),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: content(c, shaw(c), key_positions=[0, 1, 2, 3, 4]),
     KIND, "key_positions must be an array, got list"),
    (lambda c, a: shaw(c).values(a(floats(3, 5)), a(np.arange(3)), a(np.arange(5))),
     RANGE, "weights must have shape (*batch, h, n, d_h), got (3, 5)"),
    (lambda c, a: shaw(c).values(a(floats(2, 3, 3, 5)), a(np.arange(5)), a(np.arange(5))),
     RANGE, "query_positions must have shape (3,) or (2, 3), got (5,)"),
    (lambda c, a: shaw(c).values(a(floats(2, 3, 3, 5)), a(np.arange(3)), a(floats(5))),
     KIND, "key_positions must have an integer dtype, got float64"),
    # skew
    (lambda c, a: c.skew(a(floats(3, 4))), RANGE, "x must have shape (*batch, n, n), got (3, 4)"),
    (lambda c, a: c.skew(a(floats(3))), RANGE, "x must have shape (*batch, n, n), got (3,)"),
    (lambda c, a: c.skew(a(INTS)), KIND, "x must have a floating dtype, got int64"),
    # Music Transformer
    (lambda c, a: make(c, "RelativeGlobalAttention", 0, 3, 4),
     RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: make(c, "RelativeGlobalAttention", 6, 0, 4),
     RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "RelativeGlobalAttention", 6, 3, None),
     KIND, "head_dim must be a positive integer, got None"),
    (lambda c, a: content(c, music(c), query=(2, 2, 3, 4)),
     RANGE, "query must have shape (*batch, 3, n_q, 4), got (2, 2, 3, 4)"),
    (lambda c, a: content(c, music(c), key_positions=floats(5)),
     KIND, "key_positions must have an integer dtype, got float64"),
    # Transformer-XL
    (lambda c, a: make(c, "TransformerXLBias", 9, 3),
     RANGE, "dim must be a positive even integer, got 9"),
    (lambda c, a: make(c, "TransformerXLBias", 12, 5), RANGE, "num_heads must divide dim = 12, got 5"),
    (lambda c, a: make(c, "TransformerXLBias", 12, 3, base=0.0),
     RANGE, "base must be a positive finite number, got 0.0"),
    (lambda c, a: xl(c, base=-1.0), RANGE, "base must be a positive finite number, got -1.0"),
    (lambda c, a: content(c, xl(c, 7)),
     RANGE, "the number of rows of weight must be a positive even integer, got 7"),
    (lambda c, a: content(c, xl(c, 12, 8)), RANGE, "weight must have shape (d, 12), got (12, 8)"),
    (lambda c, a: content(c, xl(c), query=(2, 2, 3, 4)),
     RANGE, "query must have shape (*batch, 3, n_q, 4), got (2, 2, 3, 4)"),
    (lambda c, a: content(c, xl(c), key_positions=half(c, 5)),
     KIND, "key_positions must hold integers, float32 or float64, got float16"),
    # DeBERTa
    (lambda c, a: make(c, "DisentangledBias", 0, 12, 3),
     RANGE, "max_distance must be a positive integer, got 0"),
    (lambda c, a: make(c, "DisentangledBias", 4, 12, 5), RANGE, "num_heads must divide dim = 12, got 5"),
    (lambda c, a: make(c, "DisentangledBias", 4, "12", 3), KIND, "dim must be a positive integer, got '12'"),
    (lambda c, a: deberta(c, num_heads=0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: content(c, deberta(c, num_heads=5)), RANGE, "num_heads must divide dim = 12, got 5"),
    (lambda c, a: content(c, deberta(c, table=(7, 12))),
     RANGE, "table must have 2 * max_distance rows, got shape (7, 12)"),
    (lambda c, a: content(c, deberta(c, query_weight=(8, 12))),
     RANGE, "query_weight must have shape (12, h * d_h), got (8, 12)"),
    (lambda c, a: content(c, deberta(c, key_weight=(12, 8))),
     RANGE, "key_weight must have shape (12, 12), got (12, 8)"),
    (lambda c, a: content(c, deberta(c), query=(2, 2, 3, 4)),
     RANGE, "query must have shape (*batch, 3, n_q, 4), got (2, 2, 3, 4)"),
    (lambda c, a: content(c, deberta(c), query_positions=floats(3)),
     KIND, "query_positions must have an integer dtype, got float64"),
    # TUPE
    (lambda c, a: make(c, "TUPEBias", 0, 12, 3), RANGE, "max_len must be a positive integer, got 0"),
    (lambda c, a: make(c, "TUPEBias", 8, 12, 5), RANGE, "num_heads must divide dim = 12, got 5"),
    (lambda c, a: make(c, "TUPEBias", 8, 0, 3), RANGE, "dim must be a positive integer, got 0"),
    (lambda c, a: tupe(c, num_heads=0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: tupe(c, num_heads=5)(a(np.arange(3)), a(np.arange(3))),
     RANGE, "num_heads must divide dim = 12, got 5"),
    (lambda c, a: tupe(c, cls_bias=(3, 2))(a(np.arange(3)), a(np.arange(3))),
     RANGE, "cls_bias must have shape (2, 3), got (3, 2)"),
    (lambda c, a: tupe(c, key_weight=(12, 8))(a(np.arange(3)), a(np.arange(3))),
     RANGE, "key_weight must have shape (12, 12), got (12, 8)"),
    (lambda c, a: tupe(c, table=(8, 4))(a(np.arange(3)), a(np.arange(3))),
     RANGE, "query_weight must have shape (4, h * d_h), got (12, 12)"),
    (lambda c, a: tupe(c)(a(floats(3)), a(np.arange(3))),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: tupe(c)(a(np.arange(3)), [0, 1]), KIND, "key_positions must be an array, got list"),
    (lambda c, a: tupe(c)(a(np.array([0, -1])), a(np.arange(3))),
     RANGE, "query_positions must lie between 0 and max_len - 1 = 7, got -1"),
    (lambda c, a: tupe(c)(a(np.arange(3)), a(np.array([8]))),
     RANGE, "key_positions must lie between 0 and max_len - 1 = 7, got 8"),
    # ALiBi
    (lambda c, a: c.alibi_slopes(0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: c.alibi_slopes(2.0), KIND, "num_heads must be a positive integer, got 2.0"),
    (lambda c, a: c.ALiBi(-1), RANGE, "num_heads must be a positive integer, got -1"),
    (lambda c, a: c.ALiBi("8"), KIND, "num_heads must be a positive integer, got '8'"),
    (lambda c, a: c.ALiBi(2)([0], a([0])), KIND, "query_positions must be an array, got list"),
    (lambda c, a: c.ALiBi(2)(a([0]), 3), KIND, "key_positions must be an array, got int"),
    (lambda c, a: c.ALiBi(2)(a([True]), a([0])),
     KIND, "query_positions must hold integers, float32 or float64, got bool"),
    (lambda c, a: c.ALiBi(2)(a([0]), half(c, 2, dtype="bfloat16")),
     KIND, "key_positions must hold integers, float32 or float64, got bfloat16"),
    (lambda c, a: c.ALiBi(2)(a(np.array(1)), a([0])),
     RANGE, "query_positions must have shape (*batch, n), got ()"),
    (lambda c, a: c.ALiBi(2)(a(INTS[:2]), a(INTS)),
     RANGE, "key_positions must have shape (n_k) or (2, n_k), got (3, 4)"),
    (lambda c, a: c.ALiBi(2)(a(INTS), a(INTS[None])),
     RANGE, "key_positions must have shape (n_k) or (3, n_k), got (1, 3, 4)"),
    # T5
    (lambda c, a: c.t5_bucket([1]), KIND, "relative_position must be an array, got list"),
    (lambda c, a: c.t5_bucket(3), KIND, "relative_position must be an array, got int"),
    (lambda c, a: c.t5_bucket(a(floats(2))),
     KIND, "relative_position must have an integer dtype, got float64"),
    (lambda c, a: c.t5_bucket(a(BOOLS)), KIND, "relative_position must have an integer dtype, got bool"),
    (lambda c, a: c.t5_bucket(a(INTS), num_buckets=2),
     RANGE, "num_buckets must be an even integer of at least 4, got 2"),
    (lambda c, a: c.t5_bucket(a(INTS), num_buckets=33),
     RANGE, "num_buckets must be an even integer of at least 4, got 33"),
    (lambda c, a: c.t5_bucket(a(INTS), num_buckets=32.0),
     KIND, "num_buckets must be an even integer of at least 4, got 32.0"),
    (lambda c, a: c.t5_bucket(a(INTS), num_buckets=1, bidirectional=False),
     RANGE, "num_buckets must be an integer of at least 2, got 1"),
    (lambda c, a: c.t5_bucket(a(INTS), max_distance=8),
     RANGE, "max_distance must be an integer greater than 8, got 8"),
    (lambda c, a: c.t5_bucket(a(INTS), max_distance=16, bidirectional=False),
     RANGE, "max_distance must be an integer greater than 16, got 16"),
    (lambda c, a: c.t5_bucket(a(INTS), max_distance=None),
     KIND, "max_distance must be an integer greater than 8, got None"),
    (lambda c, a: make(c, "T5Bias", 0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "T5Bias", 2, num_buckets=7),
     RANGE, "num_buckets must be an even integer of at least 4, got 7"),
    (lambda c, a: make(c, "T5Bias", 2, max_distance=4),
     RANGE, "max_distance must be an integer greater than 8, got 4"),
    (lambda c, a: make(c, "T5Bias", 2)(a(floats(2)), a([0])),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: make(c, "T5Bias", 2)(a([0]), a(floats(2))),
     KIND, "key_positions must have an integer dtype, got float64"),
    (lambda c, a: make(c, "T5Bias", 2)(a([0]), [0]), KIND, "key_positions must be an array, got list"),
    (lambda c, a: c.with_parameters("T5Bias", {"table": a(floats(32))}, 2)(a([0]), a([0])),
     RANGE, "table must have shape (num_buckets, num_heads), got (32,)"),
    (lambda c, a: c.with_parameters("T5Bias", {"table": a(INTS)}, 2)(a([0]), a([0])),
     KIND, "table must have a floating dtype, got int64"),
    (lambda c, a: c.with_parameters("T5Bias", {"table": a(floats(5, 2))}, 2)(a([0]), a([0])),
     RANGE, "num_buckets must be an even integer of at least 4, got 5"),
    # KERPLE
    (lambda c, a: make(c, "KerpleLog", 0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "KerplePower", 1.5), KIND, "num_heads must be a positive integer, got 1.5"),
    (lambda c, a: make(c, "KerpleLog", 2)(a([0]), [0]), KIND, "key_positions must be an array, got list"),
    (lambda c, a: make(c, "KerplePower", 2)(half(c, 2), a([0])),
     KIND, "query_positions must hold integers, float32 or float64, got float16"),
    (lambda c, a: kerple(c, "KerpleLog", a(floats(2)), a(floats(1)))(a([0]), a([0])),
     RANGE, "r2 must have shape (2), got (1,)"),
    (lambda c, a: kerple(c, "KerplePower", a(floats(1, 2)), a(floats(2)))(a([0]), a([0])),
     RANGE, "r1 must have shape (num_heads), got (1, 2)"),
    # Sandwich
    (lambda c, a: c.sandwich_bias(0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: c.sandwich_bias(2, dim=7), RANGE, "dim must be a positive even integer, got 7"),
    (lambda c, a: c.sandwich_bias(2, dim=8.0), KIND, "dim must be a positive even integer, got 8.0"),
    (lambda c, a: c.sandwich_bias(2, base=0), RANGE, "base must be a positive finite number, got 0"),
    (lambda c, a: c.sandwich_bias(2)([0], a([0])), KIND, "query_positions must be an array, got list"),
    (lambda c, a: c.sandwich_bias(2)(a(INTS), a(INTS[:2])),
     RANGE, "key_positions must have shape (n_k) or (3, n_k), got (2, 4)"),
    # buckets of DeBERTa
    (lambda c, a: c.deberta_bucket(a([0.5])),
     KIND, "relative_position must have an integer dtype, got float64"),
    (lambda c, a: c.deberta_bucket(a([0]), num_buckets=2),
     RANGE, "num_buckets must be an even integer of at least 4, got 2"),
    (lambda c, a: c.deberta_bucket(a([0]), num_buckets=7),
     RANGE, "num_buckets must be an even integer of at least 4, got 7"),
    (lambda c, a: c.deberta_bucket(a([0]), num_buckets="8"),
     KIND, "num_buckets must be an even integer of at least 4, got '8'"),
    (lambda c, a: c.deberta_bucket(a([0]), num_buckets=8, max_distance=5),
     RANGE, "max_distance must be an integer greater than 5, got 5"),
    (lambda c, a: c.deberta_bucket(a([0]), num_buckets=8, max_distance=9.0),
     KIND, "max_distance must be an integer greater than 5, got 9.0"),
    (lambda c, a: make(c, "DisentangledBias", 5, 6, 2, bucketed_to=64),
     RANGE, "max_distance must be an even integer of at least 4, got 5"),
    (lambda c, a: make(c, "DisentangledBias", 8, 6, 2, bucketed_to=5),
     RANGE, "bucketed_to must be an integer greater than 5, got 5"),
    # FIRE
    (lambda c, a: make(c, "FIRE", 0), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "FIRE", 2, hidden_dim=0), RANGE, "hidden_dim must be a positive integer, got 0"),
    (lambda c, a: make(c, "FIRE", 2, threshold=0),
     RANGE, "threshold must be a positive finite number, got 0"),
    (lambda c, a: make(c, "FIRE", 2, threshold="far"),
     KIND, "threshold must be a positive finite number, got 'far'"),
    (lambda c, a: make(c, "FIRE", 2)(a([0]), 0), KIND, "key_positions must be an array, got int"),
    (lambda c, a: fire(c, a)(a([True]), a([0])),
     KIND, "query_positions must hold integers, float32 or float64, got bool"),
    (lambda c, a: fire(c, a, hidden_weight=floats(1, 3))(a([0]), a([0])),
     RANGE, "hidden_weight must have shape (m), got (1, 3)"),
    (lambda c, a: fire(c, a, hidden_bias=floats(1))(a([0]), a([0])),
     RANGE, "hidden_bias must have shape (3), got (1,)"),
    (lambda c, a: fire(c, a, output_bias=floats(1, 2))(a([0]), a([0])),
     RANGE, "output_bias must have shape (num_heads), got (1, 2)"),
    (lambda c, a: fire(c, a, output_weight=floats(2, 3))(a([0]), a([0])),
     RANGE, "output_weight must have shape (3, 2), got (2, 3)"),
    # Swin
    # Swin V2
    (lambda c, a: make(c, "SwinV2Bias", 0, 2, 2), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 0, 2), RANGE, "height must be a positive integer, got 0"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 2, "3"), KIND, "width must be a positive integer, got '3'"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 2, 3, trained_height=-1),
     RANGE, "trained_height must be a positive integer, got -1"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 2, 3, trained_width=1.5),
     KIND, "trained_width must be a positive integer, got 1.5"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 2, 3, hidden_dim=0),
     RANGE, "hidden_dim must be a positive integer, got 0"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 2, 3)(a([0]), a([5, 6])),
     RANGE, "key_positions must lie between 0 and height * width - 1 = 5, got 6"),
    (lambda c, a: make(c, "SwinV2Bias", 2, 2, 3)(a(floats(2)), a([5])),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: swin_v2(c, hidden_weight=floats(3, 3)),
     RANGE, "hidden_weight must have shape (2, 3), got (3, 3)"),
    (lambda c, a: swin_v2(c, hidden_bias=floats(1, 3)),
     RANGE, "hidden_bias must have shape (m), got (1, 3)"),
    (lambda c, a: swin_v2(c, output_weight=floats(2, 2)),
     RANGE, "output_weight must have shape (3, num_heads), got (2, 2)"),
    # DAPE
    (lambda c, a: make(c, "DAPE", 0, c.ALiBi(1)),
     RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "DAPE", 2, c.ALiBi(2), hidden_dim=2.0),
     KIND, "hidden_dim must be a positive integer, got 2.0"),
    (lambda c, a: make(c, "DAPE", 2, "alibi"),
     KIND, "bias must be a function (query_positions, key_positions), got str"),
    (lambda c, a: content(c, dape(c, lambda q, k: a(floats(3, 5)))),
     RANGE, "what bias returns must have shape (3, 3, 5) or (2, 3, 3, 5), got (3, 5)"),
    (lambda c, a: content(c, dape(c, lambda q, k: a(floats(1, 3, 3, 5)))),
     RANGE, "what bias returns must have shape (3, 3, 5) or (2, 3, 3, 5), got (1, 3, 3, 5)"),
    (lambda c, a: content(c, dape(c, lambda q, k: None)),
     KIND, "what bias returns must be an array, got NoneType"),
    (lambda c, a: content(c, dape(c), query=(2, 2, 3, 4)),
     RANGE, "query must have shape (*batch, 3, n_q, 4), got (2, 2, 3, 4)"),
    (lambda c, a: content(c, dape(c), query=Q.tolist()), KIND, "query must be an array, got list"),
    (lambda c, a: content(c, dape(c), key=(2, 3, 5, 3)),
     RANGE, "key must have shape (2, 3, n_k, 4), got (2, 3, 5, 3)"),
    (lambda c, a: content(c, dape(c), key_positions=np.arange(4)),
     RANGE, "key_positions must have shape (5,) or (2, 5), got (4,)"),
    (lambda c, a: content(c, dape(c, hidden_weight=floats(3, 4))),
     RANGE, "hidden_weight must have shape (6, 4), got (3, 4)"),
    (lambda c, a: content(c, dape(c, output_weight=floats(4, 2))),
     RANGE, "output_weight must have shape (4, 3), got (4, 2)"),
    (lambda c, a: content(c, dape(c, hidden_bias=floats(2, 4))),
     RANGE, "hidden_bias must have shape (m), got (2, 4)"),
    (lambda c, a: content(c, dape(c, output_bias=floats(3, 1))),
     RANGE, "output_bias must have shape (num_heads), got (3, 1)"),
    # stick-breaking
    (lambda c, a: content(c, c.StickBreaking(), query=(3, 4)),
     RANGE, "query must have shape (*batch, h, n, d_h), got (3, 4)"),
    (lambda c, a: content(c, c.StickBreaking(), query=Q.tolist()),
     KIND, "query must be an array, got list"),
    (lambda c, a: content(c, c.StickBreaking(), key=(2, 3, 5, 3)),
     RANGE, "key must have shape (2, 3, n_k, 4), got (2, 3, 5, 3)"),
    (lambda c, a: content(c, c.StickBreaking(), query_positions=np.arange(4)),
     RANGE, "query_positions must have shape (3,) or (2, 3), got (4,)"),
    # PoPE
    (lambda c, a: c.polar_query(Q.tolist()), KIND, "x must be an array, got list"),
    (lambda c, a: c.polar_query(a(Q), base=0.0),
     RANGE, "base must be a positive finite number, got 0.0"),
    (lambda c, a: c.polar_query(a(Q), a(np.arange(4))),
     RANGE, "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (4,)"),
    (lambda c, a: c.PolarKey(3, 0) if c.name == "torch" else c.PolarKey.init(3, 0),
     RANGE, "head_dim must be a positive integer, got 0"),
    (lambda c, a: c.PolarKey(True, 4) if c.name == "torch" else c.PolarKey.init(True, 4),
     KIND, "num_heads must be a positive integer, got True"),
    (lambda c, a: c.PolarKey(3, 4, base="b") if c.name == "torch" else c.PolarKey.init(3, 4, base="b"),
     KIND, "base must be a positive finite number, got 'b'"),
    (lambda c, a: polar(c, a(floats(3, 4))), RANGE, "x must have shape (*batch, h, n, d_h), got (3, 4)"),
    (lambda c, a: polar(c, a(floats(2, 5, 4))), RANGE, "phase must have shape (2, 4), got (3, 4)"),
    # Swin
    (lambda c, a: make(c, "SwinBias", 0, 2, 2), RANGE, "num_heads must be a positive integer, got 0"),
    (lambda c, a: make(c, "SwinBias", 2, 0, 2), RANGE, "height must be a positive integer, got 0"),
    (lambda c, a: make(c, "SwinBias", 2, 2, 2.5), KIND, "width must be a positive integer, got 2.5"),
    (lambda c, a: make(c, "SwinBias", 2, 2, 3)(a([0]), a([5, 6])),
     RANGE, "key_positions must lie between 0 and height * width - 1 = 5, got 6"),
    (lambda c, a: make(c, "SwinBias", 2, 2, 3)(a([-1, 0]), a([5])),
     RANGE, "query_positions must lie between 0 and height * width - 1 = 5, got -1"),
    (lambda c, a: make(c, "SwinBias", 2, 2, 3)(a(floats(2)), a([5])),
     KIND, "query_positions must have an integer dtype, got float64"),
    (lambda c, a: make(c, "SwinBias", 2, 2, 3)(a([0]), None),
     KIND, "key_positions must be an array, got NoneType"),
    (lambda c, a: c.with_parameters("SwinBias", {"table": a(floats(9, 2))}, 2, height=2, width=3)(
        a([0]), a([0])), RANGE, "table must have shape (15, num_heads), got (9, 2)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "exception", "text"), CASES, ids=[text for *_, text in CASES]
)
def test_bad_input_is_named_with_its_value_alike_in_every_column(
    column, call, exception, text
):
    with pytest.raises(exception) as caught:
        call(column, column.array)
    assert caught.type is exception
    assert str(caught.value) == text


# the only words that differ between columns: what each draws from
BAD_RNG = [
    lambda c, a, rng: attend(c, a(Q), a(K), a(V), dropout_rate=0.5, rng=rng),
    lambda c, a, rng: attend(c, a(Q), a(K), a(V), rng=rng),
    lambda c, a, rng: c.dropout(a(X), 0.5, rng),
    lambda c, a, rng: c.dropout(a(X), 0.0, rng),
    lambda c, a, rng: layer(c)(a(X), a(X), a(X), rng=rng),
    lambda c, a, rng: encoding(c)(a(X), rng=rng),
    lambda c, a, rng: make(c, "MultiHeadAttention", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "LearnedPositionalEncoding", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "ShawRelative", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "RelativeGlobalAttention", 4, 2, 3, rng=rng),
    lambda c, a, rng: make(c, "TransformerXLBias", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "DisentangledBias", 3, 4, 2, rng=rng),
    lambda c, a, rng: make(c, "TUPEBias", 3, 4, 2, rng=rng),
    lambda c, a, rng: make(c, "MixedRotary", 4, 2, 3, rng=rng),
    lambda c, a, rng: c.randomized_positions(2, 4, rng=rng),
    lambda c, a, rng: make(c, "ForgettingGate", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "CoPE", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "T5Bias", 2, rng=rng),
    lambda c, a, rng: make(c, "KerpleLog", 2, rng=rng),
    lambda c, a, rng: make(c, "KerplePower", 2, rng=rng),
    lambda c, a, rng: make(c, "FIRE", 2, rng=rng),
    lambda c, a, rng: make(c, "SwinBias", 2, 2, 3, rng=rng),
    lambda c, a, rng: make(c, "SwinV2Bias", 2, 2, 3, rng=rng),
    lambda c, a, rng: make(c, "DAPE", 2, c.ALiBi(2), rng=rng),
]


SEED = ", or a seed: an integer or a tensor () of one"


@pytest.mark.parametrize(
    ("rng", "kind"), [(0.5, "float"), ("seed", "str"), (range(3), "range")]
)
@pytest.mark.parametrize("call", BAD_RNG)
def test_a_wrong_rng_is_named_with_what_the_column_draws_from(column, call, rng, kind):
    with pytest.raises(TypeError) as caught:
        call(column, column.array, rng)
    said = f"rng must be a {GENERATOR[column.name]}, got {kind}"
    assert str(caught.value).replace(SEED, "") == said
    seeds = column.name == "torch" and BAD_RNG.index(call) < 6  # what drops, not what draws
    assert (SEED in str(caught.value)) == seeds


# what looks bad and is not: the call, the shape of its result
EMPTY = [
    (lambda c, a: c.causal_mask(0), (0, 0)),
    (lambda c, a: c.window_mask(0, 3, 1), (0, 3)),
    (lambda c, a: c.masked_softmax(a(floats(2, 0))), (2, 0)),
    (lambda c, a: attend(c, a(Q[:, :0]), a(K), a(V)), (2, 0, 6)),
    (lambda c, a: attend(c, a(Q), a(K[:, :0]), a(V[:, :0])), (2, 3, 6)),
    (lambda c, a: attend(c, a(Q), a(K), a(V[..., :0])), (2, 3, 0)),
    (lambda c, a: layer(c)(a(X[:0]), a(X[:0]), a(X[:0])), (0, 3, 4)),
    (lambda c, a: layer(c)(a(X[:, :0]), a(X[:, :0]), a(X[:, :0]), causal=True), (2, 0, 4)),
    (lambda c, a: sines(c, 0, 5), (0, 5)),
    (lambda c, a: encoding(c)(a(X[:, :0])), (2, 0, 4)),
    (lambda c, a: learned(c)(a(X[:, :0])), (2, 0, 4)),
    (lambda c, a: c.balanced_order(0, 4), (0,)),
    (lambda c, a: c.randomized_positions(0, 4, rng=c.rng()), (0,)),
    (lambda c, a: c.forgetting_bias(a(floats(2, 0))), (2, 0, 0)),
    (lambda c, a: gate(c)(a(X[:, :0])), (2, 2, 0)),
    (lambda c, a: cope(c, a(Q[:, :0]), a(K), a(np.arange(0)), a(np.arange(5))), (2, 0, 5)),
    (lambda c, a: c.merge_heads(c.split_heads(a(X[:, :0]), 2)), (2, 0, 4)),
]


@pytest.mark.parametrize(("call", "shape"), EMPTY)
def test_empty_sequences_are_fine(column, call, shape):
    out = call(column, column.array)
    assert tuple(out.shape) == shape
    assert not out.any()


def test_a_nan_spoils_only_what_may_read_it(column):
    x = floats(3, 4)
    x[1] = np.nan
    mask = column.array(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool))
    out = column.scaled_dot_product_attention(*[column.array(x[:, :2])] * 3, mask=mask[:1])
    assert np.array_equal(column.numpy(out)[[0, 2]], np.broadcast_to(x[0, :2], (2, 2)))
    encoded = column.numpy(encoding(column)(column.array(x)))
    assert np.isnan(encoded).all(axis=-1).tolist() == [False, True, False]


def test_numpy_integers_and_numbers_are_welcome(column):
    mask = column.causal_mask(np.int64(2), np.int32(3))
    assert column.numpy(mask).shape == (2, 3)
    assert sines(column, np.int8(2), 4).shape == (2, 4)
    frequencies = column.frequencies(np.int64(4), base=np.float32(100))
    assert np.array_equal(
        np.asarray(frequencies), np.asarray(column.frequencies(4, base=100))
    )


def test_an_array_that_is_no_key_is_no_rng():
    with pytest.raises(TypeError, match="rng must be a JAX key, got ArrayImpl"):
        posattn.jax.dropout(jnp.ones(2), 0.5, jnp.zeros(2))
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert posattn.jax.dropout(jnp.ones(2), 0.5, key).shape == (2,)


# what must be told alike in all columns although each is hostile to another framework
TAKEN = {"reference": "NumPy array", "torch": "torch.Tensor", "jax": "JAX array"}


def foreign(column, x):
    """An array of another framework."""
    return np.array(x) if column.name == "torch" else torch.tensor(x)


FOREIGN = [
    ("x", lambda c, a, x: c.rotate(x)),
    ("value", lambda c, a, x: attend(c, a(Q), a(K), x)),
    ("bias", lambda c, a, x: attend(c, a(Q), a(K), a(V), bias=[x])),
    ("positions", lambda c, a, x: encoding(c)(a(X), positions=x)),
    ("query", lambda c, a, x: layer(c)(x)),
]


@pytest.mark.parametrize(("name", "call"), FOREIGN, ids=[name for name, _ in FOREIGN])
def test_an_array_of_another_framework_is_named(column, name, call):
    given = foreign(column, floats(5, 4))
    kind = type(given)
    with pytest.raises(TypeError) as caught:
        call(column, column.array, given)
    told = f"got {kind.__module__}.{kind.__name__}"
    assert str(caught.value) == f"{name} must be a {TAKEN[column.name]}, {told}"


def test_numpy_arrays_are_welcome_in_jax():
    x = np.float32(floats(3, 4))
    assert np.allclose(posattn.jax.rotate(x), posattn.jax.rotate(jnp.asarray(x)))


@pytest.mark.parametrize("value", [2, "yes", None, np.ones(2)])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("causal", lambda c, a, value: attend(c, a(Q), a(K), a(V), causal=value)),
        ("causal", lambda c, a, value: layer(c)(a(X), causal=value)),
        (
            "truncate",
            lambda c, a, value: c.yarn(
                4, base=1e4, factor=2.0, trained_length=8, truncate=value
            ),
        ),
        ("use_values", lambda c, a, value: make(c, "ShawRelative", 2, 4, use_values=value)),
        ("gate", lambda c, a, value: make(c, "MultiHeadAttention", 4, 2, gate=value)),
        ("sinks", lambda c, a, value: make(c, "MultiHeadAttention", 4, 2, sinks=value)),
    ],
)
def test_a_switch_is_true_or_false(column, name, call, value):
    with pytest.raises(TypeError) as caught:
        call(column, column.array, value)
    assert str(caught.value) == f"{name} must be True or False, got {value!r}"


def test_a_length_is_pythons_own_integer_afterwards():
    assert {type(contract.length_or_positions(n)) for n in (3, np.uint8(3))} == {int}


def test_numpy_and_no_switches_are_welcome(column):
    yes = attend(column, *map(column.array, (Q, K, V)), causal=np.bool_(True))
    assert np.array_equal(
        *map(
            column.numpy, (yes, attend(column, *map(column.array, (Q, K, V)), causal=True))
        )
    )
    assert make(column, "MultiHeadAttention", 4, 2, use_output_bias=None) is not None
    with pytest.raises(TypeError) as caught:
        make(column, "MultiHeadAttention", 4, 2, use_output_bias="no")
    assert str(caught.value) == "use_output_bias must be True, False or None, got 'no'"


LARGE = [
    (lambda c, a: c.causal_mask(2**63), "n_q must be a non-negative integer below 2**63"),
    (lambda c, a: c.balanced_order(2**64, 1), "n must be a non-negative integer below 2**63"),
    (lambda c, a: sines(c, 2**63, 4),
     "length_or_positions must be a non-negative integer or an array of positions below 2**63"),
    (lambda c, a: c.t5_bucket(a(np.arange(2)), max_distance=2**63),
     "max_distance must be an integer greater than 8 below 2**63"),
    (lambda c, a: c.deberta_bucket(a(np.arange(2)), num_buckets=2**64, max_distance=9),
     "num_buckets must be an even integer of at least 4 below 2**63"),
    (lambda c, a: c.frequencies(4, base=10**400), "base must be a positive finite number"),
    (lambda c, a: attend(c, a(Q), a(K), a(V), scale=-(10**400)), "scale must be a finite number"),
    (lambda c, a: longrope(c, short_factors=[1.0, 10**400]),
     "short_factors must hold 2 positive finite numbers"),
    (lambda c, a: c.Rotary(frequencies=[-(10**400)]), "frequencies must be finite"),
    (lambda c, a: c.ntk_aware(4, factor=1e200), "factor must leave the base finite"),
    (lambda c, a: c.dynamic_ntk(4, factor=1e308, length=9, trained_length=1),
     "factor must leave the base finite"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), LARGE, ids=[text for _, text in LARGE])
def test_numbers_beyond_64_bits_are_named(column, call, text):
    with pytest.raises(ValueError, match=" must ") as caught:
        call(column, column.array)
    assert str(caught.value).startswith(f"{text}, got ")


def test_a_seed_beyond_64_bits_is_named(torch_column):
    with pytest.raises(
        ValueError, match=r"rng must be a seed of 64 bits, got 1844674407370"
    ):
        torch_column.dropout(torch.ones(2), 0.5, 2**64)


def unsigned(column, x):
    """An array of uint64, for which PyTorch lacks most operations."""
    make = {"reference": np.array, "torch": torch.tensor, "jax": jnp.array}[column.name]
    kind = {"torch": torch.uint64}.get(column.name, np.uint64)
    return make(x, dtype=kind)


@pytest.mark.slow
def test_sizes_lengths_and_positions_may_be_unsigned(column):
    mask = column.causal_mask(unsigned(column, 2))
    assert column.numpy(mask).tolist() == [[True, False], [True, True]]
    mask = column.length_mask(unsigned(column, [1, 2]), 2)
    assert column.numpy(mask).tolist() == [[[True, False]], [[True, True]]]
    swin = make(column, "SwinBias", 1, 2, 2)
    assert swin(unsigned(column, [1]), unsigned(column, [0, 3])).shape == (1, 1, 2)
    table = learned(column)
    rows = table(column.array(floats(2, 4)), positions=unsigned(column, [4, 0]))
    assert rows.shape == (2, 4)
    scheme = tupe(column)
    assert scheme(unsigned(column, [4]), unsigned(column, [0, 3])).shape == (3, 1, 2)
    cache = room(column)
    kept, _ = cache.append(*[column.array(floats(2, 2, 1, 2))] * 2, unsigned(column, [1]))
    assert column.numpy(kept.next_positions(1)).tolist() == [[2], [2]]


REQUIRED = [
    ("x", lambda c, a: c.rotate(None)),
    ("value", lambda c, a: attend(c, a(Q), a(K), None)),
    ("value", lambda c, a: ring(c, a(Q), a(K), None)),
    ("query", lambda c, a: layer(c)(None)),
    ("weights", lambda c, a: shaw(c).values(None, a(np.arange(2)), a(np.arange(2)))),
    ("query_positions", lambda c, a: room(c).mask(None)),
]


@pytest.mark.parametrize(("name", "call"), REQUIRED)
def test_none_for_a_required_array_is_named(column, name, call):
    with pytest.raises(TypeError) as caught:
        call(column, column.array)
    assert str(caught.value) == f"{name} must be an array, got NoneType"


@pytest.mark.parametrize("part", [1, 1j])
def test_complex_numbers_are_for_the_reference_which_differentiates_by_them(column, part):
    make = {"reference": np.array, "torch": torch.tensor, "jax": jnp.array}[column.name]
    x = make(part * floats(3, 4) + 0j)
    if column.name == "reference":
        assert column.rotate(x).dtype == complex
        return
    with pytest.raises(TypeError, match="x must hold real numbers, got complex128"):
        column.rotate(x)


@pytest.mark.parametrize(
    ("name", "kind", "sizes", "value", "exception", "text"),
    [
        (
            "LearnedPositionalEncoding",
            "table",
            (2, 4),
            None,
            KIND,
            "an array, got NoneType",
        ),
        ("LearnedPositionalEncoding", "table", (2, 4), [1.0], KIND, "an array, got list"),
        ("FIRE", "c", (2,), "c", KIND, "an array, got str"),
        ("FIRE", "hidden_weight", (2,), floats(2, 3), RANGE, "have shape (m), got (2, 3)"),
        ("ForgettingGate", "offset", (4, 2), floats(3), RANGE, "have shape (2), got (3,)"),
        ("TUPEBias", "table", (4, 4, 2), INTS, KIND, "have a floating dtype, got int64"),
        ("T5Bias", "table", (2,), 3, KIND, "an array, got int"),
        ("KerpleLog", "r1", (2,), floats(0), RANGE, "not be empty, got shape (0,)"),
    ],
)
def test_what_replaces_a_parameter_is_named(
    column, name, kind, sizes, value, exception, text
):
    made = make(column, name, *sizes)
    value = column.array(value) if isinstance(value, np.ndarray) else value
    if column.name == "torch":
        delattr(made, kind)
        setattr(made, kind, value)
    else:
        made = dataclasses.replace(made, **{kind: value})
    given = [column.positions(np.arange(2))] * 2
    if name in ("LearnedPositionalEncoding", "ForgettingGate"):
        given = [column.array(floats(2, 4))]
    with pytest.raises(exception) as caught:
        made(*given)
    verb = "" if text.startswith(("have", "not")) else "be "
    assert str(caught.value).replace("(2,)", "(2)") == f"{kind} must {verb}{text}"


@pytest.mark.parametrize("name", ["c", "multiplier", "hidden_bias", "output_weight"])
def test_a_nan_among_the_parameters_of_fire_stays_one(column, name):
    parameters = {"c": floats(), "multiplier": floats(), "hidden_weight": floats(3),
                  "hidden_bias": floats(3), "output_weight": floats(3, 2),
                  "output_bias": floats(2)}  # fmt: skip
    parameters[name] = parameters[name] * np.nan
    arrays = {key: column.array(value) for key, value in parameters.items()}
    fire = column.with_parameters("FIRE", arrays, 2)
    where = column.positions(np.array([1, 600]))
    assert np.isnan(column.numpy(fire(where, where))).all()


@pytest.mark.parametrize("name", ["KerpleLog", "KerplePower"])
def test_a_nan_among_positions_stays_one(column, name):
    parameters = {key: column.array(np.ones(2)) for key in ("r1", "r2")}
    kerple = column.with_parameters(name, parameters, 2)
    where = column.array(np.array([1.0, np.nan]))
    found = np.isnan(column.numpy(kerple(where, where)))
    assert found.tolist() == [[[False, True], [True, True]]] * 2


WEIGHTS = {f"{role}_weight": floats(4, 4) for role in PROJECTIONS}


@pytest.mark.parametrize(  # PyTorch's layer has modules, which know their shapes
    "column", [COLUMNS[0], COLUMNS[2]], ids=str, indirect=True
)
@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("value_weight", (4, 2), "(4, 4)"),
        ("output_weight", (4, 3), "(4, 4)"),
        ("output_bias", (3,), "(4)"),
        ("key_bias", (8,), "(4)"),
        ("gate_weight", (4, 3), "(4, 4)"),
        ("gate_bias", (1,), "(4)"),
    ],
)
def test_weights_of_a_layer_that_do_not_belong_together_are_named(
    column, name, shape, expected
):
    gate = {"gate_weight": WEIGHTS["query_weight"]}
    weights = {**WEIGHTS, **gate, name: floats(*shape)}
    weights = {n: column.array(x) for n, x in weights.items()}
    heads = column.MultiHeadAttention(**weights, num_heads=2)
    for method in (heads, heads.attention_weights):
        text = f"{name} must have shape {expected}, got {shape}"
        with pytest.raises(ValueError, match=re.escape(text)):
            method(column.array(X))


@pytest.mark.parametrize("column", [COLUMNS[0], COLUMNS[2]], ids=str, indirect=True)
def test_an_offset_of_a_gate_that_is_not_there_is_named(column):
    weights = {n: column.array(x) for n, x in WEIGHTS.items()}
    heads = column.MultiHeadAttention(**weights, gate_bias=column.array(floats(4)))
    text = "gate_weight must be given where gate_bias is, got None"
    with pytest.raises(ValueError, match=text):
        heads(column.array(X))


@pytest.mark.parametrize(
    ("name", "part"), [("value", np.s_[..., :1]), ("positions", np.s_[:0])]
)
def test_arrays_of_a_cache_that_do_not_belong_together_are_named(column, name, part):
    kept = room(column)
    wrong = dataclasses.replace(kept, **{name: getattr(kept, name)[part]})
    tokens = column.array(floats(2, 2, 1, 2))
    for call in (
        lambda: wrong.next_positions(2),
        lambda: wrong.append(tokens, tokens, column.positions(np.arange(1))),
        lambda: wrong.mask(column.positions(np.arange(1))),
    ):
        with pytest.raises(ValueError, match=f"{name} must have shape"):
            call()


def test_two_biases_of_transformer_xl_belong_together(column):
    shapes = {"content_bias": (3, 4), "position_bias": (1, 4), "weight": (12, 12)}
    parameters = {name: column.array(floats(*shape)) for name, shape in shapes.items()}
    if column.name == "torch":
        scheme = xl(column)
        scheme.position_bias.data = parameters["position_bias"]
    else:
        scheme = column.TransformerXLBias(**parameters)
    with pytest.raises(ValueError, match=r"position_bias must have shape \(3, 4\), got"):
        content(column, scheme)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mask", lambda c, a: attend(c, a(Q), a(K), a(V), mask=c.Window)),
        ("mask", lambda c, a: make(c, "MultiHeadAttention", 4, 2, mask=c.Window)),
        ("bias", lambda c, a: attend(c, a(Q), a(K), a(V), bias=[None, c.ALiBi])),
        (
            "rotate",
            lambda c, a: make(c, "MultiHeadAttention", 4, 2, rotate=(c.Rotary, None)),
        ),
        ("query_norm", lambda c, a: make(c, "MultiHeadAttention", 4, 2, query_norm=dict)),
    ],
)
def test_a_class_in_the_place_of_an_instance_is_named(column, name, call):
    with pytest.raises(TypeError) as caught:
        call(column, column.array)
    made = {"mask": "Window", "bias": "ALiBi", "rotate": "Rotary", "query_norm": "dict"}
    assert str(caught.value) == (
        f"{name} must be an instance, made by {made[name]}(...), got the class itself"
    )


@pytest.mark.parametrize("beta", [5e-324, 1e308])
def test_yarn_takes_every_number_of_turns(column, beta):
    slow, fast = sorted((beta, 1.0))
    where, factor = column.yarn(
        8, factor=2.0, trained_length=6, beta_slow=slow, beta_fast=fast
    )
    assert np.isfinite(np.asarray(where)).all()
    assert np.isfinite(factor)


def test_a_weight_without_rows_has_nothing_to_convert(column):
    weight = column.array(floats(4, 0) if column.name == "torch" else floats(0, 4))
    assert column.weight_to_half(weight, 2).shape == weight.shape


def test_texts_and_times_are_no_numbers(column):
    for kind, value in {"<U1": "a", "datetime64[D]": "2020-01-01", "i4,f4": (1, 2)}.items():
        with pytest.raises(TypeError) as caught:
            column.to_half(np.array([value] * 2, kind))
        if column.name != "torch":
            assert str(caught.value).startswith("x must hold numbers, got ")


def test_a_cache_is_a_cache(column):
    expected = rf"cache must be a posattn\.{column.name}\.KVCache or None, got "
    with pytest.raises(TypeError, match=expected + "4"):
        layer(column)(column.array(X), cache=4)
    other = column.LatentCache.init((2,), 4, 2)
    with pytest.raises(
        TypeError, match=expected + rf"posattn\.{column.name}\.LatentCache$"
    ):
        layer(column)(column.array(X), cache=other)
    with pytest.raises(
        TypeError, match="batch_shape must be a tuple of non-negative integers"
    ):
        column.KVCache.init(None, 2, 4, 2)


@pytest.mark.parametrize("given", ["x", 0, "int32", object])
@pytest.mark.parametrize("column", TWINS[:2], ids=str, indirect=True)
def test_a_dtype_is_a_floating_one(column, given):
    with pytest.raises(TypeError) as caught:
        column.ALiBi(2, dtype=given)
    assert str(caught.value) == f"dtype must be a floating dtype or None, got {given!r}"
    with pytest.raises(TypeError, match="dtype must be a floating dtype or None, got "):
        make(column, "SwinBias", 2, 2, 2, dtype=np.int32)


def test_a_nan_in_a_bounded_parameter_stays_one(column):
    swin = swin_v2(column, hidden_bias=np.full(3, np.nan))
    assert np.isnan(column.numpy(swin)).all()
    phase = {"phase": column.array(np.full((2, 4), np.nan))}
    key = column.with_parameters("PolarKey", phase, 2, 4)
    assert np.isnan(column.numpy(key(column.array(floats(2, 3, 4))))).any()
