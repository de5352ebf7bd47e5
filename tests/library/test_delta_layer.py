"""The layer with the delta rule, its cache, and layers made from a configuration."""

import numpy as np
import pytest
import torch

from posattn import configs
from tests.conftest import REFERENCE, TWINS, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, KEYS, WIDTH, OUT, N = 6, 4, 2, 4, 3, 70
LAYER = {"num_key_heads": KEYS, "key_dim": WIDTH, "value_dim": OUT}
KIMI = {"per_channel": True, "rank": 2, "gate": "sigmoid"}
KINDS = {"gated": {}, "kimi": KIMI, "bounded": KIMI | {"bound": -5.0}}
MASK = np.ones((2, N), bool)
MASK[0, :4] = MASK[1, 30:33] = MASK[1, -2:] = False
DOCUMENTS = np.array([[0] * 20 + [1] * (N - 20), [4] * 66 + [2] * (N - 66)])
X = draw(0, 2, N, DIM)
EACH = pytest.mark.parametrize("kind", KINDS)


def weights_of(kind, **options):
    """The arrays of a layer by the names of the reference, and what else it has."""
    rng, options = np.random.default_rng(3), LAYER | KINDS[kind] | options
    made = REFERENCE.DeltaAttention.init(rng, DIM, HEADS, **options)
    arrays = {name: x for name, x in vars(made).items() if isinstance(x, np.ndarray)}
    arrays["norm_weight"] = 1 + draw(4, OUT) / 8
    arrays["decay_offset"] = draw(5, *arrays["decay_offset"].shape)
    return arrays, {
        name: x for name, x in vars(made).items() if name not in arrays and x is not None
    }


def layer_of(column, kind, arrays=None, **options):
    """The layer of a column, of arrays of the column if given."""
    own, rest = weights_of(kind, **options)
    arrays = (
        {name: column.array(x) for name, x in own.items()} if arrays is None else arrays
    )
    if column.name != "torch":
        return column.DeltaAttention(**arrays, **rest)
    options = LAYER | KINDS[kind] | options | {"dtype": arrays["taps"].dtype}
    made = column.DeltaAttention(DIM, HEADS, **options)
    state = {
        name.replace("_weight", ".weight") if x.ndim == 2 and name != "taps" else name: x.mT
        if x.ndim == 2 and name != "taps"
        else x
        for name, x in arrays.items()
    }
    return lambda *inputs, **named: torch.func.functional_call(made, state, inputs, named)


def empty_cache(column, *batch):
    """A cache of no tokens."""
    sizes = HEADS, WIDTH, OUT, 3, 2 * KEYS * WIDTH + HEADS * OUT
    options = {} if column is REFERENCE else {"dtype": column.array(X).dtype}
    return column.StateCache.init(batch, *sizes, **options)


@EACH
def test_values_and_gradients_agree_with_the_reference(precise_twin, kind):
    arrays, _ = weights_of(kind)
    hidden = {"mask": MASK, "documents": DOCUMENTS}

    def output(column, x, *given):
        layer = layer_of(column, kind, dict(zip(arrays, given, strict=True)))
        return layer(x, **{name: column.positions(value) for name, value in hidden.items()})

    assert_twin_agrees(precise_twin, output, X / 4, *arrays.values())


def test_bounded_log_gates_are_a_scaled_sigmoid(column):
    """Where nothing but offsets decide them, other offsets make the same log gates without a bound."""
    arrays, _ = weights_of("bounded")
    arrays["decay_weight"] = 0 * arrays["decay_weight"]
    rate = np.exp(arrays["decay_rate"]).repeat(WIDTH)
    step = 5 / (1 + np.exp(-rate * arrays["decay_offset"])) / rate
    other = arrays | {"decay_offset": np.log(np.expm1(step))}
    given = {name: column.array(x) for name, x in arrays.items()}
    got = layer_of(column, "bounded", given)(column.array(X))
    assert_close(column, got, layer_of(REFERENCE, "kimi", other)(X))
    assert error(column.numpy(got), layer_of(REFERENCE, "kimi")(X)) > 1e-3


@pytest.mark.parametrize("half", TWINS[4:], ids=str)
def test_half_precision_agrees_with_the_reference(half):
    """The weights are rounded once for both."""
    arrays = {name: half.numpy(half.array(x)) for name, x in weights_of("gated")[0].items()}
    want = layer_of(REFERENCE, "gated", arrays)(X)
    given = {name: half.array(x) for name, x in arrays.items()}
    got = layer_of(half, "gated", given)(half.array(X))
    assert error(half.numpy(got), want) <= 2.5e-2


@EACH
def test_each_document_has_the_outputs_that_it_has_alone(column, kind):
    """Padding in front, between and behind holds what is no number."""
    layer = layer_of(column, kind)
    x = column.array(np.where(MASK[..., None], X, np.nan))
    got = column.numpy(
        layer(x, mask=column.positions(MASK), documents=column.positions(DOCUMENTS))
    )
    alone = layer_of(REFERENCE, kind)
    for row, seen, numbers, result in zip(X, MASK, DOCUMENTS, got, strict=True):
        for number in set(numbers):
            tokens = np.flatnonzero(seen & (numbers == number))
            assert error(result[tokens], alone(row[tokens])) < 1e-12
        assert (result[~seen] == 0).all()


