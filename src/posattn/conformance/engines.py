"""What an engine makes of a configuration: `engines.json` has a line for each difference that was run.

A line holds for its `families`, `method` of scaling, `gguf` files, and keys of the file (`if`). It `reads`
layers as misreadings do, or takes `keys` as it wants and `absent` ones by a default, or `says` what happens;
`equal` tells that nothing differs. `seen` and `fact` name the record that `shows` it.
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
SAME = "A small model with the keys of {fact} gives the logits of its plan."
NOTHING = "- Nothing is recorded that concerns this file."


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
    """
    if engine not in ENGINES:
        raise UsageError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    whole, keys = plan(config, length=length), opened(config, length=length)
    told, same = [], []
    for line in ENGINES[engine]:
        if not holds(line, keys, whole, is_gguf(config)):
            continue
        record = f"({line['seen']}, {line['fact']})"
        if "equal" in line:
            same.append(f"- {SAME.format(**line)} {record}")
        elif words := differing(line, keys, whole):
            told += [f"- {words[0]} {record}", *words[1:]]
    version, day = RUNS[ENGINES[engine][0]["seen"]]
    return "\n".join([f"{engine} {version}, run on {day}:", *(told or same or [NOTHING])])


def holds(line, keys, whole, gguf):
    """Whether the conditions of a line do."""
    ropes = (layer.rope for layer in whole.layers if layer.rope and layer.rope.numbers)
    given = [(keys.values.get(key), said) for key, said in line.get("if", {}).items()]
    return (
        keys.family in line.get("families", [keys.family])
        and line.get("method") in {None, *(rope.method for rope in ropes)}
        and line.get("gguf", gguf and "llama" in line["seen"]) == gguf
        and all(value == said or (value is not None) is said for value, said in given)
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
        own = {key: own[key] for key in own if line["keys"].get(key, own) is not None}
        layers = plan(own, length=keys.length).layers
        taken = (
            (k, f"taken as {v:g}" if v else "not read") for k, v in line["keys"].items()
        )
        what = " ".join(f"{key} is {how}." for key, how in taken)
    elif "reads" in line:
        layers, what = misread(line["reads"], whole)
    else:
        return [line["says"]]
    pairs = [(a, b) for a, b in zip(whole.layers, layers, strict=True) if a != b]
    if not pairs:
        return []
    rows = str(Plan("", tuple(b for _, b in pairs))).splitlines()[1:]
    rows = [row for row in rows if row not in str(whole)] + furthest(pairs)
    return [line.get("says", what), *(f"  {row}" for row in rows)]


def misread(names, whole):
    """The layers with these misreadings, and the sentences that tell them."""
    layers, what = [], {}
    for layer in whole.layers:
        made = layer
        for name, said, other in (*misreadings(layer, whole), *more(layer)):
            if name in names:
                what[name], made = said, replace(made, **dict(changed(layer, other)))
        if "scaling_ignored" in names and made != layer:
            made = replace(made, rope=replace(made.rope, method="default", numbers=()))
        if made.kind == "sliding" and made.window is None:
            made = replace(made, kind="full")
        layers.append(made)
    return layers, " ".join(what.values())


def furthest(pairs):
    """The pair of entries whose frequency is furthest off, in words."""
    both = ((a.rope.frequencies, b.rope.frequencies) for a, b in pairs if a.rope and b.rope)
    same = [zip(own, new, strict=True) for own, new in both if len(own) == len(new)]
    ratios = [(new / own, j) for one in same for j, (own, new) in enumerate(one) if own]
    ratio, j = max(ratios, key=lambda one: abs(np.log(one[0])), default=(1.0, 0))
    told = f"pair {j} rotates {ratio:.3g} times as fast as the plan says"
    return [] if np.isclose(ratio, 1) else [told]
