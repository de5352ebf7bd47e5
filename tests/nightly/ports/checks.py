"""One port against the conformance vectors and against attention carried over from PyTorch.

`nox -s ports` runs this in the environment of each port, on Python 3.8 too.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from posattn.conformance.vectors import decode, load

NAME = os.environ["POSATTN_PORT"]
CARRIED = json.loads(
    Path(os.environ["POSATTN_CARRIED"]).read_text(encoding="utf-8"), object_hook=decode
)
BOUND = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 3e-2}


class _TensorFlow:
    half = "bfloat16"
    foreign = "not a generator"

    def __init__(self):
        import tensorflow as tf

        from posattn.ports import tensorflow as port

        self.tf, self.port = tf, port

    def array(self, x, dtype=None):
        x = np.asarray(x)
        return self.tf.constant(x, dtype if x.dtype.kind == "f" else None)

    def numpy(self, x):
        return self.tf.cast(x, "float64").numpy()

    def rng(self, seed):
        return self.tf.random.Generator.from_seed(seed)

    def attention(self, dim, num_heads, state=None, dtype=None, **options):
        layer = self.port.MultiHeadAttention(dim, num_heads, dtype=dtype, **options)
        for name, value in (state or {}).items():
            self._parameter(layer, name).assign(value.T)
        return layer

    def _parameter(self, layer, name):
        role, kind = name.split(".")
        projection = getattr(layer, role)
        return projection.kernel if kind == "weight" else projection.bias

    def differentiate(self, function, inputs, cotangent, layer=None, names=()):
        """The value, and the gradients of inputs and of weights, which are rotated as PyTorch's."""
        weights = [self._parameter(layer, name).value for name in names]
        with self.tf.GradientTape() as tape:
            tape.watch(inputs)
            value = function(*inputs)
        slopes = tape.gradient(
            value,
            [*inputs, *weights],
            output_gradients=cotangent,
            unconnected_gradients=self.tf.UnconnectedGradients.ZERO,
        )
        slopes = [self.numpy(x) for x in slopes]
        return value, [*slopes[: len(inputs)], *(x.T for x in slopes[len(inputs) :])]

    def compiled(self, function):
        return self.tf.function(function)


class _Mlx:
    half = "bfloat16"

    def __init__(self):
        import mlx.core as mx
        from mlx import nn

        from posattn.ports import mlx as port

        mx.set_default_device(mx.cpu)  # where MLX has float64
        self.mx, self.nn, self.port = mx, nn, port

    def array(self, x, dtype=None):
        x = np.asarray(x)
        return self.mx.array(
            x, getattr(self.mx, dtype or "float32") if x.dtype.kind == "f" else None
        )

    def numpy(self, x):
        return np.array(x.astype(self.mx.float64))

    def rng(self, seed):
        return self.mx.random.key(seed)

    def attention(self, dim, num_heads, state=None, dtype="float32", **options):
        dtype = getattr(self.mx, dtype)
        layer = self.port.MultiHeadAttention(dim, num_heads, dtype=dtype, **options)
        if state:
            layer.load_weights([(k, self.mx.array(v, dtype)) for k, v in state.items()])
        return layer

    def differentiate(self, function, inputs, cotangent, layer=None, names=()):
        """The value, and the gradients of inputs and of weights."""

        def product(*inputs):
            return (function(*inputs) * cotangent).sum()

        slopes = self.mx.vjp(function, inputs, [cotangent])[1]
        if layer is not None:
            _, found = self.nn.value_and_grad(layer, product)(*inputs)
            slopes = [*slopes] + [
                found[role][kind] for role, kind in (n.split(".") for n in names)
            ]
        return function(*inputs), [self.numpy(x) for x in slopes]

    def compiled(self, function):
        return self.mx.compile(function)