@EACH
def test_a_text_cut_into_calls_has_the_outputs_of_one(column, kind):
    layer = layer_of(column, kind)
    whole = column.numpy(layer(column.array(X)))
    cache = empty_cache(column, 2)
    for start, stop in ((0, 2), (2, 68), (68, 69), (69, N)):
        output, cache = layer(column.array(X[:, start:stop]), cache=cache)
        assert_close(column, output, whole[:, start:stop])


@pytest.mark.parametrize("length", [1, 1e-3])
def test_the_first_token_by_hand(column, length):
    """The epsilon stands under the root, so that short keys stay short; beta may reach 2."""
    arrays, _ = weights_of("gated", most=2.0)
    arrays["taps"] = arrays["taps"] * length
    given = {name: column.array(x) for name, x in arrays.items()}
    got = layer_of(column, "gated", given, most=2.0)(column.array(X[0, :1]))
    x = X[0, 0]
    projected = [x @ arrays[f"{role}_weight"] for role in ("query", "key", "value")]
    mixed = arrays["taps"][:, -1] * np.concatenate(projected)
    mixed = mixed / (1 + np.exp(-mixed))
    query, key = mixed[: 2 * KEYS * WIDTH].reshape(2, KEYS, WIDTH)
    value = mixed[2 * KEYS * WIDTH :].reshape(HEADS, OUT)
    beta = 2 / (1 + np.exp(-x @ arrays["beta_weight"]))
    gate = (x @ arrays["gate_weight"]).reshape(HEADS, OUT)
    heads = np.empty((HEADS, OUT))
    for h in range(HEADS):
        q, k = query[h // 2], key[h // 2]
        q, k = (x / np.sqrt(x @ x + 1e-6) for x in (q, k))
        o = beta[h] * value[h] * (q @ k) / np.sqrt(WIDTH)
        o = arrays["norm_weight"] * o / np.sqrt(np.mean(o**2) + 1e-6)
        heads[h] = o * gate[h] / (1 + np.exp(-gate[h]))
    assert_close(column, got, heads.reshape(1, -1) @ arrays["output_weight"])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"num_key_heads": 3}, ValueError, "must divide num_heads = 4, got 3"),
        ({"gate": "tanh"}, ValueError, "gate must be 'silu' or 'sigmoid', got 'tanh'"),
        ({"taps": 0}, ValueError, "taps must be a positive integer, got 0"),
        ({"most": 0}, ValueError, "most must be a positive finite number, got 0"),
        ({"rank": 1.5}, TypeError, "rank must be a positive integer, got 1.5"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_in_the_same_words(
    column, unchecked, change, kind, message
):
    options = {"key_dim": 4} | change
    made, rng = column.DeltaAttention, ()
    if column.name != "torch":
        made, rng = made.init, (column.rng(),)
    with pytest.raises(kind, match=message):
        made(*rng, DIM, HEADS, **options)


SIZES = {"hidden_size": DIM, "num_attention_heads": 2, "num_key_value_heads": 2}
LINEAR = {
    "linear_num_key_heads": KEYS,
    "linear_num_value_heads": HEADS,
    "linear_key_head_dim": WIDTH,
    "linear_value_head_dim": OUT,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "head_dim": 4,
    "partial_rotary_factor": 0.5,
    "num_hidden_layers": 4,
    "rope_theta": 1e4,
}
KIMI = {
    "num_hidden_layers": 4,
    "rms_norm_eps": 1e-5,
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": WIDTH,
        "num_heads": HEADS,
        "short_conv_kernel_size": 4,
    },
    "kv_lora_rank": 4,
    "q_lora_rank": None,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 4,
    "mla_use_nope": True,
}
GLM = KIMI | {"q_lora_rank": 3, "qk_rope_head_dim": 0, "index_n_heads": 2}
GLM |= {"index_head_dim": 4, "index_topk": 8, "index_kpool": 4}
FAMILIES = {
    "qwen3_next": LINEAR,
    "qwen3_5_text": LINEAR | {"rope_parameters": {"mrope_section": [1, 0, 0]}},
    "olmo_hybrid": {k: x for k, x in LINEAR.items() if "ro" not in k and k != "head_dim"},
    "kimi_linear": KIMI,
    "glm5_next_text": GLM,
}


