"""Towers, and transformers that draw, beside transformers and diffusers (`nox -s oracles`)."""

import importlib
import json

import numpy as np
import pytest
import torch
from diffusers import (
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
    WanTransformer3DModel,
)
from torch import nn
from transformers import CONFIG_MAPPING
from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

from posattn import configs
from posattn.torch import MultiHeadAttention, grid_coordinates, rope_from_config

SIZE = 6, 4  # of a picture, in patches
GRID = grid_coordinates(*SIZE)
CENTERS = 2 * (GRID + 0.5) / torch.tensor(SIZE) - 1
FILM = torch.cat([nn.functional.pad(GRID, (1, 0), value=t) for t in range(3)])
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
TOWER = {"depth": 2, "hidden_size": 48, "num_heads": 2, "out_hidden_size": 48}
TOWERS = {
    "dinov3_vit": SMALL,
    "qwen2_5_vl_vision": TOWER | {"fullatt_block_indexes": [1]},
    "qwen2_vl_vision": {"depth": 2, "embed_dim": 48, "num_heads": 2},
    **{f"{name}_vision": TOWER for name in ("qwen3_5_moe", "qwen3_5", "qwen3_vl_moe", "qwen3_vl")},
}  # fmt: skip
DRAWN = {"attention_head_dim": 24, "num_attention_heads": 2, "num_layers": 2}
AXES = DRAWN | {"axes_dims_rope": [4, 8, 12], "joint_attention_dim": 8}
AGREE = 2e-6  # in float32, of the largest entry


def with_weights(layer, *states):
    """Load the states of query, key, value and output, each a weight and perhaps a bias."""
    for role, state in zip(("query", "key", "value", "output"), states, strict=True):
        layer.get_submodule(role).load_state_dict(state)


