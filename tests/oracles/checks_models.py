"""What real models use: each row of docs/_records/models.json beside transformers (`nox -s oracles`).

A row says what a configuration class of transformers says, by default or with the `options` that the row
names with their source, and its line of code is evaluated and compared with the numbers of that model.
"""

import importlib
import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import posattn.torch
from tests.conftest import draw, error

MODELS = json.loads(
    (Path(__file__).parents[2] / "docs" / "_records" / "models.json").read_text()
)
ROTARY, OTHERS = MODELS["rotary"], MODELS["others"]
NAMES = {name: getattr(posattn.torch, name) for name in posattn.torch.__all__}
SINGLE = 1e-5  # of float32 tables at the small positions that are compared
WHERE = torch.tensor([0, 1, 2, 3, 5, 8, 40])
each_rotary = pytest.mark.parametrize("row", ROTARY, ids=lambda row: row["family"])
WINDOWS = {"sliding_attention", "chunked_attention"}


def evaluated(row):
    """What the row's line of code makes."""
    return eval(row["code"], {"partial": partial, **NAMES})


def configured(row, **small):
    options = row.get("options", {})
    return getattr(transformers, row["config"])(**options, **small)


def modelling(config):
    """The module of a configuration's model."""
    return importlib.import_module(
        type(config).__module__.replace("configuration", "modeling")
    )


def single(x):
    return torch.tensor(x, dtype=torch.float32)


def double(x):
    return x.detach().double().numpy()


def tables(row, config, positions):
    """Cosines and sines (or both as a complex number) of the model at the positions."""
    found = modelling(config)
    kind = next(
        getattr(found, name)
        for name in dir(found)
        if name.endswith("RotaryEmbedding") and "Vision" not in name
    )
    options = [row["layer"]] if "layer" in row else []
    return kind(config)(torch.zeros(1), positions, *options)


def turned(row, config, x):
    """Turn `x` as the model does: `(heads, tokens, width)`."""
    found = modelling(config)
    if row["config"] in ("GPTJConfig", "RoFormerConfig"):
        return by_table(row, config, x)
    if row["config"] == "DINOv3ViTConfig":
        config.image_size, config.patch_size = 8 * 3, 8
        cos, sin = found.DINOv3ViTRopePositionEmbedding(config).eval()(
            torch.zeros(1, 3, 24, 24)
        )
        return found.apply_rotary_pos_emb(x[None], x[None], cos, sin)[0][0]
    positions = WHERE[None] if row.get("axes") != 3 else places(3).T[:, None]
    table = tables(row, config, positions)
    if not isinstance(table, tuple):  # Llama 4, with tokens before heads
        apply = found.apply_rotary_emb
        return apply(x.transpose(0, 1)[None], x.transpose(0, 1)[None], table)[0][
            0
        ].transpose(0, 1)
    part = x[None]
    if row["config"] in (
        "PhiConfig",
        "StableLmConfig",
        "PersimmonConfig",
        "DeepseekV3Config",
    ):
        part = part[..., : row["turns"]]  # which their attention layers cut out
    apply = getattr(found, row.get("apply", "apply_rotary_pos_emb"))
    whole = apply(part, part, *table)[0][0]
    if "apply" in row:  # the result has the other layout
        whole = posattn.torch.to_interleaved(whole)
    return torch.cat([whole, x[..., whole.shape[-1] :]], dim=-1)


def by_table(row, config, x):
    found = modelling(config)
    if row["config"] == "GPTJConfig":
        table = found.create_sinusoidal_positions(64, config.rotary_dim)[WHERE]
        sin, cos = table[None].chunk(2, dim=-1)
        part = x[..., : config.rotary_dim].transpose(0, 1)[None]
        part = found.apply_rotary_pos_emb(part, sin, cos)[0].transpose(0, 1)
        return torch.cat([part, x[..., config.rotary_dim :]], dim=-1)
    table = found.RoFormerSinusoidalPositionalEmbedding(64, x.shape[-1]).create_weight()[
        WHERE
    ]
    rotate = found.RoFormerSelfAttention.apply_rotary_position_embeddings
    return rotate(table[None, None], x[None], x[None])[0][0]


def places(axes):
    """Where the tokens stand, along each axis."""
    if axes == 2:  # centres of 3 by 3 patches, from -1 to 1, as angles
        centres = (2 * np.arange(3) + 1) / 3 - 1
        grid = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1)
        return torch.tensor(2 * math.pi * grid.reshape(9, 2))
    return torch.tensor(np.random.default_rng(0).integers(0, 30, (len(WHERE), axes)))


