"""Layers of a model made from its configuration and its weights."""

import importlib
import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import configs, reference
from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs import checkpoint
from posattn.configs.checkpoint import Checkpoint
from posattn.configs.weights import attention_weights
from tests.conftest import draw

COLUMNS = {"reference": reference, "torch": torch_column, "jax": jax_column}
TWINS = {"torch": torch_column, "jax": jax_column}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 12,
    "head_dim": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_parameters": DEFAULT,
}
PLAIN = configs.Layer(
    index=0, kind="full", dim=12, num_heads=4, num_kv_heads=2, head_dim=4, scale=0.5
)


def plan_of(model_type="llama", **changes):
    return configs.Plan(model_type, (replace(PLAIN, **changes),))


def weights_of(column, layer, role):
    """The matrix of a projection, `(d_out, d_in)`."""
    if column is torch_column:
        return layer.get_submodule(role).weight.detach().numpy()
    return np.asarray(getattr(layer, f"{role}_weight")).T


def state(prefix="model.layers.0.self_attn.", **more):
    """The arrays of a small Llama's first layer."""
    sizes = {"q_proj": (16, 12), "k_proj": (8, 12), "v_proj": (8, 12), "o_proj": (12, 16)}
    found = {
        f"{prefix}{name}.weight": draw(i, *shape).astype(np.float32)
        for i, (name, shape) in enumerate(sizes.items())
    }
    return found | {"model.embed_tokens.weight": draw(9, 3, 12)} | more


def given(column, arrays):
    """Arrays as the weights of a framework have them."""
    convert = torch.tensor if column is torch_column else jnp.asarray
    return {name: convert(x) for name, x in arrays.items()}


on_columns = pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
on_twins = pytest.mark.parametrize("column", TWINS.values(), ids=TWINS)


@on_columns
def test_the_rotation_is_that_of_the_configuration(column):
    scaled = DEFAULT | {"rope_type": "linear", "factor": 4.0}
    turn = column.rope_from_config(LLAMA | {"rope_parameters": scaled}, layer=1)
    speeds = reference.position_interpolation(4, base=10000.0, factor=4.0)
    assert turn == column.Rotary(layout="half", frequencies=speeds.tolist())


@on_columns
def test_a_model_with_pictures_rotates_by_coordinates(column):
    speeds = tuple(reference.frequencies(16).tolist())
    rope = configs.Rope(10000.0, speeds, sections=(4, 2, 2), interleaved=True)
    sharper = column.rope_from_config(plan_of(rope=replace(rope, attention_factor=1.25)))
    speeds = reference.mrope_frequencies(16, [4, 2, 2], base=10000.0, interleaved=True)
    made = column.RotaryAxes(speeds.tolist(), layout="half")
    assert sharper == replace(made, attention_factor=1.25) != made


@on_columns
def test_a_tower_rotates_by_its_own_coordinates(column):
    dinov3 = {"model_type": "dinov3_vit", "hidden_size": 64, "num_attention_heads": 2}
    speeds = 2 * np.pi * reference.axial_frequencies(32, 2, base=100.0)
    rotate = column.rope_from_config(dinov3 | {"rope_theta": 100.0})
    assert rotate.layout == "half"
    np.testing.assert_allclose(rotate.frequencies, speeds, rtol=1e-15)
    layer = (
        column.MultiHeadAttention.from_config(dinov3) if column is torch_column else None
    )
    assert layer is None or layer.rotate == rotate


@on_columns
def test_a_layer_is_chosen_by_its_number(column):
    assert column.rope_from_config(plan_of()) is None
    for layer in (2, -1):
        with pytest.raises(ValueError, match="layer"):
            column.rope_from_config(LLAMA, layer=layer)


@on_twins
def test_layers_that_cannot_be_built_are_refused(column):
    kind = {"kind": "linear"}, "layer 0 must be an attention of pairs, got 'linear'"
    shared = {"kv_layer": 1}, "layer 0 has kv_layer = 1, which MultiHead"
    back = {"turns_back": True}, "layer 0 has turns_back = True, which MultiHeadAttention"
    for changes, text in (kind, shared, back):
        with pytest.raises(ValueError, match=text):
            column.MultiHeadAttention.from_config(plan_of(**changes))


