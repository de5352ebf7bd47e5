"""What sets models apart: a letter for what each layer sees, and properties that a plan has or lacks."""


def strip(plan):
    """A letter for what each layer of a plan sees.

    `F` is everything, `N` everything without position, `W` a window or chunk, `S` keys that were chosen or
    condensed, `L` a state or a convolution, `C` an image, and `-` nothing.

    Examples:
        >>> from posattn.configs import plan
        >>> from posattn.stories import CHECKPOINT
        >>> strip(plan(CHECKPOINT))
        'FF'
    """
    return "".join(map(_letter, plan.layers))


def _letter(layer):
    if layer.kind.startswith("no attention"):
        return "-"
    if layer.kind.startswith("cross"):
        return "C"
    if layer.kind not in ("full", "sliding", "chunked"):
        return "F" if layer.kind.startswith("attention") else "L"
    if layer.selected or layer.compressed:
        return "S"
    if layer.kind != "full":
        return "W"
    return "F" if layer.rope or layer.bias or layer.table else "N"


def ropes(plan):
    """The rotations of a plan, each once, in the order of its layers."""
    return [*dict.fromkeys(layer.rope for layer in plan.layers if layer.rope)]


def _in_part(plan):
    layers = [layer for layer in plan.layers if layer.rope and not layer.latent]
    return any(2 * sum(w > 0 for w in la.rope.frequencies) < la.head_dim for la in layers)


def _some(test):
    """Whether a layer passes a test."""
    return lambda plan: any(test(layer) for layer in plan.layers)


def _scaled(*methods):
    """Whether a layer rotates by one of some methods."""
    return lambda plan: any(rope.method in methods for rope in ropes(plan))


def _otherwise(layer):
    indexer, rope = layer.indexer, layer.rope
    if indexer is None or indexer.shared or indexer.layout is None or rope is None:
        return False
    return (indexer.layout, indexer.last) != (rope.layout, False)


def _unusual(layer):
    usual = layer.kind not in ("full", "sliding", "chunked") or layer.latent is not None
    return not usual and abs(layer.scale * layer.head_dim**0.5 - 1) > 1e-9


TRAITS = {  # what people look for in a model, and whether a plan has it
    "a window or chunks in some layers": lambda plan: "W" in strip(plan),
    "keys chosen by an indexer, or condensed": lambda plan: "S" in strip(plan),
    "linear attention, state space or convolution": lambda plan: "L" in strip(plan),
    "rotary, but not in all full layers": lambda plan: (
        "N" in strip(plan) and bool(ropes(plan))
    ),
    "no rotation in any layer": lambda plan: "rotary" not in str(plan),
    "only a part of each head rotated": _in_part,
    "pairs of neighbors": lambda plan: any(rope.layout != "half" for rope in ropes(plan)),
    "two bases": lambda plan: len({rope.base for rope in ropes(plan)}) > 1,
    "scaled for longer texts": _scaled("linear", "yarn", "longrope", "llama3", "dynamic"),
    "keys and values from a latent vector": _some(lambda layer: layer.latent),
}
SETTINGS = {  # what code gets wrong, and whether a plan has it
    "causal window": _some(lambda layer: layer.kind == "sliding" and layer.causal),
    "window to both sides": _some(
        lambda layer: layer.kind == "sliding" and not layer.causal
    ),
    "chunks": _some(lambda layer: layer.chunk),
    "keys chosen by content": _some(lambda layer: layer.selected),
    "another layout in the indexer": _some(_otherwise),
    "condensed keys": _some(lambda layer: layer.compressed),
    "slower at any length": _scaled("linear", "llama3"),
    "YaRN": _scaled("yarn"),
    "LongRoPE": _scaled("longrope"),
    "dynamic NTK": _scaled("dynamic"),
    "axes for images": lambda plan: any(rope.sections for rope in ropes(plan)),
    "sinks": _some(lambda layer: layer.sinks),
    "soft cap": _some(lambda layer: layer.soft_cap),
    "a scale of its own": _some(_unusual),
    "1 plus the weight of a norm": _some(
        lambda layer: layer.query_norm is not None and layer.query_norm.plus_one
    ),
    "queries that grow": _some(lambda layer: layer.temperature),
    "positions added at the input": _some(lambda layer: layer.table),
    "bias on the scores": _some(lambda layer: layer.bias),
    "numbers left to a class": lambda plan: plan.defaults,
}
