"""Two models beside each other: what differs, key by key in words, and the first token that sees it."""

import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from posattn.configs.decoders import decoder
from posattn.configs.gguf import is_gguf
from posattn.configs.reading import ATTENTION, opened
from posattn.configs.words import PAIRS, scaled
from posattn.conformance.misreadings import misreadings

__all__ = ["around", "beyond", "differences", "named", "weights"]

SEEN = 0.1  # radians, from which on an angle counts as another
ROUNDED = 1e-6  # of a frequency, which float32 may round off
# how far off weights may be in a GGUF file, and in half precision
QUANTIZED, HALF = 0.2, 5e-3
SCORES = "scale", "soft_cap", "bias", "query_norm", "key_norm"
SIZES = "window", "chunk"
APART = "index", "kind", "rope", "temperature", *SIZES
AROUND = (
    *("activation", "eps", "hidden_dim", "use_bias", "tied", "parallel", "mixture"),
    *("embedding_scale", "residual_scale", "logit_scale", "logit_cap"),
)


def differences(one, other):
    """What two plans have otherwise, which are called A and B.

    The result leads from a sentence and the first token that sees it to the numbers of the layers.
    """
    found = {}
    if len(one.layers) != len(other.layers):
        found[f"A has {len(one.layers)} layers, B has {len(other.layers)}", 0] = []
    for a, b in zip(one.layers, other.layers, strict=False):
        for told in of_a_layer(a, b):
            found.setdefault(told, []).append(a.index)
    return found


def of_a_layer(a, b):
    """What two layers have otherwise, and the first token that sees it."""
    if a.kind != b.kind and not {a.kind, b.kind} <= {*ATTENTION}:
        yield f"{a.kind} in A, {b.kind} in B", 0
    if a.rope is not None and b.rope is not None:
        yield from of_the_rotation(a.rope, b.rope)
    elif a.rope != b.rope:
        turned, still = "BA" if a.rope is None else "AB"
        yield f"queries and keys rotate in {turned}, and not in {still}", 1
    sizes = [getattr(layer, name) or 0 for layer in (a, b) for name in SIZES]
    at = np.arange(2 + 2 * max(sizes))
    if (differ := lowest(a, at) != lowest(b, at)).any():
        told = [layer.window and f"a window of {layer.reach}" for layer in (a, b)]
        chunks = [layer.chunk and f"chunks of {layer.chunk}" for layer in (a, b)]
        both = (w or c or "no window" for w, c in zip(told, chunks, strict=True))
        yield "{} in A, {} in B".format(*both), int(differ.argmax())
    if a.temperature != b.temperature:
        floors = [x.temperature.floor for x in (a, b) if x.temperature is not None]
        at = np.arange(2 + 2 * math.ceil(max(floors)))
        first = int((grown(a, at) != grown(b, at)).argmax())
        yield f"temperature {a.temperature} in A, {b.temperature} in B", first
    alone = not (a.sinks or b.sinks)  # the first token's only weight is 1
    for name in (field.name for field in fields(a) if field.name not in APART):
        values = [getattr(layer, name) for layer in (a, b)]
        if values[0] != values[1]:
            told = [x.words() if name == "bias" and x else x for x in values]
            yield f"{name} {told[0]} in A, {told[1]} in B", int(alone and name in SCORES)


