"""What the scope shows of a configuration, as JSON. The page runs it in Brython, and tests in Python."""

import json

from posattn.configs.defaults import defaults_of, origin_of
from posattn.configs.reading import content, opened, plan
from posattn.configs.rotation import TRAINED
from posattn.configs.traits import strip
from posattn.configs.words import listed, sentence

LENGTHS = "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"


def answer(path, length=None, factor=None):
    """Read a file for a text of some length, perhaps with YaRN added.

    Args:
        path: of the file.
        length: in tokens; None is within the trained length.
        factor: of YaRN; None adds nothing.

    Returns:
        JSON: the command's text, a letter for each layer, what each does, and so on; or an error.
    """
    try:
        return json.dumps(_answer(content(path), length or None, factor))
    except (TypeError, ValueError) as error:
        return json.dumps({"error": str(error)})


def _answer(values, length, factor):
    keys = opened(values)
    trained, whose = _trained(keys)
    added = _added(keys.values, trained, factor) if factor else {}
    keys.values.update(added)
    found, kinds = plan(values, length=length), {}
    layers = [kinds.setdefault(_kind(layer), len(kinds)) for layer in found.layers]
    facts = [("Trained length", trained and f"{trained:,}, {whose}")]
    if found.defaults:
        left = f"{listed(found.defaults)} ({origin_of(found.model_type)})"
        facts.append(("Left to the class", left))
    facts.append(("Not read by attention", ", ".join(found.unread)))
    facts.append(("Read by nobody", ", ".join(found.dead)))
    letters = strip(found)
    return {
        "text": str(found),
        "strip": letters,
        "group": group(letters),
        "layers": layers,
        "kinds": [_told(*kind, trained, facts) for kind in kinds],
        "lines": json.dumps(added, indent=2)[4:-2].replace("\n  ", "\n") if added else "",
    }


def group(letters):
    """After how many layers a strip has a gap: where its pattern starts again."""
    period = next((p for p in range(1, 9) if letters[p:] == letters[:-p]), 10)
    return 10 if period == 1 else period * max(1, 8 // period)


def _trained(keys):
    """The length that the file names, or its class, and in words who does; None if neither does."""
    own = defaults_of(keys.family)[1]
    for values, whose in ((keys.values, "its {}"), (own, "the {} of its class")):
        for name in LENGTHS:
            if isinstance(values.get(name), int):
                return values[name], whose.format(name)
    return None, ""


def _added(values, trained, factor):
    """The lines that add YaRN to the keys of a text model, in the form that they have."""
    name = "rope_parameters" if values.get("rope_parameters") else "rope_scaling"
    old = values.get(name) or {}
    yarn = {"rope_type": "yarn", "factor": factor, TRAINED: trained}
    if isinstance(old.get("full_attention"), dict):
        return {name: old | {"full_attention": old["full_attention"] | yarn}}
    return {name: {key: old[key] for key in old if key != "type"} | yarn}


def _kind(layer):
    return sentence(layer), layer.rope, layer.window or layer.chunk


def _told(said, rope, window, trained, facts):
    """What layers of a kind do: in words, and how each pair rotates, with its scaling and without."""
    if rope is None:
        return {"says": said, "facts": [fact for fact in facts[1:] if fact[1]]}
    width, numbers = rope.rotary_dim, dict(rope.numbers)
    plain = [rope.base ** (-j / width) for j in range(0, width, 2)]
    pairs = [(w, f) for w, f in zip(plain, rope.frequencies, strict=True) if f]
    own = numbers.get(TRAINED, trained)
    if own != trained:
        facts = [("Trained length", f"{own:,}, its {TRAINED}"), *facts[1:]]
    return {
        "says": said,
        "facts": [fact for fact in facts if fact[1]],
        "plain": [w for w, _ in pairs],
        "now": [f for _, f in pairs],
        "method": rope.method,
        "trained": own,
        "window": window,
    }