@each_rotary
def test_the_line_of_code_turns_as_the_model_does(row):
    tokens = 9 if row.get("axes") == 2 else len(WHERE)
    x = draw(700, 2, tokens, row["head"])
    where = places(row["axes"]) if "axes" in row else WHERE
    ours = evaluated(row)(torch.tensor(x), where).numpy()
    theirs = double(turned(row, configured(row), single(x)))
    assert error(ours, theirs) <= SINGLE


def says(config, row):
    """The parameters of the rotation that hold for the row's layers."""
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get(row.get("layer"), rope)


@each_rotary
def test_base_width_and_scaling_are_those_of_the_configuration(row):
    config = configured(row)
    rope = says(config, row)
    base = rope.get("rope_theta") or getattr(config, "rope_theta", 10000.0)
    assert row["base"] == base
    head = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    assert row["head"] == (head or config.hidden_size // config.num_attention_heads) or (
        row["config"] == "DeepseekV3Config"
        and row["head"] == config.qk_nope_head_dim + config.qk_rope_head_dim
    )
    share = rope.get("partial_rotary_factor", 1.0)
    turns = getattr(config, "rotary_dim", None) or int(share * row["head"])
    assert row["turns"] == (
        config.qk_rope_head_dim if row["config"] == "DeepseekV3Config" else turns
    )
    kind = rope.get("rope_type", "default")
    numbers = {
        "default": [],
        "linear": ["factor"],
        "yarn": ["factor", "original_max_position_embeddings"],
        "llama3": [
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        ],
    }[kind]
    name = {"linear": "linear", "yarn": "YaRN", "llama3": "llama3"}.get(kind)
    said = f"{name}: {', '.join(f'{rope[key]:g}' for key in numbers)}" if name else None
    assert row.get("scaling") == said


@each_rotary
def test_windows_are_those_of_the_configuration(row):
    config = configured(row)
    types = getattr(config, "layer_types", None)
    if types is None:
        window = getattr(config, "sliding_window", None)
        assert row.get("windowed") == ([1] if window else None)
        assert row.get("window") == window
        return
    windowed = [int(kind in WINDOWS) for kind in types]
    pattern = row.get("windowed", [0])
    # its last layer is a global one
    last = row["config"] in ("Exaone4Config", "Olmo3Config")
    for i, here in enumerate(windowed[: -1 if last else None]):
        assert here == pattern[i % len(pattern)]
    names = ("attention_chunk_size", "local_attention", "sliding_window")
    sizes = (getattr(config, name, None) for name in names)
    assert row.get("window") == (next(filter(None, sizes), None) if any(windowed) else None)


SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 8,
}


@pytest.mark.parametrize(
    "row", [row for row in ROTARY if "positioned" in row], ids=lambda row: row["family"]
)
def test_layers_without_position_do_not_change_when_positions_do(row):
    config = configured(row, **SMALL)
    config._attn_implementation = "eager"
    found = modelling(config)
    kind = next(
        getattr(found, name)
        for name in dir(found)
        if name.endswith("Attention") and "Vision" not in name and name != "Attention"
    )
    x = single(draw(701, 1, len(WHERE), 32))
    near, far = (
        tables(row, config, p[None]) for p in (torch.arange(len(WHERE)), 3 * WHERE)
    )
    for i in range(8):
        torch.manual_seed(0)
        layer = kind(config, layer_idx=i).eval()
        outputs = [
            layer(hidden_states=x, position_embeddings=p, attention_mask=None)[0]
            for p in (near, far)
        ]
        moved = error(double(outputs[0]), double(outputs[1])) > 1e-4
        assert moved == row["positioned"][i % len(row["positioned"])]


# what does not turn


def other(family):
    return next(row for row in OTHERS if row["family"] == family)


@pytest.mark.parametrize(
    "row", [r for r in OTHERS if r["check"] == "table"], ids=lambda r: r["family"]
)
def test_learned_tables(row):
    config = configured(row, num_hidden_layers=1, vocab_size=8, pad_token_id=1)
    model = transformers.AutoModel.from_config(config)
    theirs = model.get_submodule(row["module"])
    ours = evaluated(row)
    ours.load_state_dict({"table": theirs.weight})
    want = theirs.weight[WHERE + row["offset"]]
    got = ours(
        torch.zeros(len(WHERE), config.hidden_size), key_positions=WHERE + row["offset"]
    )
    assert torch.equal(got, want)
    assert getattr(theirs, "offset", 0) == row["offset"]


def test_whispers_sinusoid():
    row = other("Whisper, encoder")
    config = configured(row)
    from transformers.models.whisper.modeling_whisper import sinusoids

    want = sinusoids(config.max_source_positions, config.d_model)
    assert np.abs(evaluated(row).double().numpy() - double(want)).max() < 5e-4


