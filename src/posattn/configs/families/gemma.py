"""Gemma 2 to 4: a scale of its own, capped scores, and windows in most layers."""

from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.families.llama import RMS, layer_of
from posattn.configs.families.stack import FULL, SLIDING
from posattn.configs.keys import Keys, shown

__all__ = ["FAMILIES", "every_other"]


def gemma2(keys):
    """Gemma 2: capped scores, and a window in every other layer."""
    cap = keys.number("attn_logit_softcapping", null=None)
    keys.only("use_bidirectional_attention", False)
    keys.ignore("final_logit_softcapping")
    layer = layer_of(keys)
    scale = keys.number("query_pre_attn_scalar") ** -0.5
    rope = stack.rotation(keys, layer.head_dim)
    layer = replace(layer, soft_cap=cap, scale=scale)
    return stack.patterned(keys, layer, every_other, lambda kind: rope)


def every_other(place):
    """The kind of a layer where every second one sees all."""
    return FULL if place % 2 else SLIDING


def gemma3(keys):
    """Gemma 3: five layers in six slide and rotate by a base of their own; transformers caps nothing."""
    keys.only("attn_logit_softcapping")
    keys.ignore("final_logit_softcapping")
    both = keys.flag("use_bidirectional_attention", absent=False)
    layer = layer_of(keys, norm=RMS | {"plus_one": True})
    scale = keys.number("query_pre_attn_scalar") ** -0.5
    layer = replace(layer, scale=scale, causal=not both)
    window = stack.sliding_window(keys)
    if both and window is not None:
        window = window // 2 + 1  # in each direction
    pattern = keys.count("sliding_window_pattern", "_sliding_window_pattern", absent=6)
    return stack.patterned(
        keys,
        layer,
        lambda place: SLIDING if (place + 1) % pattern else FULL,
        lambda kind: of_gemma3(keys, layer.head_dim, kind),
        window,
    )


def of_gemma3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form with two bases."""
    if keys.values.get("rope_parameters"):
        names = {FULL: "rope_theta", SLIDING: "rope_local_base_freq"}
        return stack.rotation(keys, head_dim, kind=kind, base=(names[kind],))
    if kind == FULL:
        return stack.rotation(keys, head_dim)
    keys = keys.without("rope_scaling")
    return stack.rotation(keys, head_dim, base=("rope_local_base_freq",))


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
    own = count - keys.count("num_kv_shared_layers", absent=0, least=0, most=count)
    layers = {SLIDING: layer, FULL: wide}
    for name in sorted(set(kind)):
        width = layers[name].head_dim
        rope = stack.rotation(keys, width, kind=name, partial=name == FULL)
        if rope.rotary_dim < width:
            raise keys.error(
                "rope_type must be 'proportional' where partial_rotary_factor is below 1, "
                f"got {rope.method!r}"
            )
        layers[name] = replace(layers[name], rope=rope)
    return stack.stacked(
        keys,
        lambda place: stack.windowed(
            keys,
            replace(layers[kind[place]], kv_layer=owner(keys, kind, place, own)),
            kind[place],
            window,
        ),
    )


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


def owner(keys, kind, place, own):
    """The layer whose keys and values a layer at the end of the stack uses: the last of its kind before."""
    if place < own:
        return None
    found = [k for k in range(own) if kind[k] == kind[place]]
    if not found:
        raise keys.error(
            f"num_kv_shared_layers = {len(kind) - own} leaves no {kind[place]!r} with keys of its own"
        )
    return found[-1]


FAMILIES = {"gemma2": gemma2, "gemma3_text": gemma3, "gemma4_text": gemma4}