SEPARATE = ("q_proj", "k_proj", "v_proj", "o_proj")


def fused_rows(kind, query, key, value):
    """Rows of queries, keys and values in one array, as a family keeps them."""
    if kind == "stacked":
        return np.concatenate([query, key, value])
    parts = [x.reshape(2, -1, 4, *x.shape[1:]) for x in (query, key, value)]
    return np.concatenate(parts, axis=1).reshape(-1, *query.shape[1:])


@pytest.mark.parametrize(
    ("model_type", "kind", "module", "fused", "output"),
    [
        ("phi3", "stacked", "model.layers.0.self_attn.", "qkv_proj", "o_proj"),
        ("gpt_neox", "grouped", "gpt_neox.layers.0.attention.", "query_key_value", "dense"),
        ("persimmon", "grouped", "model.layers.0.self_attn.", "query_key_value", "dense"),
        ("bloom", "grouped", "transformer.h.0.self_attention.", "query_key_value", "dense"),
        ("gpt2", "stacked", "h.0.attn.", "c_attn", "c_proj"),
    ],
)
def test_one_projection_for_three_is_cut_apart(model_type, kind, module, fused, output):
    shapes = {"query": (16, 12), "key": (8, 12), "value": (8, 12), "output": (12, 16)}
    want = {f"{role}.weight": draw(i, *s) for i, (role, s) in enumerate(shapes.items())}
    want |= {f"{role}.bias": want[f"{role}.weight"][:, 0] for role in shapes}
    rotated, arrays = model_type == "gpt2", {f"{module}masked_bias": np.zeros(1)}
    for part in ("weight", "bias"):
        *separate, last = (want[f"{role}.{part}"] for role in shapes)
        both = fused_rows(kind, *separate)
        arrays[f"{module}{fused}.{part}"] = both.T if rotated else both
        arrays[f"{module}{output}.{part}"] = last.T if rotated else last
    plan = plan_of(model_type, use_bias=(True,) * 3, use_output_bias=True)
    found = attention_weights(arrays, plan, 0)
    assert set(found) == set(want)
    assert all(np.array_equal(found[name], want[name]) for name in want)


PREFIX = "model.layers.0.self_attn."


# fmt: off
UNFIT = [
    ({}, {}, "weights have no layer 0: no name begins with model.language_model.layers"),
    ({k: v for k, v in state().items() if "k_proj" not in k}, {},
     r"weights lack 'model.layers.0.self_attn.k_proj.weight', the layer's key.weight"),
    (state(**{f"{PREFIX}q_proj.bias": np.zeros(16)}), {},
     "weights have 'model.layers.0.self_attn.q_proj.bias', which a layer of 'llama'"),
    (state(**{f"{PREFIX}q_proj.weight": np.zeros((16, 8))}), {},
     r"q_proj.weight' must give query.weight of shape \(16, 12\), got \(16, 8\)"),
    (state(), {"model_type": "whisper"},
     "weights of model_type 'whisper' have unknown names; known"),
    ({f"{PREFIX}qkv_proj.weight": np.zeros((30, 12))}, {"model_type": "phi3"},
     r"and value.weight of shape \(32, 12\), got \(30, 12\)"),
]
# fmt: on


@pytest.mark.parametrize(("arrays", "changes", "text"), UNFIT)
def test_weights_that_do_not_fit_are_named(arrays, changes, text):
    with pytest.raises(ValueError, match=text):
        attention_weights(arrays, plan_of(**changes), 0)


def test_keys_that_are_the_values_serve_as_both():
    arrays = state()
    del arrays[f"{PREFIX}v_proj.weight"]
    found = attention_weights(arrays, plan_of("llama", shares_values=True), 0)
    assert found["value.weight"] is found["key.weight"]
    lent = attention_weights(state(), plan_of(kv_layer=0), 0)  # files have them anyway
    assert set(lent) == {"query.weight", "output.weight"}


