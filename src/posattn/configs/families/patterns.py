"""Decoders whose layers differ by a pattern: in what they see, how they rotate, or whether they do."""

from dataclasses import replace

from posattn.configs.families import rotary, stack
from posattn.configs.families.stack import CHUNKED, FULL, RMS, SLIDING, layer_of
from posattn.configs.keys import REQUIRED, Keys, shown
from posattn.configs.layers import Norm, Temperature

RATES = {"rope_theta": "rope_theta", "partial_rotary_factors": "partial_rotary_factor"}


def gemma4(keys):
    """Gemma 4: wider heads in global layers, rotated in part; norms of values; shared keys and values."""
    count = keys.count("num_hidden_layers", most=10_000)
    kind = stack.kinds(keys, lambda k: SLIDING if (k + 1) % 6 and k + 1 < count else FULL)
    if kind[-1] != FULL:
        raise keys.error(f"layer_types[{count - 1}] must be {FULL!r}, as the last layer's")
    both = keys.choice("use_bidirectional_attention", among=("all", "vision"), absent=None)
    layer = layer_of(keys, norm=RMS)
    layer = replace(
        layer,
        scale=1.0,
        causal=both != "all",
        value_norm=replace(layer.key_norm, learned=False),
    )
    keys.ignore("final_logit_softcapping")
    window = stack.sliding_window(keys)
    if both == "all":
        window = window // 2 + 1  # in each direction
    shared = keys.flag("attention_k_eq_v", absent=False)
    wide = replace(wider(keys, layer, kind, shared), shares_values=shared)
    layers = {SLIDING: layer, FULL: wide}
    for name in sorted(set(kind)):
        width = layers[name].head_dim
        rope = rotary.rotation(keys, width, kind=name, partial=name == FULL)
        if rope.rotary_dim < width:
            raise keys.error(
                "rope_type must be 'proportional' where partial_rotary_factor is below 1, "
                f"got {rope.method!r}"
            )
        layers[name] = replace(layers[name], rope=rope)
    found = stack.patterned(keys, kind, lambda place: layers[kind[place]], window)
    return stack.lent(keys, kind, found, absent=0)


def wider(keys, layer, kind, shared):
    """The layer with the heads of global layers, said once, or for each layer as transformers writes it."""
    each = keys.section("per_layer_config")
    width = keys.count("global_head_dim", absent=None, most=2**16)
    groups = keys.count("num_global_key_value_heads", absent=None, most=2**16)
    if each is not None:
        wanted = [place for place, name in enumerate(kind) if name == FULL]
        said = list(each.values())
        if sorted(int(place) for place in each if str(place).isdigit()) != wanted or any(
            options != said[0] for options in said
        ):
            raise keys.error(
                f"per_layer_config must say the same of layers {wanted}, got {shown(each)}"
            )
        inner = Keys(said[0], f"{keys.family}: per_layer_config")
        width = inner.count("head_dim", most=2**16)
        groups = inner.count("num_key_value_heads", absent=None, most=2**16)
        inner.finish()
    elif width is None:
        raise keys.missing("global_head_dim", "per_layer_config")
    elif not shared:
        groups = None  # which transformers then does not read
    groups = layer.num_kv_heads if groups is None else groups
    layer = replace(layer, head_dim=width)
    return stack.with_groups(keys, layer, groups, "num_global_key_value_heads")


def olmo3(keys):
    """OLMo 3: three layers in four slide, and only the others are scaled."""
    layer = layer_of(keys, norm=RMS | {"axes": "width"})
    window = stack.sliding_window(keys)
    kind = stack.kinds(keys, stack.all_but(4))
    ropes = {name: of_olmo3(keys, layer.head_dim, name) for name in sorted(set(kind))}
    made = {name: replace(layer, rope=ropes[name]) for name in ropes}
    return stack.patterned(keys, kind, lambda place: made[kind[place]], window)


