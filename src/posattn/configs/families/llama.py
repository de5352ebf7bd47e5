"""Decoders that are built like Llama, with grouped heads and a rotation of every head."""

from dataclasses import replace

from posattn.configs.families.stack import (
    FULL,
    SLIDING,
    kinds,
    plain,
    stacked,
    turning,
    windowed,
)
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Norm

__all__ = [
    "gpt_oss",
    "llama",
    "mistral",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
]


def biased(keys, layer, absent=False):
    """The layer with `attention_bias` on all four projections."""
    bias = keys.flag("attention_bias", absent=absent)
    return replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)


def rms(keys, absent=REQUIRED, **options):
    """A root-mean-square norm with the model's eps."""
    return Norm("rms", keys.number("rms_norm_eps", absent=absent), **options)


def every(keys, layer, rope):
    """A stack of equal layers."""
    return stacked(keys, lambda place: replace(layer, rope=rope))


def sliding_window(keys, absent=REQUIRED):
    """How many positions a query sees; null is no window."""
    return keys.count("sliding_window", absent=absent, null=None, most=2**62)


def llama(keys):
    """Llama: `attention_bias` on all four projections."""
    layer = biased(keys, plain(keys))
    return every(keys, layer, turning(keys, layer.head_dim))


def mistral(keys):
    """Mistral: every layer has the window; transformers ignores `layer_types`."""
    layer = plain(keys, grouped=REQUIRED)
    window = sliding_window(keys)
    kind = SLIDING if window else FULL
    kinds(keys, lambda place: kind, among=(kind,))
    return every(keys, windowed(keys, layer, kind, window), turning(keys, layer.head_dim))


def late_windows(keys):
    """Each layer's kind and the window, in Qwen2 and 3: if it is used, from `max_window_layers` on."""
    used = keys.flag("use_sliding_window", absent=False)
    window = sliding_window(keys, absent=REQUIRED if used else None) if used else None
    keys.ignore("sliding_window")
    first = keys.count(
        "max_window_layers", absent=REQUIRED if used else None, least=0, most=10**6
    )
    return window, kinds(keys, lambda place: SLIDING if window and place >= first else FULL)


def qwen2(keys):
    """Qwen2: offsets on queries, keys and values only."""
    layer = replace(plain(keys, grouped=REQUIRED), use_bias=(True, True, True))
    window, kind = late_windows(keys)
    layer = replace(layer, rope=turning(keys, layer.head_dim))
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def qwen3(keys):
    """Qwen3: norms of queries and keys, each head by itself."""
    norm = rms(keys)
    layer = biased(keys, plain(keys, grouped=REQUIRED, head_dim=REQUIRED))
    window, kind = late_windows(keys)
    rope = turning(keys, layer.head_dim)
    layer = replace(layer, rope=rope, query_norm=norm, key_norm=norm)
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def smollm3(keys):
    """SmolLM3: every fourth layer has no position, and those have the window if it is used."""
    layer = biased(keys, plain(keys, grouped=REQUIRED))
    rope = turning(keys, layer.head_dim)
    count = keys.count("num_hidden_layers", most=10_000)
    turns = keys.sequence("no_rope_layers", length=count, absent=None)
    interval = keys.count("no_rope_layer_interval", absent=4 if turns else REQUIRED)
    if turns is None:
        turns = [(place + 1) % interval != 0 for place in range(count)]
    for place, turn in enumerate(turns):
        if turn not in (0, 1):
            raise keys.error(f"no_rope_layers[{place}] must be 0 or 1, got {turn!r}")
    used = keys.flag("use_sliding_window", absent=False)
    window = sliding_window(keys, absent=None)
    slides = used and window is not None
    kind = kinds(keys, lambda place: SLIDING if slides and not turns[place] else FULL)
    return stacked(
        keys,
        lambda place: windowed(
            keys,
            replace(layer, rope=rope if turns[place] else None),
            kind[place],
            window if used else None,
        ),
    )


def olmo2(keys):
    """OLMo 2: norms of queries and keys over all heads at once."""
    norm = rms(keys, axes="width")
    layer = replace(biased(keys, plain(keys)), query_norm=norm, key_norm=norm)
    return every(keys, layer, turning(keys, layer.head_dim))


def olmo3(keys):
    """OLMo 3: three layers in four slide, and only the others are scaled."""
    norm = rms(keys, axes="width")
    layer = replace(biased(keys, plain(keys)), query_norm=norm, key_norm=norm)
    window = sliding_window(keys)
    kind = kinds(keys, lambda place: FULL if (place + 1) % 4 == 0 else SLIDING)
    ropes = {name: turning_of_olmo3(keys, layer.head_dim, name) for name in set(kind)}
    return stacked(
        keys,
        lambda place: windowed(
            keys, replace(layer, rope=ropes[kind[place]]), kind[place], window
        ),
    )


def turning_of_olmo3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form, where sliding layers are not scaled."""
    if keys.values.get("rope_parameters"):
        return turning(keys, head_dim, kind=kind)
    base = keys.number("rope_theta", "rope_parameters", above=1)
    if base != 500_000:
        raise keys.error(
            f"rope_theta = {base:g} would turn full layers only, and transformers turns "
            "sliding ones by 500000; write rope_parameters for each"
        )
    return turning(keys if kind == FULL else keys.without("rope_scaling"), head_dim)


def gpt_oss(keys):
    """gpt-oss: sinks, and a window in every other layer."""
    layer = plain(keys, grouped=REQUIRED, head_dim=REQUIRED)
    rope = turning(keys, layer.head_dim)
    layer = replace(biased(keys, layer, absent=REQUIRED), rope=rope, sinks=True)
    window = sliding_window(keys)
    kind = kinds(keys, lambda place: FULL if place % 2 else SLIDING)
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def phi3(keys):
    """Phi-3 and Phi-4: a part of each head may turn, by LongRoPE under several names."""
    layer = plain(keys)
    rope = turning(
        keys,
        layer.head_dim,
        partial=True,
        names={"su": "longrope", "yarn": "longrope"},
    )
    if rope.method not in ("default", "longrope"):
        raise keys.error(f"rope_type must be 'default' or 'longrope', got {rope.method!r}")
    window = sliding_window(keys, absent=None)
    kind = SLIDING if window else FULL
    return every(keys, windowed(keys, layer, kind, window), rope)