def released(family):
    """A layer's arrays by our names, and the same arrays as a model of the family keeps them."""
    kimi = family in ("kimi_linear", "glm5_next_text")
    sizes = {"key_dim": WIDTH, "value_dim": WIDTH if kimi else OUT}
    options = {"per_channel": True, "rank": WIDTH, "gate": "sigmoid"} if kimi else {}
    layer = REFERENCE.DeltaAttention.init(
        np.random.default_rng(6),
        DIM,
        HEADS,
        num_key_heads=HEADS if kimi else KEYS,
        most=2.0 if family == "olmo_hybrid" else 1.0,
        eps=1e-6 if family.startswith("qwen") else 1e-5,
        **sizes,
        bound=-5.0 if family == "glm5_next_text" else None,
        **options,
    )
    named = {n: x for n, x in vars(layer).items() if isinstance(x, np.ndarray)}
    own = {n.removesuffix("_weight"): x.T for n, x in named.items()}
    qkv = [own[role] for role in ("query", "key", "value")]
    if family == "qwen3_next":
        each = [[*w.reshape(KEYS, -1, DIM)] for w in (*qkv, own["gate"])]
        small = [[*w.reshape(KEYS, -1, DIM)] for w in (own["beta"], own["decay"])]
        theirs = {
            "in_proj_qkvz": np.concatenate(
                [np.concatenate(parts) for parts in zip(*each, strict=True)]
            ),
            "in_proj_ba": np.concatenate(
                [np.concatenate(parts) for parts in zip(*small, strict=True)]
            ),
            "out_proj": own["output"],
        }
    elif family == "qwen3_5_text":
        theirs = {
            "in_proj_qkv": np.concatenate(qkv),
            "in_proj_z": own["gate"],
            "in_proj_b": own["beta"],
            "in_proj_a": own["decay"],
            "out_proj": own["output"],
        }
    else:
        letters = {"query": "q", "key": "k", "value": "v", "output": "o", "beta": "b"}
        more = {"gate": "g", "decay": "a"}
        if kimi:
            more = {"gate_down": "g_a", "gate": "g_b", "decay_down": "f_a", "decay": "f_b"}
        theirs = {f"{name}_proj": own[role] for role, name in (letters | more).items()}
    theirs = {f"{name}.weight": x for name, x in theirs.items()}
    rates = layer.decay_rate.reshape(1, 1, -1, 1) if kimi else layer.decay_rate
    theirs |= {"dt_bias": layer.decay_offset, "A_log": rates}
    norm = "norm.weight" if family.startswith("qwen") else "o_norm.weight"
    theirs[norm] = layer.norm_weight
    place = "model.layers.1.self_attn." if kimi else "model.layers.1.linear_attn."
    if kimi or family == "olmo_hybrid":  # three convolutions, as they were released
        ends = np.cumsum([len(w) for w in qkv])[:-1]
        for name, part in zip("qkv", np.split(layer.taps, ends), strict=True):
            theirs[f"{name}_conv1d.weight"] = part[:, None]
    else:
        theirs["conv1d.weight"] = layer.taps[:, None]
    return layer, {place + name: x for name, x in theirs.items()}


@pytest.mark.parametrize("twin", TWINS[:2], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_a_model_are_cut_into_those_of_the_layer(twin, family):
    config = {"model_type": family} | SIZES | FAMILIES[family]
    layer, theirs = released(family)
    with twin.mode():
        weights = {name: twin.array(x) for name, x in theirs.items()}
        options = {"weights": weights, "dtype": twin.array(X).dtype}
        made = twin.DeltaAttention.from_config(config, 1, **options)
        assert_close(twin, made(twin.array(X)), layer(X))
        for change, message in (
            ({"dt_bias": None}, "weights lack .*dt_bias'"),
            ({"odd": twin.array(X)}, "weights have .*odd', which"),
            ({"dt_bias": twin.array(X)}, "dt_bias' must have shape"),
        ):
            ((name, value),) = change.items()
            place = next(iter(weights)).rsplit("attn.", 1)[0]
            changed = weights | {f"{place}attn.{name}": value}
            changed = {k: x for k, x in changed.items() if x is not None}
            with pytest.raises(ValueError, match=message):
                twin.DeltaAttention.from_config(config, 1, weights=changed)


def test_a_plan_tells_the_sizes_and_which_layers_are_built(torch_column):
    config = {"model_type": "kimi_linear"} | SIZES | KIMI
    found = configs.plan(config)
    assert found.layers[0].delta.per_channel
    assert "delta rule with a gate for each channel" in found.describe(0)
    assert found.layers[3].delta is None
    with pytest.raises(ValueError, match="layer 3 must be one with the delta rule, got"):
        torch_column.DeltaAttention.from_config(config, 3)
    with pytest.raises(ValueError, match=r"see DeltaAttention\.from_config"):
        torch_column.MultiHeadAttention.from_config(config, 0)
    config["linear_attn_config"] = KIMI["linear_attn_config"] | {"gate_lower_bound": -5.0}
    assert "not computed by posattn" in configs.plan(config).describe(0)
    config = {"model_type": "glm5_next_text"} | SIZES | GLM
    found = configs.plan(config)
    assert "a gate for each channel above -5;" in found.describe(2)
    chosen = (
        "8 of the keys in blocks of 4 chosen by an indexer of 2 heads of 4 by a learned"
    )
    assert chosen in found.describe(3)
    with pytest.raises(ValueError, match="index_topk = 8 must be a multiple of index_kp"):
        configs.plan(config | {"index_kpool": 3})
