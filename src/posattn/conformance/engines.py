"""What an engine makes of a configuration: `engines.json` has a line for each difference that was run.

A line holds where its conditions do: `families`, `method` of scaling, `gguf`, and `if`, of keys of the file.
It `reads` layers as misreadings do, or takes `keys` as it wants and `absent` ones by a default, or `says` in
words what happens; `equal` tells that nothing differs. `seen` and `fact` name the record that `shows` it.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from posattn.configs import Plan, plan
from posattn.configs.gguf import is_gguf
from posattn.configs.reading import opened
from posattn.conformance.misreadings import misreadings
from posattn.conformance.twins import changed, more
from posattn.conformance.vectors import UsageError

__all__ = ["ENGINES", "RUNS", "reading"]

TABLE = json.loads(Path(__file__).with_name("engines.json").read_text("utf-8"))
ENGINES, RUNS = TABLE["engines"], TABLE["runs"]


def reading(config, engine, *, length=None):
    """Say in words and numbers what an engine makes of a model's configuration.

    Args:
        config: what `posattn.configs.plan` reads.
        engine: one of `ENGINES`.
        length: for how long a text.

    Returns:
        A text, whose first line names version and day. Under a difference stand the layers as the engine
        computes them, and the pair whose frequency is furthest off.

    Raises:
        TypeError: if a value of the configuration is not of its kind.
        ValueError: if the configuration is not clear, or no such engine was run.

    Examples:
        >>> mistral = {"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2,
        ...     "num_attention_heads": 4, "rope_theta": 10000.0, "sliding_window": 8}
        >>> print(reading(mistral, "llama.cpp"))  # doctest: +ELLIPSIS
        llama.cpp 2026...., run on 2026-...:
        - The window is ignored. (twins/llama.cpp, mistral-0.1)
          0-1  full attention, rotary base 10000, halves; 4 heads, 8 of keys
    """
    if engine not in ENGINES:
        raise UsageError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    whole, keys = plan(config, length=length), opened(config, length=length)
    found, gguf = ENGINES[engine], is_gguf(config)
    lines = [line for line in found if holds(line, keys, whole, gguf)]
    told = []
    for line in lines:
        if words := () if "equal" in line else differing(line, keys, whole):
            told += [f"- {words[0]} ({line['seen']}, {line['fact']})", *words[1:]]
    if not told:
        told = [
            f"- A small model with the keys of {line['fact']} gives the logits of its plan. ({line['seen']})"
            for line in lines
            if "equal" in line
        ]
    told = told or ["- Nothing is recorded that concerns this file."]
    version, day = RUNS[found[0]["seen"]]
    return "\n".join([f"{engine} {version}, run on {day}:", *told])


def holds(line, keys, whole, gguf):
    """Whether the conditions of a line do."""
    methods = {layer.rope.method for layer in whole.layers if layer.rope is not None}
    return (
        keys.family in line.get("families", [keys.family])
        and line.get("method") in {None, *methods}
        and line.get("gguf", gguf and line["seen"].endswith(("llama_cpp", "llama.cpp")))
        == gguf
        and all(
            (keys.values.get(key) is not None) == said
            if isinstance(said, bool)
            else keys.values.get(key) == said
            for key, said in line.get("if", {}).items()
        )
    )


def differing(line, keys, whole):
    """What differs in words, with the layers as they then are; nothing if none does."""
    if "keys" in line:
        own = (
            {"model_type": keys.family}
            | line.get("absent", {})
            | keys.values
            | line["keys"]
        )
        own = {
            key: own[key] for key in own if own[key] is not None or key not in line["keys"]
        }
        layers = plan(own, length=keys.length).layers
        said = (f"is taken as {v:g}" if v else "is not read" for v in line["keys"].values())
        what = " ".join(
            f"{key} {how}." for key, how in zip(line["keys"], said, strict=True)
        )
    elif "reads" in line:
        layers, what = misread(line["reads"], whole)
    else:
        return [line["says"]]
    pairs = [(a, b) for a, b in zip(whole.layers, layers, strict=True) if a != b]
    if not pairs:
        return []
    rows = str(Plan(whole.model_type, tuple(b for _, b in pairs))).splitlines()[1:]
    rows = [row for row in rows if row not in str(whole)]
    rows = [f"  {row}" for row in (*rows, *furthest(pairs))]
    return [line.get("says", what), *rows]


def misread(names, whole):
    """The layers with these misreadings, and the sentences that tell them."""
    layers, what = [], {}
    for layer in whole.layers:
        known = {name: rest for name, *rest in (*misreadings(layer, whole), *more(layer))}
        made = layer
        for name in names:
            if name in known:
                what[name], other = known[name]
                made = replace(made, **dict(changed(layer, other)))
        if "scaling_ignored" in names and made != layer:
            made = replace(made, rope=replace(made.rope, method="default", numbers=()))
        if made.kind == "sliding" and made.window is None:
            made = replace(made, kind="full")
        layers.append(made)
    return layers, " ".join(what.values())


def furthest(pairs):
    """The pair of entries whose frequency is furthest off, in words."""
    ratios = []
    for layer, other in pairs:
        own, new = (np.array(x.rope.frequencies if x.rope else ()) for x in (layer, other))
        if len(own) == len(new):
            ratios += [
                (b / a, j) for j, (a, b) in enumerate(zip(own, new, strict=True)) if a
            ]
    ratio, j = max(ratios, key=lambda one: abs(np.log(one[0])), default=(1.0, 0))
    return (
        []
        if np.isclose(ratio, 1)
        else [f"pair {j} rotates {ratio:.3g} times as fast as the plan says"]
    )