def assert_rotates(config, coordinates, cos, sin):
    """Our rotation of each pair of a head by the angles of these cosines and sines."""
    rotate = rope_from_config(config, layer=1)
    pairs = len(rotate.frequencies[0])
    halves = slice(pairs), slice(pairs, None)
    neighbors = slice(0, None, 2), slice(1, None, 2)
    first, second = halves if rotate.layout == "half" else neighbors
    x = torch.zeros(len(coordinates), 2 * pairs, dtype=torch.float64)
    x[:, first] = 1
    turned = rotate(x, coordinates)
    np.testing.assert_allclose(turned[:, first], cos.double(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(turned[:, second], sin.double(), rtol=0, atol=1e-6)


def assert_attends(config, layer, attention, told, names, coordinates=None):
    """The layer of the configuration gives what the module gives; `names` are of its projections."""
    for parameter in attention.eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    made = MultiHeadAttention.from_config(config, layer)
    states = [attention.get_submodule(name).state_dict() for name in names]
    none = torch.zeros(made.dim)  # DINOv3's keys have no offset
    with_weights(made, *({"bias": none} | state for state in states))
    for role in ("query", "key"):
        theirs = getattr(attention, f"norm_{role[0]}", None)
        if theirs is not None:
            own = getattr(made, f"{role}_norm").weight
            own.data.copy_(theirs.weight.reshape(own.shape))
    x = torch.randn(1, 5 if coordinates is None else len(coordinates), made.dim)
    with torch.no_grad():
        want = attention(x[0] if "cu_seqlens" in told else x, **told)
        got = made(x, coordinates=coordinates)
    want = want[0] if isinstance(want, tuple) else want
    assert (got.reshape(want.shape) - want).abs().max() <= AGREE * want.abs().max()


class Split(nn.Module):
    """A module of Qwen's towers, whose one projection makes queries, keys and values."""

    def __init__(self, inner):
        super().__init__()
        self.inner, dim = inner, len(inner.proj.bias)
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.proj = inner.proj

    def forward(self, x, **told):
        """What the module gives with our three projections in place of its one."""
        for kind in ("weight", "bias"):
            parts = [getattr(part, kind) for part in (self.q, self.k, self.v)]
            getattr(self.inner.qkv, kind).copy_(torch.cat(parts))
        return self.inner(x, **told)


def made_by(config, kind):
    """The class of a kind in the module of transformers that reads a configuration."""
    config._attn_implementation = "eager"
    module = type(config).__module__.replace("configuration_", "modeling_")
    stem = type(config).__name__.removesuffix("Config")
    names = stem + kind, stem.removesuffix("Vision") + kind, kind
    return next(
        c for n in names if (c := getattr(importlib.import_module(module), n, None))
    )


@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_rotates_by_row_and_column(name):
    config = CONFIG_MAPPING[name](**TOWERS[name])
    if name == "dinov3_vit":
        rotary = made_by(config, "RopePositionEmbedding")(config).eval()
        both = rotary(torch.zeros(1, 3, *(16 * side for side in SIZE)))
        attention, at, ends = made_by(config, "Attention")(config), CENTERS, {}
        names = [f"{part}_proj" for part in "qkvo"]
    else:
        at = get_vision_position_ids(torch.tensor([[1, *SIZE]]), 2)
        both = made_by(config, "RotaryEmbedding")(config)(torch.zeros(1), at)
        attention = Split(made_by(config, "VisionAttention")(config))
        ends = {"cu_seqlens": torch.tensor([0, len(GRID)], dtype=torch.int32)}
        names = "q", "k", "v", "proj"
    assert_rotates(config, at, *(x[..., :12] for x in both))
    told = {"position_embeddings": both} | ends
    assert_attends(config, 1, attention, told, names, at)


def test_tiles_of_qwen2_5_are_as_large_as_the_row_says():
    config = CONFIG_MAPPING["qwen2_5_vl_vision"]()
    sizes = config.spatial_merge_size, config.window_size, config.patch_size
    _, ends = get_vision_window_index(torch.tensor([[1, 16, 24]]), *sizes)
    assert ends.diff().tolist() == [64] * 6
    plan = configs.plan(config)
    assert [n for n, la in enumerate(plan.layers) if la.kind == "full"] == [7, 15, 23, 31]
    assert "within tiles of 8 by 8 patches" in str(plan.layers[0])


@pytest.mark.parametrize(
    "name",
    ["dinov2", "dinov2_with_registers", "vit"]
    + [f"{m}_{kind}_model" for m in ("clip", "siglip", "siglip2") for kind in ("text", "vision")],
)  # fmt: skip
def test_a_table_has_the_rows_of_the_model(name):
    config = CONFIG_MAPPING[name](**SMALL)
    model = made_by(config, "Model")(config)
    (table,) = (p for n, p in model.named_parameters() if "position_embedding" in n)
    layer = configs.plan(config).layers[1]
    assert layer.table[1] == table.shape[-2]
    assert layer.causal == (name == "clip_text_model")
    found = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
    last = "o_proj" if hasattr(found, "o_proj") else "out_proj"
    assert_attends(config, 1, found, {}, ("q_proj", "k_proj", "v_proj", last))


def test_flux_rotates_by_three_coordinates():
    model = FluxTransformer2DModel(**AXES, num_single_layers=1)
    config, both = json.loads(model.to_json_string()), model.pos_embed(FILM)
    assert_rotates(config, FILM, *(x[:, ::2] for x in both))
    attention = model.single_transformer_blocks[0].attn
    attention.output, inner = nn.Linear(48, 48), attention.forward
    attention.forward = lambda x, **told: attention.output(inner(x, **told))
    names = "to_q", "to_k", "to_v", "output"
    assert_attends(config, 2, attention, {"image_rotary_emb": both}, names, FILM)
    with pytest.raises(ValueError, match="has streams = 2, which MultiHeadAttention"):
        MultiHeadAttention.from_config(config, 1)


def test_qwen_image_rotates_around_the_center():
    model = QwenImageTransformer2DModel(**AXES)
    config = json.loads(model.to_json_string())
    picture, words = model.pos_embed([(3, *SIZE)], max_txt_seq_len=5, device="cpu")
    at = FILM - torch.tensor([0, *((side + 1) // 2 for side in SIZE)])
    assert_rotates(config, at, picture.real, picture.imag)
    line = (torch.arange(5) + max(SIZE) // 2)[:, None].expand(5, 3)
    assert_rotates(config, line, words.real, words.imag)


def test_wan_rotates_by_frame_row_and_column():
    options = {
        "attention_head_dim": 20,
        "ffn_dim": 8,
        "text_dim": 8,
        "patch_size": (1, 1, 1),
    }
    model = WanTransformer3DModel(**DRAWN | options)
    config = json.loads(model.to_json_string())
    cos, sin = both = model.rope(torch.zeros(1, 16, 3, *SIZE))
    assert_rotates(config, FILM, cos[0, :, 0, ::2], sin[0, :, 0, 1::2])
    names = "to_q", "to_k", "to_v", "to_out.0"
    assert_attends(config, 1, model.blocks[1].attn1, {"rotary_emb": both}, names, FILM)