class _MXNet:
    half = "float16"

    def __init__(self):
        import mxnet

        from posattn.ports import mxnet as port

        mxnet.npx.set_np()
        self.mx, self.port = mxnet, port

    def array(self, x, dtype=None):
        x = np.asarray(x)
        return self.mx.np.array(x, dtype=dtype if x.dtype.kind == "f" else x.dtype)

    def numpy(self, x):
        return x.asnumpy().astype("float64")

    def rng(self, seed):
        return np.random.default_rng(seed)

    def attention(self, dim, num_heads, state=None, dtype="float32", **options):
        layer = self.port.MultiHeadAttention(dim, num_heads, dtype=dtype, **options)
        for name, value in (state or {}).items():
            self._parameter(layer, name).set_data(self.array(value, dtype))
        return layer

    def _parameter(self, layer, name):
        role, kind = name.split(".")
        return getattr(getattr(layer, role), kind)

    def differentiate(self, function, inputs, cotangent, layer=None, names=()):
        """The value, and the gradients of inputs and of weights."""
        for x in inputs:
            x.attach_grad()
        with self.mx.autograd.record():
            value = function(*inputs)
        value.backward(cotangent)
        slopes = [x.grad for x in inputs] + [
            self._parameter(layer, n).grad() for n in names
        ]
        return value, [self.numpy(x) for x in slopes]

    def compiled(self, function):
        return function  # gluon's Block has nothing to compile


@pytest.fixture(scope="module")
def port():
    return {"tensorflow": _TensorFlow, "mlx": _Mlx, "mxnet": _MXNet}[NAME]()


def error(got, want):
    """The largest difference, relative to the largest wanted number or 1."""
    assert got.shape == want.shape
    return np.max(np.abs(got - want), initial=0) / max(1, np.max(np.abs(want), initial=0))


def cases(*names):
    found = [(load(name), case) for name in names for case in load(name)["cases"]]
    return pytest.mark.parametrize(
        ("function", "case"),
        [(vectors["function"], case) for vectors, case in found],
        ids=[f"{vectors['function']}: {case['name']}" for vectors, case in found],
    )


def arrays(port, values, dtype):
    return [port.array(x, dtype) if isinstance(x, np.ndarray) else x for x in values]


