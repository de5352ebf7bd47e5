"""Decoders in which some layers have no position: SmolLM3, Cohere 2, EXAONE 4, Llama 4."""

from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.families.llama import RMS, layer_of
from posattn.configs.families.stack import CHUNKED, FULL, SLIDING
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Norm, Temperature

__all__ = ["FAMILIES"]


def smollm3(keys):
    """SmolLM3: every fourth layer has no position, and those have the window if it is used."""
    layer = layer_of(keys)
    rope = stack.rotation(keys, layer.head_dim)
    turns = turns_of(keys)
    used = keys.flag("use_sliding_window", absent=False)
    window = stack.sliding_window(keys) if used else None
    keys.ignore("sliding_window", "max_window_layers")
    kind = stack.kinds(keys, lambda place: SLIDING if window and not turns[place] else FULL)
    return stack.stacked(
        keys,
        lambda place: stack.windowed(
            keys, replace(layer, rope=rope if turns[place] else None), kind[place], window
        ),
    )


def turns_of(keys):
    """Which layers rotate: a 1 or 0 for each, or all but every so many if the list is absent or empty."""
    count = keys.count("num_hidden_layers", most=10_000)
    turns = keys.sequence("no_rope_layers", absent=None) or None
    interval = keys.count("no_rope_layer_interval", absent=4 if turns else REQUIRED)
    if turns is None:
        return [(place + 1) % interval != 0 for place in range(count)]
    turns = keys.sequence("no_rope_layers", length=count)
    for place, turn in enumerate(turns):
        if turn not in (0, 1):
            raise keys.error(f"no_rope_layers[{place}] must be 0 or 1, got {turn!r}")
    return turns


def cohere2(keys):
    """Cohere 2: layers that slide rotate, the others have no position."""
    layer = layer_of(keys, head_dim=False)
    keys.only("head_dim", layer.head_dim)
    rope = stack.rotation(keys, layer.head_dim, layout="interleaved")
    pattern = keys.count("sliding_window_pattern", "_sliding_window_pattern", absent=4)
    return stack.patterned(
        keys,
        layer,
        lambda place: SLIDING if (place + 1) % pattern else FULL,
        lambda kind: rope if kind == SLIDING else None,
    )


def exaone4(keys):
    """EXAONE 4: with windows, likewise; without, all layers rotate."""
    layer = layer_of(keys, bias=False, norm=RMS)
    rope = stack.rotation(keys, layer.head_dim)
    window = stack.sliding_window(keys)
    pattern = pattern_of_exaone(keys) if window else None
    keys.ignore("sliding_window_pattern")
    return stack.patterned(
        keys,
        layer,
        lambda place: SLIDING if pattern and pattern(place) else FULL,
        lambda kind: None if window and kind == FULL else rope,
        window,
    )


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
    return lambda place: (place + 1) % every != 0


def llama4(keys):
    """Llama 4: layers that rotate see their chunk only, with norms behind; queries of the others grow."""
    eps = keys.number("rms_norm_eps")
    layer = layer_of(keys)
    rope = stack.rotation(keys, layer.head_dim, layout="interleaved")
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

    def made(place):
        found = layer
        if turns[place]:
            found = replace(layer, rope=rope, query_norm=norm, key_norm=norm)
        elif warmer is not None:
            found = replace(layer, temperature=warmer)
        return chunked(keys, found, kind[place], chunk)

    return stack.stacked(keys, made)


def temperature_of_llama4(keys):
    """How queries of layers without position grow; a number for the flag counts as true."""
    name, value = keys.take(["attn_temperature_tuning"])
    if type(value) not in (bool, int):
        raise keys.error(f"{name} must be true, false or a whole number, got {value!r}")
    floor = keys.count("floor_scale", absent=REQUIRED if value else None, most=2**62)
    scale = keys.number("attn_scale", absent=REQUIRED if value else None)
    return Temperature(floor, scale) if value else None


def chunked(keys, layer, kind, chunk):
    """The layer within chunks if it is of that kind."""
    if kind != CHUNKED:
        return layer
    if chunk is None:
        raise keys.missing(
            "attention_chunk_size", why=", but layer_types has chunked layers"
        )
    return replace(layer, kind="chunked", chunk=chunk)


FAMILIES = {
    "cohere2": cohere2,
    "exaone4": exaone4,
    "exaone4_5_text": exaone4,
    "llama4_text": llama4,
    "smollm3": smollm3,
}
