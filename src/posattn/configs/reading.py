"""From a configuration to a plan."""

import difflib
import json
import os
from dataclasses import fields, replace
from pathlib import Path

from posattn import contract
from posattn.configs.claims import agreeing
from posattn.configs.defaults import defaults_of, origin_of, read_by
from posattn.configs.families import FAMILIES
from posattn.configs.families.stack import slopes
from posattn.configs.gguf import config_of, is_gguf
from posattn.configs.keys import Keys
from posattn.configs.layers import Buckets, Plan
from posattn.configs.words import listed

DIGITS = "0123456789"
ATTENTION = ("full", "sliding", "chunked")
HEADS = (  # what MultiHeadAttention knows of a layer; all else must be as if it were not there
    *("index", "kind", "dim", "num_heads", "num_kv_heads", "head_dim", "causal", "scale"),
    *("rope", "bias", "table", "window", "chunk", "soft_cap", "sinks", "gate"),
    *("query_norm", "key_norm", "value_norm", "use_bias", "use_output_bias", "temperature"),
    "shares_values",
)
NESTED = [f"{n}_config" for n in ("text", "llm", "language", "thinker")]
NESTED += ["llm_cfg", "decoder", "transformer_layer_config"]
GIVE = (
    "give the path of a config.json, of a params.json, of their folder or of a .gguf file"
)


def plan(config, *, part=None, length=None, strict=False):
    """Read what each layer of a model does with positions from the model's configuration.

    Every number comes from the configuration, from the default that the family's class in transformers has
    for it, or from the family's code. The plan says which are of the second kind. What none of them defines
    is an error, as is a key that is misspelt, of the wrong kind or contradicted by another.
    Keys that this family's attention doesn't read are listed below the layers, and are an error only if the
    layers are otherwise.

    Args:
        config: the path of a `config.json` or of its folder, or of a `.gguf` file, the content as a
            dictionary, or a configuration object of transformers.
        part: the key of a tower, such as `"vision_config"`, to plan that and not the text model.
        length: for how long a text, which matters to methods such as LongRoPE; None is one within the
            trained length.
        strict: whether the default of a class is an error, for those who convert checkpoints.

    Returns:
        A `Plan`, which prints as a table.

    Raises:
        TypeError: if a value is not of its kind.
        ValueError: if the configuration says too little, contradicts itself, or is of an unknown family.

    Examples:
        >>> small = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        ...     "num_attention_heads": 4, "rope_theta": 10000.0}
        >>> print(plan(small))
        llama, 2 layers from 0 on
        0-1  full attention, rotary base 10000, halves; 4 heads
        >>> del small["rope_theta"]
        >>> print(str(plan(small)).splitlines()[-1])
        from the defaults of LlamaConfig, transformers 5.24.0: rope_theta = 10000
        >>> plan(small | {"head_dims": 16})
        Traceback (most recent call last):
            ...
        ValueError: llama: head_dims = 16 is no key that this family's attention reads; did you mean head_dim?
    """
    keys = opened(config, part=part, length=length)
    found = planned(keys, layers_of(keys))
    if strict and found.defaults:
        raise keys.error(
            f"the configuration leaves to {origin_of(keys.family)}: {listed(found.defaults)}",
            do="add these keys to it",
        )
    return found


def planned(keys, layers):
    """The plan of some layers; keys that nobody read must not contradict it."""
    unread = agreeing(keys, layers) + keys.notes
    known, taken = read_by(keys.family), keys.asked | {*keys.unread()}
    known = taken | (keys.values.keys() if known is None else known)
    named = (key for key in keys.values if key[:1] != "_" and not key.endswith("_config"))
    dead = tuple(key for key in named if key not in known)
    return Plan(keys.family, layers, tuple(sorted(keys.defaulted.items())), unread, dead)


def layers_of(keys):
    """The layers that the family reads; an error also says what the configuration left to the class."""
    try:
        layers = FAMILIES[keys.family](keys)
    except ValueError as error:
        if not keys.defaulted:
            raise
        name, given = defaults_of(keys.family)[0], listed(keys.defaulted.items())
        given = f"By default of {name}, {given}: add what should be otherwise"
        raise ValueError(f"{error}. {given}") from None
    causal = keys.flag("is_causal", absent=True)
    return layers if causal else tuple(map(both_ways, layers))


def both_ways(layer):
    """The layer without a causal mask, which transformers' windows then have on either side in full."""
    if not layer.causal or layer.kind not in ATTENTION[:2]:  # whose masks don't ask
        return layer
    return replace(layer, causal=False, window=layer.window and layer.window + 1)


def opened(config, *, part=None, length=None, known=FAMILIES):
    """The keys of the part of a configuration that describes the text model, whose family must be known."""
    values = content(config)
    if part is not None:
        values = _tower(values, part)
    inside = any(values.get(name) is not None for name in NESTED)
    model_type = values.get("model_type") if inside else _model_type(values, "")
    towers = _towers(values)
    while inner := next((n for n in NESTED if values.get(n) is not None), None):
        nested = _plain(values[inner])
        if not isinstance(nested, dict):
            told = f"{model_type}: {inner} must be a dictionary, got {nested!r}"
            raise TypeError(f"{told}; give the model's own config.json")
        names = f"{model_type}_text", f"{model_type}_text_model", model_type
        usual = next((name for name in names if name in FAMILIES), None)
        values, found = nested, nested.get("model_type")
        model_type = usual if found is None and usual else _model_type(values, f"{inner}: ")
    if f"{model_type}_text" in known and model_type not in FAMILIES:  # without its towers
        model_type = f"{model_type}_text"
    if model_type not in known:
        near = [  # a letter twice or at another place, or another version, not another family
            name
            for name in difflib.get_close_matches(model_type, known)
            if set(name.lower()) == set(model_type.lower())
            or name.rstrip(DIGITS) == model_type.rstrip(DIGITS) not in (name, model_type)
        ]
        names = ", ".join(sorted(known))
        if model_type in FAMILIES:
            raise ValueError(
                f"model_type must be one of {names} for a Decoder, got {model_type!r}; "
                "for its attention see MultiHeadAttention.from_config and LatentAttention.from_config"
            )
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(
            f"model_type {model_type!r} is not known; {hint}if its attention is that of "
            f"one of the {len(FAMILIES)} keys of posattn.configs.FAMILIES, write that family in its place"
        )
    return Keys(values, model_type, length, defaults_of(model_type)[1], towers)


