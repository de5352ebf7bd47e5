"""Bad input: the same exception with the same words in every column, and harmless input that looks bad."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posattn.jax
from tests.conftest import draw

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


def layer(column, **options):
    return column.multi_head([column.array(floats(4, 4))] * 4, 2, **options)


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


def sines(column, where, *arguments, **options):
    return column.sinusoidal_encoding(where, *arguments, **options)


def half(column, *shape, dtype="float16"):
    """An array in a dtype that has no place in the columns' adapters."""
    import jax.numpy as jnp
    import torch

    return {
        "reference": lambda: np.zeros(shape, jnp.dtype(dtype)),
        "torch": lambda: torch.zeros(shape, dtype=getattr(torch, dtype)),
        "jax": lambda: jnp.zeros(shape, dtype),
    }[column.name]()


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
    (lambda c, a: c.length_mask([1, 2], 3), KIND, "lengths must be an array, got list"),
    (lambda c, a: c.length_mask(2, 3), KIND, "lengths must be an array, got int"),
    (lambda c, a: c.length_mask(a(floats(2)), 3), KIND, "lengths must have an integer dtype, got float64"),
    (lambda c, a: c.length_mask(a(np.ones(2, bool)), 3),
     KIND, "lengths must have an integer dtype, got bool"),
    (lambda c, a: c.length_mask(a(np.array(2)), 3),
     RANGE, "lengths must have shape (batch) or (batch, n_q), got ()"),
    (lambda c, a: c.length_mask(a(np.ones((1, 2, 1), int)), 3),
     RANGE, "lengths must have shape (batch) or (batch, n_q), got (1, 2, 1)"),
    (lambda c, a: c.length_mask(a([2, 4]), 3), RANGE, "lengths must lie between 0 and n_k = 3, got 4"),
    (lambda c, a: c.length_mask(a([2, -1]), 3), RANGE, "lengths must lie between 0 and n_k = 3, got -1"),
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
    (lambda c, a: c.attention_weights(a(Q), a(floats(1, 5, 4))),
     RANGE, "key must have shape (2, n_k, 4), got (1, 5, 4)"),
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
    (lambda c, a: layer(c)(a(X), a(X), None), KIND, "value must be an array, got NoneType"),
    (lambda c, a: layer(c)(a(X), a(X), half(c, 2, 3, 4)),
     KIND, "value must have the dtype of query, float64, got float16"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), mask=a(INTS)),
     KIND, "mask must be bool (True means may attend), got int64"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), mask=a(BOOLS[:, None, :, :3])),
     RANGE, "mask must have a shape that broadcasts to (2, 3, 3), got (2, 1, 3, 3)"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), positions=a([0, 1])),
     RANGE, "positions must have shape (3,) or (2, 3), got (2,)"),
    (lambda c, a: layer(c)(a(X), a(X), a(X), positions=[0, 1, 2]),
     KIND, "positions must be an array, got list"),
    (lambda c, a: layer(c)(a(X), a(X[:, :2]), a(X[:, :2]), positions=a([0, 1])),
     RANGE, "positions must cover the 3 queries, got 2 positions, one per key"),
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
     RANGE, "query_positions must have shape (3,) or (3,), got (2,)"),
    (lambda c, a: cope(c, a(Q), a(K), a([0, 1, 2]), a([0, 1, 2])),
     RANGE, "key_positions must have shape (5,) or (5,), got (3,)"),
    (lambda c, a: cope(c, a(Q), a(K), [0, 1, 2], a([0, 1, 2, 3, 4])),
     KIND, "query_positions must be an array, got list"),
    (lambda c, a: cope(c, a(Q), a(K), a([0, 1, 2]), half(c, 5)),
     KIND, "key_positions must hold integers, float32 or float64, got float16"),
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
    lambda c, a, rng: c.randomized_positions(2, 4, rng=rng),
    lambda c, a, rng: make(c, "ForgettingGate", 4, 2, rng=rng),
    lambda c, a, rng: make(c, "CoPE", 4, 2, rng=rng),
]


@pytest.mark.parametrize(
    ("rng", "kind"), [(0, "int"), ("seed", "str"), (range(3), "range")]
)
@pytest.mark.parametrize("call", BAD_RNG)
def test_a_wrong_rng_is_named_with_what_the_column_draws_from(column, call, rng, kind):
    with pytest.raises(TypeError) as caught:
        call(column, column.array, rng)
    assert str(caught.value) == f"rng must be a {GENERATOR[column.name]}, got {kind}"


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
    frequencies = column.frequencies(np.int64(4), base=np.float32(100))
    assert np.array_equal(
        np.asarray(frequencies), np.asarray(column.frequencies(4, base=100))
    )


def test_an_array_that_is_no_key_is_no_rng():
    with pytest.raises(TypeError, match="rng must be a JAX key, got ArrayImpl"):
        posattn.jax.dropout(jnp.ones(2), 0.5, jnp.zeros(2))
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert posattn.jax.dropout(jnp.ones(2), 0.5, key).shape == (2,)
