"""A small model of the same kind: its configuration, with every size and length shrunk."""

import math
from copy import deepcopy

from posattn.configs.data import data
from posattn.configs.decoders import DECODERS, decoder
from posattn.configs.defaults import defaults_of
from posattn.configs.reading import opened
from posattn.configs.rotation import TRAINED

VOCABULARY = 64
WIDTH = 32  # of a head, at most
WINDOW = 48
SIZES = data(
    "shrunk.json"
)  # what keys hold; caps are what scores and logits of random weights reach
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DROPPED = "quantization_config", "auto_map"  # of the released weights and code
DEPTH = "num_hidden_layers", "n_layer"
PATTERNS = "layer_types", "no_rope_layers", "mlp_layer_types"  # an entry for each layer
FACTORS = "short_factor", "long_factor"
LONGEST = "max_position_embeddings", "n_positions", "n_ctx", "seq_length"
LENGTHS = TRAINED, "initial_context_length"  # the second is gpt-oss's name


def shrunk(config, tokens):
    """The configuration of a small model that does with positions what a large one does.

    Ratios stay: of heads to heads of keys, of a head to its share of the width, of the part that
    rotates, of the score's factor to its usual value, and of the longest text to the trained one. Layers
    are as many as show each kind. Windows hold 48 tokens, unless no text is longer than the window, and the
    trained length, where the frequencies depend on it, is a quarter of the text. Caps are lowered to what
    small scores reach.

    Args:
        config: what `posattn.configs.plan` reads, of a family that `Decoder` knows.
        tokens: how long a text the small model has to read, a multiple of 4.

    Returns:
        A dictionary for a `config.json`. What the file left to the family's class stands in it.

    Raises:
        TypeError: if a value is not of its kind.
        ValueError: if the configuration is not clear, or its family is not one of a `Decoder`.
    """
    model, keys = decoder(config), opened(config, known=DECODERS)
    if "scalar" in model.family.layer:
        raise keys.error(
            "layers of Gemma 4 are not shrunk", do="give another family's file"
        )
    first = model.plan.layers[0]
    given = dict(model.plan.defaults) | keys.values | {"model_type": keys.family}
    found = {k: deepcopy(v) for k, v in given.items() if k not in DROPPED}
    width, few = min(first.head_dim, WIDTH), first.num_kv_heads
    ratio = first.num_heads // few
    few = min(few, 4 if ratio == 1 else 2 if ratio <= 8 else 1)
    heads, share = few * ratio, first.dim / (first.num_heads * first.head_dim)
    dim = 2 * heads * max(1, round(share * width / 2))
    part = width / first.head_dim
    fourfold = found.get("intermediate_size") == 4 * first.dim  # as some engines take it
    wide = (4 if fourfold else 2) * dim
    named = {"dim": dim, "heads": heads, "few": few, "width": width, "wide": wide}
    named["vocabulary"] = VOCABULARY
    sizes = {
        key: named.get(size, size)
        for keys, size in SIZES["are"].items()
        for key in keys.split()
    }
    sizes |= {key: _scaled(found, key, part**k) for key, k in SIZES["scaled"].items()}
    said = {key for key, value in found.items() if value is not None}
    found |= {key: value for key, value in sizes.items() if key in said}
    found |= {
        key: min(found[key], value) for key, value in SIZES["most"].items() if key in said
    }
    ends = [key for key in found if "token_id" in key or key.endswith("token_index")]
    found = {k: v for k, v in found.items() if k not in ends}
    found |= ENDS | {"dtype": "float32"} | dict.fromkeys(said & {"torch_dtype"}, "float32")
    name = defaults_of(keys.family)[0].removesuffix("Config").removesuffix("Text")
    named = None if "text_config" in given else given.get("architectures")
    found["architectures"] = named or [f"{name}ForCausalLM"]
    _shorten(found, model.plan.layers, tokens, part)
    return _few_layers(found)


def _scaled(found, key, factor):
    """A number times a factor, whole if it was."""
    value = found.get(key) or 0
    scaled = value * factor
    return int(scaled) if isinstance(value, int) and scaled == int(scaled) else scaled


def _shorten(found, layers, tokens, part):
    """Shrink the trained lengths, and the lists with a factor for each pair."""
    ropes = [layer.rope for layer in layers if layer.rope is not None]
    before = next((found[key] for key in LONGEST if found.get(key)), None)
    trained = next(
        (dict(r.numbers)[TRAINED] for r in ropes if TRAINED in dict(r.numbers)), None
    )
    short = longest = tokens // 4
    if trained is not None:
        longest = math.ceil(short * (before or trained) / trained)
    elif all(rope.method != "dynamic" for rope in ropes):
        longest = tokens
    found |= {key: longest for key in LONGEST if found.get(key)}
    if window := found.get("sliding_window"):  # one beyond the longest text stays so
        beyond = before is not None and window >= before
        window = math.ceil(longest * window / before) if beyond else min(window, WINDOW)
        found["sliding_window"] = window
    sections = [found.get(name) or {} for name in ("rope_scaling", "rope_parameters")]
    kinds = [x for section in sections for x in section.values() if isinstance(x, dict)]
    for values in (found, *sections, *kinds):
        values |= {key: short for key in LENGTHS if values.get(key)}
        for key in FACTORS:
            if values.get(key):
                pairs = max(1, round(len(values[key]) * part))
                values[key] = [values[key][int(j / part)] for j in range(pairs)]


def _few_layers(found):
    """Keep as many layers, from the first on, as show each kind, and two at least."""
    model = decoder(found)
    kinds = [
        (str(layer).partition(":")[2], layer.rope, model.mixes(layer.index))
        for layer in model.plan.layers
    ]
    seen = max(kinds.index(kind) + 1 for kind in kinds)
    depth = min(max(seen, 2), len(kinds))
    found |= {key: depth for key in DEPTH if key in found}
    found |= {key: found[key][:depth] for key in PATTERNS if found.get(key)}
    if found.get("mlp_only_layers"):
        found["mlp_only_layers"] = [i for i in found["mlp_only_layers"] if i < depth]
    return found