def of_olmo3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form, where sliding layers are not scaled."""
    if keys.values.get("rope_parameters"):
        return rotary.rotation(keys, head_dim, kind=kind)
    base = keys.number("rope_theta", "rope_parameters", above=1)
    if base != 500_000:
        raise keys.error(
            f"rope_theta = {base:g} would rotate full layers only, and transformers rotates "
            "sliding ones by 500000",
            do="write rope_parameters for each",
        )
    return rotary.rotation(keys if kind == FULL else keys.without("rope_scaling"), head_dim)


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
    usual = [int(place > 0 and (place + 1) % 6 > 0) for place in range(count)]
    slides = keys.sequence("hybrid_layer_pattern", length=count, absent=usual)
    wide, rope = (
        rotary.rotation(
            keys, layer.head_dim, kind=rotary.nested(keys, name), base=[base], partial=True
        )
        for name, base in ((FULL, "rope_theta"), (SLIDING, "swa_rope_theta"))
    )
    wide = replace(layer, rope=wide)
    near = stack.windowed(keys, replace(layer, rope=rope, sinks=True), SLIDING, window)
    near = stack.with_groups(keys, near, few, "swa_num_key_value_heads")
    pattern = lambda place: SLIDING if slides[place] else FULL  # noqa: E731
    return stack.by_kind(keys, {FULL: wide, SLIDING: near}, pattern=pattern)


def step3p5(keys):
    """Step 3.5 and 3.7: norms, a gate for each head; layers that slide may have other heads and bases."""
    groups = keys.count("num_key_value_heads", "num_attention_groups", most=2**16)
    sized = keys.changed(num_key_value_heads=groups)
    layer = layer_of(sized, norm=RMS | {"plus_one": True})
    scale = keys.number("query_pre_attn_scalar", absent=float(layer.head_dim)) ** -0.5
    layer = replace(layer, scale=scale, head_gate=True)
    other = keys.section("attention_other_setting") or {}
    usual = other.get("num_attention_heads", layer.num_heads)
    heads = keys.count("num_sliding_attention_heads", absent=None) or usual
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
        told = rotary.nested(inner, kind)
        rope = rotary.rotation(inner, layer.head_dim, kind=told, partial=True)
        return replace(own, rope=rope)

    layers = {kind: made(kind) for kind in sorted(set(listed))}
    return stack.patterned(keys, listed, lambda place: layers[listed[place]], window)


def smollm3(keys):
    """SmolLM3: every fourth layer has no position, and those have the window if it is used."""
    layer = layer_of(keys)
    layer = replace(layer, rope=rotary.rotation(keys, layer.head_dim))
    turns = turns_of(keys)
    used = keys.flag("use_sliding_window", absent=False)
    window = stack.sliding_window(keys) if used else None
    keys.ignore("sliding_window", "max_window_layers")
    kind = stack.kinds(keys, lambda place: SLIDING if window and not turns[place] else FULL)
    still = replace(layer, rope=None)
    return stack.patterned(keys, kind, lambda k: layer if turns[k] else still, window)


def turns_of(keys):
    """Which layers rotate: a 1 or 0 for each, or all but every so many if the list is absent or empty."""
    count = keys.count(*stack.DEPTH, most=10_000)
    turns = keys.sequence("no_rope_layers", absent=None) or None
    interval = keys.count("no_rope_layer_interval", absent=4 if turns else REQUIRED)
    if turns is None:
        return [(place + 1) % interval != 0 for place in range(count)]
    return keys.sequence("no_rope_layers", length=count, among=(0, 1))


def exaone4(keys):
    """EXAONE 4: with windows, likewise; without, all layers rotate."""
    layer = layer_of(keys, bias=False, norm=RMS)
    layer = replace(layer, rope=rotary.rotation(keys, layer.head_dim))
    window = stack.sliding_window(keys)
    slides = pattern_of_exaone(keys) if window else lambda place: False
    keys.ignore("sliding_window_pattern")
    kind = stack.kinds(keys, lambda place: SLIDING if slides(place) else FULL)
    full = replace(layer, rope=None) if window else layer
    made = {SLIDING: layer, FULL: full}
    return stack.patterned(keys, kind, lambda place: made[kind[place]], window)


def pattern_of_exaone(keys):
    """Which layers slide: all but every so many, by a number or a word such as `LLLG`."""
    given = keys.values.get("sliding_window_pattern")
    if isinstance(given, str):
        keys.ignore("sliding_window_pattern")
        if set(given) != {"L", "G"}:
            raise keys.error(f"sliding_window_pattern must be of L and G, got {given!r}")
        return lambda place: given[place % len(given)] == "L"
    known = keys.values.get("layer_types") is not None
    every = keys.count("sliding_window_pattern", absent=None if known else REQUIRED)
    return stack.all_but(every, True, False)


def cohere2_moe(keys):
    """Command A+: layers that slide rotate, and full ones only if dense; dense ones have a pattern too."""
    layer = layer_of(keys)
    rope = rotary.rotation(keys, layer.head_dim, layout="interleaved")
    window = stack.sliding_window(keys)
    count = keys.count("num_hidden_layers", most=10_000)
    front = keys.count("first_k_dense_replace", absent=0, least=0, most=count)
    often = keys.count("prefix_dense_sliding_window_pattern")
    rest = stack.all_but(keys.count("sliding_window_pattern"))
    dense = ["dense"] * front + ["sparse"] * (count - front)
    dense = keys.sequence("mlp_layer_types", length=count, absent=dense)
    kind = stack.kinds(
        keys, lambda k: rest(k - front) if k >= front else stack.all_but(often)(k)
    )

    def made(place):
        turns = kind[place] == SLIDING or (dense[place] == "dense" and often == 1)
        return replace(layer, rope=rope if turns else None)

    return stack.patterned(keys, kind, made, window)


def llama4(keys):
    """Llama 4: layers that rotate see their chunk only, with norms behind; queries of the others grow."""
    eps = keys.number("rms_norm_eps")
    layer = layer_of(keys)
    rope = rotary.rotation(keys, layer.head_dim, layout="interleaved")
    turns = turns_of(keys)
    chunk = keys.count("attention_chunk_size", null=None, most=2**62)
    normed = keys.flag("use_qk_norm")
    norm = Norm("l2", eps, learned=False, after=True) if normed else None
    warmer = temperature_of_llama4(keys)
    kind = stack.kinds(
        keys,
        lambda place: CHUNKED if turns[place] and chunk else FULL,
        among=(FULL, CHUNKED),
    )

    turned = replace(layer, rope=rope, query_norm=norm, key_norm=norm)
    still = replace(layer, temperature=warmer)
    return stack.patterned(keys, kind, lambda k: turned if turns[k] else still, chunk)


def temperature_of_llama4(keys):
    """How queries of layers without position grow; a number for the flag counts as true."""
    name, value = keys.take(["attn_temperature_tuning"])
    if type(value) not in (bool, int):
        raise keys.error(f"{name} must be true, false or a whole number, got {value!r}")
    floor = keys.count("floor_scale", absent=REQUIRED if value else None, most=2**62)
    scale = keys.number("attn_scale", absent=REQUIRED if value else None)
    return Temperature(floor, scale) if value else None


FAMILIES = {
    "cohere2_moe": cohere2_moe,
    "exaone4": exaone4,
    "exaone4_5_text": exaone4,
    "gemma4_text": gemma4,
    "llama4_text": llama4,
    "mimo_v2": mimo_v2,
    "mimo_v2_flash": mimo_v2,
    "olmo3": olmo3,
    "smollm3": smollm3,
    "step3p5": step3p5,
    "step3p7": step3p5,
}