@on_twins
def test_files_of_a_folder_are_read(column, tmp_path):
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(x, np.float32) for name, x in state().items()}
    files = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(arrays)}
    for file in set(files.values()):
        save_file({n: x for n, x in arrays.items() if files[n] == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    layer = column.MultiHeadAttention.from_config(LLAMA, weights=tmp_path)
    for role, name in zip(("query", "key", "value", "output"), SEPARATE, strict=True):
        want = arrays[f"{PREFIX}{name}.weight"]
        assert np.array_equal(weights_of(column, layer, role), want)


@on_twins
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_files_are_read_a_few_rows_at_once(column, dtype, tmp_path, monkeypatch):
    """Of any width, which becomes float32, and with an offset of one projection alone."""
    from safetensors.torch import save_file

    arrays = state(**{f"{PREFIX}q_proj.bias": np.arange(16.0) % 8})
    arrays |= {f"{PREFIX}sinks": np.arange(4.0)}
    arrays = {n: torch.tensor(x).to(getattr(torch, dtype)) for n, x in arrays.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    monkeypatch.setattr(building(column), "ROWS", 3)
    plan = plan_of(use_bias=(True, False, False), sinks=True)
    layer = column.MultiHeadAttention.from_config(plan, weights=tmp_path)
    for role, name in zip(("query", "key", "value", "output"), SEPARATE, strict=True):
        found = weights_of(column, layer, role)
        assert found.dtype == np.float32
        assert np.array_equal(found, arrays[f"{PREFIX}{name}.weight"].float().numpy())
    offsets = (
        [layer.query.bias, layer.key.bias]
        if column is torch_column
        else [layer.query_bias, layer.key_bias]
    )
    assert [x.tolist() for x in offsets] == [[*range(8)] * 2, [0] * 8]
    assert layer.sinks.tolist() == [0, 1, 2, 3]


def building(column):
    name = "torch" if column is torch_column else "jax"
    return importlib.import_module(f"posattn.{name}.models.layer_plan")


def test_what_was_read_can_be_read_again(tmp_path, monkeypatch):
    from safetensors.numpy import save_file

    given = {"x": np.arange(5.0), "y": np.arange(3)}
    save_file(given, tmp_path / "some.safetensors", metadata={"format": "pt"})
    found = Checkpoint(tmp_path / "some.safetensors", np.frombuffer)
    assert sorted(found) == ["x", "y"]
    for unused in (checkpoint.UNUSED, None):
        monkeypatch.setattr(checkpoint, "UNUSED", unused)
        x = found["x"]
        assert np.array_equal(x, given["x"])
        found.release()
        assert np.array_equal(x, given["x"])
    with pytest.raises(ValueError, match="weights have 'y' of dtype I64; known are F64"):
        found["y"]


@on_twins
def test_text_needs_no_coordinates_where_pairs_rotate_with_three_axes(column):
    rope = configs.Rope(1e4, (1.0, 0.01), sections=(1, 1, 0))
    layer = made(column, rope=rope)
    places = np.stack([np.arange(X.shape[-2])] * 3, axis=-1)
    told = {"coordinates": given(column, {"x": places})["x"]}
    want = output(column, layer, causal=True, **told)
    np.testing.assert_array_equal(output(column, layer, causal=True), want)


@on_twins
def test_what_is_no_checkpoint_is_named(column, tmp_path, monkeypatch):
    make = column.MultiHeadAttention.from_config
    with pytest.raises(ValueError, match="weights must be a safetensors or GGUF file, or"):
        make(LLAMA, weights=tmp_path / "nowhere")
    with pytest.raises(TypeError, match=r"^weights must be arrays by name.* got int$"):
        make(LLAMA, weights=3)
    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="weights must be safetensors files"):
        make(LLAMA, weights=wrong)
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        make(LLAMA, weights=wrong)


# what a configuration asks for besides the projections

N = 5
X = draw(20, 2, N, 12)


def made(column, weights=None, **changes):
    """A layer of a plan, from the weights of a small Llama."""
    weights = state() if weights is None else weights
    return column.MultiHeadAttention.from_config(
        plan_of(**changes), weights=given(column, weights)
    )


def output(column, layer, x=X, **options):
    array = torch.tensor if column is torch_column else jnp.asarray
    found = layer(array(x.astype(np.float32)), **options)
    return found.detach().numpy() if column is torch_column else np.asarray(found)


def plain(**changes):
    """The reference's layer with the weights of a small Llama."""
    arrays = {name: x.T.astype(float) for name, x in state().items()}
    projections = [arrays[f"{PREFIX}{name}.weight"] for name in SEPARATE]
    return reference.MultiHeadAttention(
        *projections, num_heads=4, num_kv_heads=2, scale=0.5, **changes
    )


def normed(norm, weight, bias, x):
    """A norm by its definition."""
    over = (-3, -1) if norm.axes == "width" else -1
    if norm.kind == "layer":
        x = x - x.mean(over, keepdims=True)
    x = x / np.sqrt((x**2).mean(over, keepdims=True) + norm.eps)
    heads = (x.shape[-3], 1, x.shape[-1])
    shape = heads if weight.size == heads[0] * heads[2] else (-1,)
    return x * (weight.reshape(shape) + norm.plus_one) + bias.reshape(shape)


@on_twins
@pytest.mark.parametrize(
    "norm",
    [
        configs.Norm("rms", 1e-6, plus_one=True),
        configs.Norm("layer", 1e-5, axes="heads", offset=True),
        configs.Norm("rms", 1e-6, axes="width"),
        configs.Norm("l2", 1e-6, learned=False, after=True),
    ],
    ids=str,
)
def test_queries_and_keys_are_normalised_as_the_plan_says(column, norm):
    rope = configs.Rope(10000.0, (1.0, 0.01))
    shapes = {"head": ((4,), (4,)), "heads": ((4, 4), (2, 4)), "width": ((16,), (8,))}[
        norm.axes
    ]
    weights, more = [], state()
    for i, (name, shape) in enumerate(zip(("q_norm", "k_norm"), shapes, strict=True)):
        pair = draw(30 + i, *shape) if norm.learned else np.ones(shape)
        offset = draw(40 + i, *shape) if norm.offset else np.zeros(shape)
        weights.append((pair, offset))
        if norm.learned:
            more[f"{PREFIX}{name}.weight"] = pair.astype(np.float32)
        if norm.offset:
            more[f"{PREFIX}{name}.bias"] = offset.astype(np.float32)
    layer = made(column, more, rope=rope, query_norm=norm, key_norm=norm)
    turn = reference.Rotary(layout="half", frequencies=(1.0, 0.01))
    acts = [lambda x, p=pair: normed(norm, *p, x) for pair in weights]
    if norm.after:
        pair = [lambda x, p, act=act: act(turn(x, p)) for act in acts]
        want = plain(rotate=pair)(X, causal=True)
    else:
        want = plain(rotate=turn, query_norm=acts[0], key_norm=acts[1])(X, causal=True)
    assert np.allclose(output(column, layer, causal=True), want, atol=1e-4)


# what transformers 5.23 makes of the last of five tokens in float64: its first four entries
@on_twins
def test_values_are_normalised_as_the_plan_says(column):
    weight = draw(33, 4)
    arrays = state(**{f"{PREFIX}v_norm.weight": weight.astype(np.float32)})
    norm = configs.Norm("rms", 1e-6)
    want = plain(value_norm=lambda x: normed(norm, weight, np.zeros(4), x))
    got = output(column, made(column, arrays, value_norm=norm), causal=True)
    assert np.allclose(got, want(X, causal=True), atol=1e-4)


@on_twins
@pytest.mark.parametrize(
    ("options", "grown"),
    [
        ({}, lambda p: np.log1p(np.floor((p + 1) / 2))),
        ({"first": 0}, lambda p: np.log1p(np.floor(p / 2))),
        ({"smooth": True}, lambda p: np.log(np.maximum((p + 1) / 2, 1))),
    ],
)
def test_queries_grow_with_their_position(column, options, grown):
    grows = configs.Temperature(floor=2.0, scale=0.5, **options)
    layer = made(column, temperature=grows)
    want = plain(rotate=[lambda x, p: x * (1 + 0.5 * grown(p))[..., None], None])
    assert np.allclose(output(column, layer, causal=True), want(X, causal=True), atol=1e-4)


@on_twins
def test_windows_and_chunks_belong_to_the_layer(column):
    for changes, mask in (
        ({"kind": "sliding", "window": 2}, reference.Window(2)),
        ({"kind": "chunked", "chunk": 3}, reference.Chunk(3)),
    ):
        got = output(column, made(column, **changes), causal=True)
        assert np.allclose(got, plain(mask=mask)(X, causal=True), atol=1e-4)


@on_twins
def test_slopes_are_those_of_alibi(column):
    layer = made(column, bias=configs.Slopes(tuple(reference.alibi_slopes(4).tolist())))
    want = plain(bias=reference.ALiBi(4))(X, causal=True)
    assert np.allclose(output(column, layer, causal=True), want, atol=1e-4)


@on_twins
def test_each_stack_has_the_buckets_of_its_first_layer(column):
    t5 = {"model_type": "t5", "d_model": 12, "d_kv": 4, "num_heads": 4, "num_layers": 2}
    t5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
    shapes = dict.fromkeys("qkv", (16, 12)) | {"o": (12, 16)}
    places = [
        f"{stack}.block.{i}.layer.0.SelfAttention."
        for stack in ("encoder", "decoder")
        for i in (0, 1)
    ]
    arrays = {
        f"{place}{name}.weight": draw(60 + n, *shape).astype(np.float32)
        for place in places
        for n, (name, shape) in enumerate(shapes.items())
    }
    tables = {k: draw(62 + k, 8, 4).astype(np.float32) for k in (0, 2)}
    for k, table in tables.items():
        arrays[f"{places[k]}relative_attention_bias.weight"] = table
    projections = [arrays[f"{places[0]}{name}.weight"].T.astype(float) for name in shapes]
    for index in range(4):
        causal, table = index > 1, tables[index // 2 * 2].astype(float)
        bias = reference.T5Bias(table, max_distance=16, bidirectional=not causal)
        want = reference.MultiHeadAttention(*projections, num_heads=4, scale=1.0, bias=bias)
        layer = column.MultiHeadAttention.from_config(
            t5, index, weights=given(column, arrays)
        )
        got = output(column, layer, causal=causal)
        assert np.allclose(got, want(X, causal=causal), atol=1e-4)


def paired():
    """Rows of queries and of gates, and the weights in which they alternate by head."""
    queries, gates = (draw(i, 4, 4, 12).astype(np.float32) for i in (60, 61))
    both = {f"{PREFIX}q_proj.weight": np.stack([queries, gates], 1).reshape(32, 12)}
    return queries.reshape(16, 12), gates.reshape(16, 12), state() | both


@on_twins
def test_a_gate_is_built_with_its_weights(column):
    queries, gates, arrays = paired()
    layer = made(column, arrays, gate=True)
    want = replace(plain(), query_weight=queries.T, gate_weight=gates.T)
    got = output(column, layer, causal=True)
    assert np.allclose(got, want(X, causal=True), atol=1e-4)


@on_twins
def test_sinks_and_a_cap_are_built(column):
    sinks = draw(62, 4).astype(np.float32)
    layer = made(column, state(**{f"{PREFIX}sinks": sinks}), sinks=True, soft_cap=2.0)
    want = plain(sinks=sinks.astype(float), soft_cap=2.0)(X, causal=True)
    assert np.allclose(output(column, layer, causal=True), want, atol=1e-4)