def test_marians_sinusoid():
    row = other("Marian")
    config = configured(row)
    kind = modelling(config).MarianSinusoidalPositionalEmbedding
    want = kind(config.max_position_embeddings, config.d_model).create_weight()
    assert error(evaluated(row).double().numpy(), double(want)) <= SINGLE


def test_t5():
    row = other("T5")
    config = configured(row)
    theirs = modelling(config).T5Attention(
        config, has_relative_attention_bias=True, layer_idx=0
    )
    ours = evaluated(row)
    ours.load_state_dict({"table": theirs.relative_attention_bias.weight})
    got = ours(torch.arange(200), torch.arange(300))
    assert error(double(got), double(theirs.compute_bias(200, 300)[0])) <= SINGLE
    assert row["scheme"] == (
        f"{config.relative_attention_num_buckets} buckets of offsets,"
        f" up to {config.relative_attention_max_distance}"
    )


@pytest.mark.parametrize("family", ["BLOOM", "MPT"])
def test_alibi(family):
    row = other(family)
    config = configured(row)
    heads = config.num_attention_heads
    where = torch.arange(9)
    ours = double(evaluated(row)(where, where))
    if family == "MPT":
        assert config.attn_config.alibi
        theirs = double(modelling(config).build_mpt_alibi_tensor(heads, 9))
    else:
        build = modelling(config).build_alibi_tensor
        theirs = double(build(torch.ones(1, 9), heads, torch.float32))
    row_by_row = ours - theirs  # both leave a constant per row out
    assert np.allclose(
        (row_by_row - row_by_row[..., :1])[:, np.tri(9, dtype=bool)], 0, atol=SINGLE
    )


def test_xlnet_has_the_sizes_of_the_line():
    """Its numbers are compared in checks_transformers.py."""
    row = other("XLNet")
    config = configured(row)
    ours = evaluated(row)
    assert ours.weight.shape == (config.d_model, config.d_model)
    assert ours.content_bias.shape == (config.n_head, config.d_model // config.n_head)


def test_swin():
    row = other("Swin")
    config = configured(row)
    theirs = modelling(config).SwinRelativePositionBias(
        config.num_heads[0], (config.window_size,) * 2
    )
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    ours = evaluated(row)
    ours.load_state_dict({"table": theirs.relative_position_bias_table})
    where = torch.arange(config.window_size**2)
    assert error(double(ours(where, where)), double(theirs()[0])) <= SINGLE


def test_jambas_attention_is_told_no_positions():
    row = other("Jamba")
    config = configured(row, **SMALL | {"attn_layer_period": 2, "attn_layer_offset": 0})
    config._attn_implementation = "eager"
    layer = modelling(config).JambaAttention(config, layer_idx=0).eval()
    x = single(draw(702, 1, 5, 32))
    order = [3, 0, 4, 1, 2]
    whole, permuted = (
        layer(hidden_states=y, attention_mask=None)[0] for y in (x, x[:, order])
    )
    assert error(double(permuted), double(whole[:, order])) <= SINGLE
    assert evaluated(row) is None


def test_the_default_base_of_qwen3_is_not_that_of_its_checkpoints():
    """The page of the table tells it as a common mistake."""
    row = next(row for row in ROTARY if row["family"] == "Qwen3")
    assert transformers.Qwen3Config().rope_parameters["rope_theta"] == 10000
    assert row["base"] == 1000000


def test_deepseek_turns_the_last_entries_and_sharpens_its_scores():
    """What the page says beside the table."""
    row = next(row for row in ROTARY if row["family"] == "DeepSeek-V3")
    config = configured(row)
    found = modelling(config)
    with torch.device("meta"):
        layer = found.DeepseekV3Attention(config, layer_idx=0)
    assert layer.scaling == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1) ** 2)
    assert "torch.cat((q_pass, q_rot), dim=-1)" in Path(found.__file__).read_text(
        encoding="utf-8"
    )


def test_dinov3s_coordinates_run_from_minus_to_plus_two_pi():
    found = modelling(transformers.DINOv3ViTConfig())
    for size in (3, 30):
        centres = found.get_patches_center_coordinates(size, size, torch.float32, "cpu")
        assert centres.min() == pytest.approx(-1 + 1 / size)
        assert centres.max() == pytest.approx(1 - 1 / size)


@pytest.mark.parametrize(
    "change", [{"base": 9e3}, {"turns": 2}, {"window": 7}, {"code": "rotate"}]
)
def test_a_wrong_row_is_noticed(change):
    row = next(row for row in ROTARY if row["family"] == "Gemma 2") | change
    checks = (
        test_the_line_of_code_turns_as_the_model_does,
        test_base_width_and_scaling_are_those_of_the_configuration,
        test_windows_are_those_of_the_configuration,
    )
    failed = 0
    for check in checks:
        try:
            check(row)
        except AssertionError:
            failed += 1
    assert failed == 1
