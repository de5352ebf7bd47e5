"""Towers, and transformers that draw, beside transformers and diffusers (`nox -s oracles`)."""

import importlib
import json

import numpy as np
import pytest
import torch
from diffusers.models.transformers import (
    transformer_flux,
    transformer_qwenimage,
    transformer_wan,
)
from transformers import CONFIG_MAPPING
from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

from posattn import configs
from posattn.torch import MultiHeadAttention, grid_coordinates, rope_from_config
from tests.nightly.oracles.loading import with_weights

SIZE = 6, 4  # of a picture, in patches
GRID = grid_coordinates(*SIZE)
CENTERS = 2 * (GRID + 0.5) / torch.tensor(SIZE) - 1
FILM = torch.cat([torch.nn.functional.pad(GRID, (1, 0), value=t) for t in range(3)])
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
TOWER = {"depth": 2, "hidden_size": 48, "num_heads": 2, "out_hidden_size": 48}
TOWERS = {
    "dinov3_vit": SMALL,
    "qwen2_5_vl_vision": TOWER | {"fullatt_block_indexes": [1]},
    "qwen2_vl_vision": {"depth": 2, "embed_dim": 48, "num_heads": 2},
    "qwen3_5_moe_vision": TOWER,
    "qwen3_5_vision": TOWER,
    "qwen3_vl_moe_vision": TOWER,
    "qwen3_vl_vision": TOWER,
}
TABLES = ("clip_text_model", "clip_vision_model", "dinov2", "dinov2_with_registers")
TABLES += ("siglip2_text_model", "siglip2_vision_model", "siglip_text_model")
TABLES += ("siglip_vision_model", "vit")
DRAWN = {"attention_head_dim": 24, "num_attention_heads": 2, "num_layers": 2}
AXES = DRAWN | {"axes_dims_rope": [4, 8, 12], "joint_attention_dim": 8}
AGREE = 2e-6  # in float32, of the largest entry


def tables(config, coordinates, layer=1):
    """Cosine and sine of the angle of each pair of a head."""
    rotate = rope_from_config(config, layer=layer)
    pairs = len(rotate.frequencies[0])
    x = torch.zeros(len(coordinates), 2 * pairs, dtype=torch.float64)
    first, second = (
        (slice(pairs), slice(pairs, None))
        if rotate.layout == "half"
        else (slice(0, None, 2), slice(1, None, 2))
    )
    x[:, first] = 1
    turned = rotate(x, coordinates)
    return turned[:, first], turned[:, second]


def assert_alike(ours, theirs):
    """The same cosines and sines."""
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, want.double(), rtol=0, atol=1e-6)


def assert_attends(config, layer, attention, x, told, names, coordinates=None):
    """The layer of the configuration gives what the module gives; `names` are of its projections."""
    made = MultiHeadAttention.from_config(config, layer)
    states = [attention.get_submodule(name).state_dict() for name in names]
    none = torch.zeros(x.shape[-1])  # DINOv3's keys have no offset
    with_weights(made, *({"bias": none} | state for state in states))
    for role in ("query", "key"):
        theirs = getattr(attention, f"norm_{role[0]}", None)
        if theirs is not None:
            own = getattr(made, f"{role}_norm").weight
            own.data.copy_(theirs.weight.reshape(own.shape))
    with torch.no_grad():
        want = attention(x, **told)
        got = made(x if x.dim() == 3 else x[None], coordinates=coordinates)
    want = want[0] if isinstance(want, tuple) else want
    assert (got.reshape(want.shape) - want).abs().max() <= AGREE * want.abs().max()


def drawn(module):
    """The module with random weights, norms too."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


def split(attention):
    """A module of Qwen's towers, whose one projection makes queries, keys and values."""
    parts = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    for name, weight, bias in zip(("q", "k", "v"), *parts, strict=True):
        own = torch.nn.Linear(*weight.shape[::-1])
        own.load_state_dict({"weight": weight, "bias": bias})
        setattr(attention, name, own)
    return attention


def made_by(config, kind):
    """The class of a kind in the module of transformers that reads a configuration."""
    module = type(config).__module__.replace("configuration_", "modeling_")
    stem = type(config).__name__.removesuffix("Config")
    names = stem + kind, stem.removesuffix("Vision") + kind, kind
    return next(
        c for n in names if (c := getattr(importlib.import_module(module), n, None))
    )


