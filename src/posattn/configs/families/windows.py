"""Decoders whose layers slide by a pattern, each kind with what is its own: gpt-oss, OLMo 3, MiMo, Step."""

from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.families.gemma import every_other
from posattn.configs.families.llama import RMS, layer_of
from posattn.configs.families.stack import FULL, SLIDING

__all__ = ["FAMILIES"]

RATES = {"rope_theta": "rope_theta", "partial_rotary_factors": "partial_rotary_factor"}


def gpt_oss(keys):
    """gpt-oss: sinks, and a window in every other layer."""
    layer = replace(layer_of(keys), sinks=True)
    rope = stack.rotation(keys, layer.head_dim)
    return stack.patterned(keys, layer, every_other, lambda kind: rope)


def olmo3(keys):
    """OLMo 3: three layers in four slide, and only the others are scaled."""
    layer = layer_of(keys, norm=RMS | {"axes": "width"})
    return stack.patterned(
        keys,
        layer,
        lambda place: FULL if (place + 1) % 4 == 0 else SLIDING,
        lambda kind: of_olmo3(keys, layer.head_dim, kind),
    )


def of_olmo3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form, where sliding layers are not scaled."""
    if keys.values.get("rope_parameters"):
        return stack.rotation(keys, head_dim, kind=kind)
    base = keys.number("rope_theta", "rope_parameters", above=1)
    if base != 500_000:
        raise keys.error(
            f"rope_theta = {base:g} would rotate full layers only, and transformers rotates "
            "sliding ones by 500000",
            do="write rope_parameters for each",
        )
    return stack.rotation(keys if kind == FULL else keys.without("rope_scaling"), head_dim)


def mimo_v2(keys):
    """MiMo-V2-Flash: narrower values, scaled; layers that slide have sinks and more heads of keys."""
    layer = layer_of(keys, output=False)
    layer = replace(
        layer,
        value_dim=keys.count("v_head_dim", most=2**16),
        value_scale=keys.number("attention_value_scale", null=1.0),
    )
    keys.ignore("sliding_window", "attention_chunk_size")
    keys.known(
        swa_num_attention_heads=layer.num_heads,
        swa_head_dim=layer.head_dim,
        swa_v_head_dim=layer.value_dim,
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
    )
    before = keys.count("sliding_window_size", absent=None, most=2**62)
    window = stack.sliding_window(keys) if before is None else before + 1  # with its own
    few = keys.count("swa_num_key_value_heads", absent=2 * layer.num_kv_heads)
    count = keys.count("num_hidden_layers", most=10_000)
    usual = [int(place != 0 and (place + 1) % 6 != 0) for place in range(count)]
    slides = keys.sequence("hybrid_layer_pattern", length=count, absent=usual)
    kind = stack.kinds(keys, lambda place: SLIDING if slides[place] else FULL)
    wide = replace(layer, rope=of_mimo(keys, layer.head_dim, FULL))
    rope = of_mimo(keys, layer.head_dim, SLIDING)
    near = stack.windowed(keys, replace(layer, rope=rope, sinks=True), SLIDING, window)
    near = stack.with_groups(keys, near, few, "swa_num_key_value_heads")
    return stack.stacked(keys, lambda place: near if kind[place] == SLIDING else wide)


def of_mimo(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or by two bases."""
    base = ("rope_theta",) if kind == FULL else ("swa_rope_theta",)
    return stack.rotation(
        keys, head_dim, kind=stack.nested(keys, kind), base=base, partial=True
    )


def step3p5(keys):
    """Step 3.5 and 3.7: norms, a gate for each head; layers that slide may have other heads and bases."""
    groups = keys.count("num_key_value_heads", "num_attention_groups", most=2**16)
    sized = keys.changed(num_key_value_heads=groups)
    layer = layer_of(sized, norm=RMS | {"plus_one": True})
    scale = keys.number("query_pre_attn_scalar", absent=float(layer.head_dim)) ** -0.5
    layer = replace(layer, scale=scale, head_gate=True)
    other = keys.section("attention_other_setting") or {}
    heads = keys.count("num_sliding_attention_heads", absent=None) or other.get(
        "num_attention_heads", layer.num_heads
    )
    count = keys.count("num_hidden_layers", most=10_000)
    listed = keys.sequence("layer_types", absent=[FULL] * count)[:count]
    window = stack.sliding_window(keys) if SLIDING in listed else None
    keys.ignore("sliding_window", "yarn_only_types", "per_layer_config", *RATES)

    def made(kind):
        inner = keys if kind == FULL else keys.without("rope_scaling")
        for name, of_one in RATES.items():
            value = keys.values.get(name)
            if isinstance(value, list):
                inner = inner.changed(**{of_one: value[listed.index(kind)]})
        many = layer.num_heads if kind == FULL else heads
        own = stack.with_groups(keys, layer, layer.num_kv_heads, heads=many)
        options = {"kind": stack.nested(inner, kind), "partial": True}
        own = replace(own, rope=stack.rotation(inner, layer.head_dim, **options))
        return stack.windowed(keys, own, kind, window)

    layers = {kind: made(kind) for kind in sorted(set(listed))}
    return stack.stacked(keys, lambda place: layers[listed[place]])


FAMILIES = {
    "gpt_oss": gpt_oss,
    "mimo_v2_flash": mimo_v2,
    "olmo3": olmo3,
    "step3p5": step3p5,
    "step3p7": step3p5,
}