def keywords(port, case, dtype, key="keywords"):
    names = list(case[key])
    return dict(zip(names, arrays(port, [case[key][name] for name in names], dtype)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@cases("sinusoidal")
def test_the_encoding_has_the_values_of_the_vectors(port, function, case, dtype):
    options = {
        **case["keywords"],
        "dtype": getattr(getattr(port, "mx", None), dtype, dtype),
    }
    arguments = [
        port.array(x, "float64") if isinstance(x, np.ndarray) else x
        for x in case["arguments"]
    ]
    got = getattr(port.port, function)(*arguments, **options)
    assert error(port.numpy(got), case["expected"]) <= BOUND[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@cases("masked_softmax", "attention")
def test_attention_has_the_values_and_gradients_of_the_vectors(port, function, case, dtype):
    options = keywords(port, case, dtype)
    arguments = arrays(port, case["arguments"], dtype)
    moving = [x for x, y in zip(arguments, case["arguments"]) if y.dtype.kind == "f"]
    fixed = arguments[len(moving) :]
    value, slopes = port.differentiate(
        lambda *xs: getattr(port.port, function)(*xs, *fixed, **options),
        moving,
        port.array(case["cotangent"], dtype),
    )
    assert error(port.numpy(value), case["expected"]) <= BOUND[dtype]
    for got, want in zip(slopes, case["gradients"].values()):
        assert error(got, want) <= BOUND[dtype]


@cases("attention")
def test_attention_in_half_precision_stays_within_its_bound(port, function, case):
    if "lowest float" in case["name"]:
        pytest.skip("halves do not reach the lowest of float32")
    arguments = arrays(port, case["arguments"], port.half)
    got = getattr(port.port, function)(*arguments, **keywords(port, case, port.half))
    assert port.half in str(got.dtype)
    assert error(port.numpy(got), case["expected"]) <= BOUND[port.half]


@cases("attention")
def test_compiled_attention_is_the_same(port, function, case):
    options = keywords(port, case, "float32")
    arguments = arrays(port, case["arguments"], "float32")
    run = port.compiled(lambda *xs: getattr(port.port, function)(*xs, **options))
    assert error(port.numpy(run(*arguments)), case["expected"]) <= BOUND["float32"]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", CARRIED, ids=[case["name"] for case in CARRIED])
def test_a_layer_with_weights_from_pytorch_repeats_it(port, case, dtype):
    names = list(case["state"])
    layer = port.attention(*case["arguments"], case["state"], dtype, **case["keywords"])
    options = keywords(port, case, dtype, "call")
    value, slopes = port.differentiate(
        lambda *xs: layer(*xs, **options),
        arrays(port, case["inputs"], dtype),
        port.array(case["cotangent"], dtype),
        layer,
        names,
    )
    assert error(port.numpy(value), case["expected"]) <= BOUND[dtype]
    assert len(slopes) == len(case["gradients"])
    for got, want in zip(slopes, case["gradients"]):
        assert error(got, want) <= BOUND[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32", "half"])
@cases("positional_encoding")
def test_the_encoding_layer_has_the_values_of_the_vectors(port, function, case, dtype):
    dtype = port.half if dtype == "half" else dtype
    x, *positions = case["arguments"]
    layer = port.port.PositionalEncoding(x.shape[-1], **case["keywords"])
    where = dict(zip(["positions"], arrays(port, positions, "float64")))
    got = layer(port.array(x, dtype), **where)
    assert dtype in str(got.dtype)
    assert error(port.numpy(got), case["expected"]) <= case["tolerance"][dtype]


def test_rotate_and_bias_act_on_the_heads_at_the_positions_given(port):
    asked = []

    def rotate(x, positions):
        asked.append((tuple(x.shape), port.numpy(positions).tolist()))
        return x

    def bias(query_positions, key_positions):
        asked.append(
            (port.numpy(query_positions).tolist(), port.numpy(key_positions).tolist())
        )
        return port.array(np.zeros((2, 1, 3)), "float32")

    layer = port.attention(4, 2, rotate=rotate, bias=bias)
    query, key = (port.array(np.ones((1, n, 4)), "float32") for n in (1, 3))
    layer(query, key, key)
    layer(query, key, key, key_positions=port.array(np.array([4, 5, 9])))
    assert asked[0] == ((1, 2, 1, 2), [[2]])
    assert asked[1] == ((1, 2, 3, 2), [[0, 1, 2]])
    assert asked[2] == ([2], [0, 1, 2])
    assert asked[5] == ([9], [4, 5, 9])


def test_without_rng_nothing_drops_and_with_it_the_seed_decides(port):
    x = port.array(np.random.default_rng(0).normal(size=(2, 50, 8)), "float32")
    layer = port.attention(8, 2, dropout_rate=0.5)
    encode = port.port.PositionalEncoding(8, dropout_rate=0.5)
    for run in (
        lambda rng=None: layer(x, x, x, rng=rng),
        lambda rng=None: encode(x, rng=rng),
    ):
        plain, again = port.numpy(run()), port.numpy(run())
        assert np.array_equal(plain, again)
        dropped = [port.numpy(run(port.rng(seed))) for seed in (1, 1, 2)]
        assert np.array_equal(dropped[0], dropped[1])
        assert not np.allclose(dropped[0], dropped[2])
        assert not np.allclose(dropped[0], plain)
    kept = port.numpy(encode(x, rng=port.rng(0)))
    assert 0.35 < np.mean(kept == 0) < 0.65
    assert np.allclose(kept[kept != 0], 2 * port.numpy(encode(x))[kept != 0], atol=1e-5)


def test_rng_draws_the_weights(port):
    drawn = [port.attention(64, 2, rng=port.rng(seed), use_bias=True) for seed in (0, 0, 1)]
    x = port.array(np.random.default_rng(0).normal(size=(1, 5, 64)), "float32")
    outs = [port.numpy(layer(x, x, x)) for layer in drawn]
    assert np.array_equal(outs[0], outs[1])
    assert not np.allclose(outs[0], outs[2])
    default = port.numpy(port.attention(64, 2)(x, x, x))
    assert np.isfinite(default).all()


def test_no_keys_give_zeros_and_no_queries_give_no_rows(port):
    attend, softmax = port.port.scaled_dot_product_attention, port.port.masked_softmax
    some, none = (port.array(np.ones((2, n, 4)), "float32") for n in (3, 0))
    nothing = port.array(np.ones((2, 3, 0), bool))
    assert np.array_equal(port.numpy(attend(some, none, none)), np.zeros((2, 3, 4)))
    assert np.array_equal(
        port.numpy(attend(some, none, none, mask=nothing)), np.zeros((2, 3, 4))
    )
    assert port.numpy(attend(none, some, some)).shape == (2, 0, 4)
    assert port.numpy(softmax(port.array(np.ones((2, 3, 0)), "float32"))).shape == (2, 3, 0)


def test_the_encoding_has_a_slope_along_the_position(port):
    dtype = getattr(getattr(port, "mx", None), "float64", "float64")
    where, cotangent = np.array([0.5, 3.0]), np.ones((2, 3))
    _, (slope,) = port.differentiate(
        lambda p: port.port.sinusoidal_encoding(p, 3, dtype=dtype),
        [port.array(where, "float64")],
        port.array(cotangent, "float64"),
    )
    slow = 10000 ** (-2 / 3)
    want = np.cos(where) - np.sin(where) + slow * np.cos(slow * where)
    assert error(slope, want) <= BOUND["float64"]


if NAME == "tensorflow":  # graphs of unknown sizes, whole models, mixed precision

    def test_tensorflow_takes_sizes_that_only_the_graph_knows(port):
        tf, attention = port.tf, port.attention(4, 2)
        encode = port.port.PositionalEncoding(4)
        unknown = tf.TensorSpec((None, None, 4))

        @tf.function(input_signature=[unknown, unknown, tf.TensorSpec((None,), tf.int32)])
        def run(query, key, lengths):
            mask = port.port.length_mask(lengths, tf.shape(key)[-2])
            rows = port.port.sinusoidal_encoding(tf.shape(key)[-2], 4)
            encoded = encode(key)
            return attention(query, encoded, encoded, mask=mask), rows

        for batch, n_q, n_k in ((2, 3, 5), (1, 4, 4)):
            query, key = tf.ones((batch, n_q, 4)), tf.ones((batch, n_k, 4))
            lengths = tf.range(batch)
            got, rows = run(query, key, lengths)
            encoded = encode(key)
            want = attention(
                query, encoded, encoded, mask=port.port.length_mask(lengths, n_k)
            )
            assert error(port.numpy(got), port.numpy(want)) <= BOUND["float32"]
            assert rows.shape == (n_k, 4)

    def test_keras_saves_a_model_with_both_layers_and_loads_it(port, tmp_path):
        import keras

        tokens = keras.Input((None, 4))
        encoded = port.port.PositionalEncoding(4, base=100.0)(tokens)
        layer = port.attention(4, 2, use_bias=True)
        model = keras.Model(tokens, layer(encoded, encoded, encoded, causal=True))
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        x = port.array(np.random.default_rng(5).normal(size=(2, 3, 4)), "float32")
        assert np.array_equal(port.numpy(loaded(x)), port.numpy(model(x)))

    def test_keras_casts_where_its_policy_says_so(port):
        x = port.array(np.ones((1, 3, 4)), "float32")
        layer = port.attention(4, 2, dtype="mixed_bfloat16")
        assert layer(x, x, x).dtype == "bfloat16"


BAD = [
    (lambda p, x: p.port.sinusoidal_encoding(3, 0), "dim must be a positive integer, got 0"),
    (lambda p, x: p.port.PositionalEncoding(5)(x), "x must have shape"),
    (lambda p, x: p.port.PositionalEncoding(4)(x, rng=7), "rng must be a "),
    (lambda p, x: p.attention(6, 4), "num_heads must divide dim = 6, got 4"),
    (lambda p, x: p.attention(4, 2)(x, x, x, mask=p.array(np.ones((5, 5), bool))),
        "mask must have a shape that broadcasts"),
    (lambda p, x: p.port.length_mask(p.array(np.array([4])), 3), "lengths must lie between 0 and n_k"),
    (lambda p, x: p.port.masked_softmax(x, x), "mask must be bool"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_has_the_error_of_every_column(port, call, message):
    x = port.array(np.zeros((2, 3, 4)), "float32")
    with pytest.raises((TypeError, ValueError), match=message):
        call(port, x)