@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_rotates_by_row_and_column(name):
    config = CONFIG_MAPPING[name](**TOWERS[name])
    config._attn_implementation = "eager"
    x = torch.randn(len(GRID), 48)
    if name == "dinov3_vit":
        rotary = made_by(config, "RopePositionEmbedding")(config).eval()
        both = rotary(torch.zeros(1, 3, *(16 * side for side in SIZE)))
        attention = drawn(made_by(config, "Attention")(config))
        names, at = [f"{part}_proj" for part in "qkvo"], CENTERS
        x, told = x[None], {"position_embeddings": both}
    else:
        at = get_vision_position_ids(torch.tensor([[1, *SIZE]]), 2)
        both = made_by(config, "RotaryEmbedding")(config)(x, at)
        attention = split(drawn(made_by(config, "VisionAttention")(config)))
        ends = torch.tensor([0, len(GRID)], dtype=torch.int32)
        names = ("q", "k", "v", "proj")
        told = {"position_embeddings": both, "cu_seqlens": ends}
    assert_alike(tables(config, at), (x[..., :12] for x in both))
    assert_attends(config, 1, attention, x, told, names, at)


def test_tiles_of_qwen2_5_are_as_large_as_the_row_says():
    config = CONFIG_MAPPING["qwen2_5_vl_vision"]()
    _, ends = get_vision_window_index(
        torch.tensor([[1, 16, 24]]),
        config.spatial_merge_size,
        config.window_size,
        config.patch_size,
    )
    plan = configs.plan(config)
    assert ends.diff().tolist() == [64] * 6
    assert [n for n, la in enumerate(plan.layers) if la.kind == "full"] == [7, 15, 23, 31]
    assert "within tiles of 8 by 8 patches" in str(plan.layers[0])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_rows_of_the_model(name):
    config = CONFIG_MAPPING[name](**SMALL)
    config._attn_implementation = "eager"
    model = made_by(config, "Model")(config).eval()
    rows = {n: p for n, p in model.named_parameters() if "position_embedding" in n}
    (table,) = rows.values()
    layer = configs.plan(config).layers[1]
    assert layer.table[1] == table.shape[-2]
    attention = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
    names = ["q_proj", "k_proj", "v_proj"]
    names.append("o_proj" if hasattr(attention, "o_proj") else "out_proj")
    x = torch.randn(1, 5, 48)
    assert_attends(config, 1, drawn(attention), x, {}, names)
    assert layer.causal == (name == "clip_text_model")


def saved(model):
    """What diffusers saves of a model."""
    return json.loads(model.to_json_string())


def test_flux_rotates_by_three_coordinates():
    model = transformer_flux.FluxTransformer2DModel(**AXES, num_single_layers=1)
    config = saved(model)
    both = model.pos_embed(FILM)
    assert_alike(tables(config, FILM), (x[:, ::2] for x in both))
    block = drawn(model.single_transformer_blocks[0])
    block.attn.output = torch.nn.Linear(48, 48)
    told = {"image_rotary_emb": both}
    made = MultiHeadAttention.from_config(config, 2)
    names = ("to_q", "to_k", "to_v", "output")
    inner = block.attn.forward
    block.attn.forward = lambda x, **rest: block.attn.output(inner(x, **rest))
    x = torch.randn(1, len(FILM), 48)
    assert_attends(config, 2, block.attn, x, told, names, FILM)
    assert made.output.bias is not None
    with pytest.raises(ValueError, match="has streams = 2, which MultiHeadAttention"):
        MultiHeadAttention.from_config(config, 1)


def test_qwen_image_rotates_around_the_center():
    model = transformer_qwenimage.QwenImageTransformer2DModel(**AXES)
    picture, words = model.pos_embed([(3, *SIZE)], max_txt_seq_len=5, device="cpu")
    at = FILM - torch.tensor([0, *((side + 1) // 2 for side in SIZE)])
    assert_alike(tables(saved(model), at), (picture.real, picture.imag))
    line = (torch.arange(5) + max(SIZE) // 2)[:, None].expand(5, 3)
    assert_alike(tables(saved(model), line), (words.real, words.imag))


def test_wan_rotates_by_frame_row_and_column():
    options = DRAWN | {
        "attention_head_dim": 20,
        "ffn_dim": 8,
        "text_dim": 8,
        "patch_size": (1, 1, 1),
    }
    model = transformer_wan.WanTransformer3DModel(**options)
    cos, sin = both = model.rope(torch.zeros(1, 16, 3, *SIZE))
    assert_alike(tables(saved(model), FILM), (cos[0, :, 0, ::2], sin[0, :, 0, 1::2]))
    names = ("to_q", "to_k", "to_v", "to_out.0")
    x = torch.randn(1, len(FILM), 40)
    attention = drawn(model.blocks[1].attn1)
    assert_attends(saved(model), 1, attention, x, {"rotary_emb": both}, names, FILM)