def of_the_rotation(a, b):
    """What two rotations have otherwise; the first token has no other to rotate against."""
    both, alike = (a, b), len(a.frequencies) == len(b.frequencies)
    apart = abs(np.subtract(a.frequencies, b.frequencies)) if alike else np.ones(1)
    j = int(apart.argmax())
    acts = not alike or apart[j] > ROUNDED * a.frequencies[j]
    scaling = [scaled(x) or "no scaling" for x in both]
    factors = [f"{x.attention_factor:.6g}" for x in both]
    for told, values, seen in (
        ("rotary base {} in A, {} in B", [f"{x.base:.10g}" for x in both], acts),
        ("{} in A, {} in B", scaling, acts or factors[0] != factors[1]),
        ("pairs are {} in A, {} in B", [PAIRS[x.layout] for x in both], True),
        ("{} entries rotate in A, {} in B", [x.rotary_dim for x in both], True),
        ("the last entries rotate: {} in A, {} in B", [x.last for x in both], True),
        ("sections {} in A, {} in B", [x.sections for x in both], True),
        ("sections alternate: {} in A, {} in B", [x.interleaved for x in both], True),
        ("attention factor {} in A, {} in B", factors, True),
    ):
        if seen and values[0] != values[1]:
            yield told.format(*values), 1
    if alike and acts:
        rates = f"{a.frequencies[j]:.4g} radians a token in A, {b.frequencies[j]:.4g} in B"
        far = f"{SEEN} radians apart from token {math.ceil(SEEN / apart[j])} on"
        yield f"pair {j} rotates by {rates}: {far}", 1


def lowest(layer, at):
    """The first key that each token sees."""
    if layer.chunk is not None:
        return at // layer.chunk * layer.chunk
    return 0 * at if layer.window is None else np.maximum(at - layer.window + 1, 0)


def grown(layer, at):
    """What the query of each token is multiplied by."""
    if (told := layer.temperature) is None:
        return np.ones(len(at))
    steps = (at + told.first) / told.floor
    return 1 + told.scale * np.log(
        np.maximum(steps, 1) if told.smooth else 1 + np.floor(steps)
    )


def named(one, other):
    """The misreadings of one plan that make the other; none if they don't explain each layer."""
    found = {}
    for a, b in zip(one.layers, other.layers, strict=False):
        tried = [] if (want := acting(b)) == acting(a) else misreadings(a, one)
        known = [what for _, what, wrong in tried if acting(wrong) == want]
        if tried and not known:
            return []
        found |= dict.fromkeys(known[:1])
    return list(found)


def acting(layer):
    """A layer with no more of its rotation than what acts."""
    rope = layer.rope
    if rope is not None:
        digits = tuple(float(f"{w:.6g}") for w in rope.frequencies)
        rope = replace(rope, base=0, frequencies=digits, method="", numbers=())
    return replace(layer, kind=layer.kind in ATTENTION, rope=rope)


def around(one, other):
    """What two decoders have otherwise around their layers, told as by `differences`; None if not known."""
    try:
        a, b = (decoder(path) for path in (one, other))
    except (TypeError, ValueError):
        return None
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in AROUND)
    return {(f"{name} {x} in A, {y} in B", 0): [] for name, x, y in pairs if x != y}


def beyond(*paths):
    """A length beyond which models were trained; None if their files do not say."""
    lengths = (opened(path).values.get("max_position_embeddings") for path in paths)
    return 4 * max((n for n in lengths if isinstance(n, int)), default=0) or None


def weights(one, other):
    """What the weights of two models have otherwise, in words, and whether anything is."""
    from posattn.torch.models.layer_plan import state_of

    folders = [path if Path(path).is_dir() else None for path in (one, other)]
    try:
        a, b = map(state_of, folders, (one, other))
        common = [name for name in a if name in b]
    except (TypeError, ValueError):
        return "Weights were not compared: a side has none.", False
    bound = QUANTIZED if is_gguf(one) or is_gguf(other) else HALF
    apart, how = [], ""
    for name in common:
        x, y = (side[name].float().reshape(len(side[name]), -1) for side in (a, b))
        same = x.shape == y.shape
        if not same or (x - y).norm() > bound * x.norm():
            apart.append(name)
            if same and (x.norm(dim=1).sort()[0] - y.norm(dim=1).sort()[0]).norm() < HALF:
                how = ", with rows in another order, as in a GGUF file"
    if common and not apart:
        return "The weights are equal.", False
    first = f", from {apart[0]} on{how}" if apart else ""
    return f"{len(apart)} of {len(common)} weights of both differ{first}.", True
