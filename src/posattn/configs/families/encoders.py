"""Encoders, which see both directions, and models of an encoder with a decoder behind it."""

from dataclasses import replace
from functools import partial

from posattn.configs.data import data
from posattn.configs.families import stack
from posattn.configs.families.told import by_row
from posattn.configs.layers import Buckets, Disentangled


def qwen2_5_vision(keys, **options):
    """Qwen2.5-VL's tower: most layers see a tile of the picture only, from its upper left corner on."""
    layers = by_row(keys, **options)
    full = keys.sequence("fullatt_block_indexes")
    merged = keys.count("spatial_merge_size")
    tile = keys.count("window_size") // merged // keys.count("patch_size") * merged
    words = f"attention within tiles of {tile} by {tile} patches, rotary position of row and column"
    return tuple(
        layer if layer.index in full else replace(layer, kind=words) for layer in layers
    )


def deberta(keys, later):
    """DeBERTa: terms of content and position, whose number shrinks the scale; v2 and v3 have buckets."""
    count, shares, normed = None, False, "none"
    if later:
        count = keys.count("position_buckets", absent=None, least=-1)
        shares = keys.flag("share_att_key", absent=False)
        among = ("none", "layer_norm")
        normed = keys.choice("norm_rel_ebd", among=among, absent="none")
        keys.ignore("conv_kernel_size", "conv_act", "conv_groups")  # behind the first layer
    layer = replace(stack.offset(stack.alone(keys)), causal=False)
    longest = keys.count("max_position_embeddings")
    keys.only("talking_head", False)
    if keys.flag("position_biased_input"):
        layer = replace(layer, table=("learned", longest))
    if not keys.flag("relative_attention"):
        keys.ignore("max_relative_positions", "pos_att_type")
        return stack.equal(keys, layer)
    distance = keys.count("max_relative_positions", least=-1)
    _, terms = keys.take(["pos_att_type"])
    terms = terms.split("|") if isinstance(terms, str) else terms
    if not isinstance(terms, list) or not {"c2p", "p2c"}.issuperset(map(str, terms)):
        raise keys.error(f"pos_att_type must name c2p, p2c or both, got {terms!r}")
    bias = Disentangled(
        tuple(terms),
        longest if distance < 1 else distance,
        count if count and count > 0 else None,
        shares,
        normed == "layer_norm",
    )
    scale = (layer.head_dim * (1 + len(terms))) ** -0.5
    return stack.equal(keys, layer, bias=bias, scale=scale)


def t5(keys):
    """T5 and mT5: buckets of offsets, a table for all layers of a stack, and scores that are not scaled."""
    keys.only("is_decoder", False)
    layer = stack.alone(
        keys,
        dim=("d_model", "hidden_size"),
        heads=("num_heads", "num_attention_heads"),
        each=keys.count("d_kv", "head_dim", most=2**16),
    )
    bias = Buckets(
        keys.count("relative_attention_num_buckets"),
        keys.count("relative_attention_max_distance"),
        bidirectional=True,
    )
    encoder = replace(layer, scale=1.0, causal=False, bias=bias)
    decoder = replace(layer, scale=1.0, bias=replace(bias, bidirectional=False))
    count = keys.count("num_layers", "num_hidden_layers", most=10_000)
    second = keys.count("num_decoder_layers", absent=count, null=count, most=10_000)
    return stack.numbered([encoder] * count + [decoder] * second)


def two(keys, tables, bias=(True,) * 3):
    """An encoder with a decoder behind it, each with a table and keys of its own (Whisper, Marian, BART)."""
    layers = []
    for (heads, count), (kind, rows) in zip(SIDES, tables, strict=True):
        layer = stack.offset(stack.alone(keys, dim=("d_model",), heads=(heads,)))
        layer = replace(layer, use_bias=tuple(bias), table=(kind, keys.count(rows)))
        layer = replace(layer, causal=count == "decoder_layers")
        layers += [layer] * keys.count(count, most=10_000)
    keys.ignore("num_hidden_layers", "share_encoder_decoder_embeddings")
    return stack.numbered(layers)


SIDES = (
    ("encoder_attention_heads", "encoder_layers"),
    ("decoder_attention_heads", "decoder_layers"),
)
ENCODER = {"causal": False, "bias": True, "grouped": False, "head_dim": False}
EQUAL = {
    name: told if "tables" in told else ENCODER | told
    for names, told in data("encoders.json").items()
    for name in names.split()
}
FAMILIES = {
    **{
        name: partial(two if "tables" in told else by_row, **told)
        for name, told in EQUAL.items()
    },
    "deberta": partial(deberta, later=False),
    "deberta-v2": partial(deberta, later=True),
    "mt5": t5,
    "qwen2_5_vl_vision": partial(qwen2_5_vision, **EQUAL["qwen2_5_vl_vision"]),
    "t5": t5,
}