def _tower(values, part):
    """The configuration of a tower, whose family the model may say in its place."""
    found = _plain(values.get(part))
    if not isinstance(found, dict):
        known = [
            name
            for name, value in values.items()
            if isinstance(value, dict) and not name.startswith(("rope_", "quantization"))
        ]
        told = f"the configuration has {', '.join(known) or 'no parts'}"
        raise ValueError(f"part must be the key of a tower, got {part!r}; {told}")
    whole, (sense, *_) = values.get("model_type"), part.split("_")
    own = found.get("model_type") or whole
    names = f"{own}_{sense}", f"{own}_{sense}_model"
    other = names[0] if own == whole else own
    return found | {"model_type": next((n for n in names if n in FAMILIES), other)}


def _towers(values):
    """What stands beside the text model, and whether it can be planned."""
    words = []
    for part in values:
        if part.startswith(("vision_", "audio_")) and isinstance(values[part], dict):
            family = _tower(values, part)["model_type"]
            known = family in FAMILIES
            how = f"plan it with part={part!r}" if known else f"of {family}"
            words.append(f"{part} ({how})")
    return tuple(words)


def chosen(config, layer, *, length=None, pairs=True):
    """The plan of a model, from what `plan` reads or a `Plan`, and one of its layers.

    If `pairs`, the layer must be an attention of pairs.

    A TypeError or a ValueError tells why there is no such layer.
    """
    whole = config if isinstance(config, Plan) else plan(config, length=length)
    index = contract.integer("layer", layer)
    if index >= len(whole.layers):
        raise ValueError(f"layer must be below {len(whole.layers)}, got {index}")
    found = whole.layers[index]
    if pairs and found.kind not in ATTENTION:
        do = "the plan lists the layers that are"
        if found.delta is not None:
            do = "see DeltaAttention.from_config"
        raise ValueError(
            f"layer {index} must be an attention of pairs, got {found.kind!r}; {do}"
        )
    return whole, found


def as_heads(layer):
    """Refuse a layer that `MultiHeadAttention` has no option for, so that nothing is left out in silence."""
    if (
        layer.bias is not None
        and layer.bias != slopes(layer)
        and not isinstance(layer.bias, Buckets)
    ):
        raise ValueError(
            f"layer {layer.index} has bias = {layer.bias!r}, which MultiHeadAttention does not build"
        )
    pooled = layer.indexer is not None and layer.indexer.pooled
    chosen = ("selected", "indexer", "block") if pooled else ()
    refuse_others(layer, HEADS + chosen, "MultiHeadAttention")


def refuse_others(layer, known, builder):
    """Refuse a layer of which `builder`, which knows some of its fields, would leave out another."""
    for field in fields(layer):
        found = getattr(layer, field.name)
        if field.name not in known and found != field.default:
            raise ValueError(
                f"layer {layer.index} has {field.name} = {found!r}, which {builder} does not build"
                + ("; see LatentAttention.from_config" if field.name == "latent" else "")
            )


def _model_type(values, where):
    """The family's name."""
    found = values.get("model_type", values.get("_class_name"))
    if found is None and {"dim", "n_heads", "n_layers"} <= values.keys():
        return "params.json"
    if found is None:
        near = difflib.get_close_matches("model_type", values, 1, 0.8)
        do = f"did you mean it by {near[0]}?" if near else "add it"
        raise ValueError(f"{where}model_type is missing, which names the family; {do}")
    if not isinstance(found, str):
        raise TypeError(
            f"{where}model_type must be a string, got {found!r}; write it as 'llama'"
        )
    whole = "depth" in values and not found.endswith(("_vision", "_audio"))
    return f"{found}_vision" if whole else found  # of a tower called as the whole model


def _plain(config):
    """What a configuration object holds."""
    return config.to_dict() if hasattr(config, "to_dict") else config


def content(config):
    """The configuration as a dictionary."""
    config = _plain(config)
    if isinstance(config, dict):
        return config
    if not isinstance(config, (str, os.PathLike)):
        raise TypeError(
            "config must be a path, a dictionary or a configuration object with to_dict, "
            f"got {type(config).__name__}; {GIVE}"
        )
    path = Path(config)
    if is_gguf(path):
        return config_of(path)
    if path.is_dir():
        names = ("config.json", "params.json")
        path = next(
            (path / name for name in names if (path / name).is_file()), path / names[0]
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        near = [f", such as {str(found)!r}" for found in path.parent.glob("*.gguf")]
        told = f"config {str(path)!r} cannot be read: {error.strerror}; {GIVE}"
        raise ValueError(told + min(near, default="")) from None
    except ValueError as error:  # no JSON, or no text
        raise ValueError(f"config {str(path)!r} is no JSON: {error}; {GIVE}") from None
    if not isinstance(found, dict):
        told = f"config {str(path)!r} must hold a dictionary, got {found!r:.60}; {GIVE}"
        raise TypeError(told)
    return found
