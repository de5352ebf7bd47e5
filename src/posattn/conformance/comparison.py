"""A layer made from a plan, run beside a module on the same input: how far apart they are, and may be."""

from dataclasses import replace

import numpy as np

__all__ = ["AXES", "COARSE", "bounds", "distance", "elsewhere", "len_of", "of_the_first"]
__all__ += ["run", "windows"]

TOLERANCE = 1e-5
COARSE = {"float16": 4e-3, "bfloat16": 3e-2}  # what rounding may do at most
ROUNDED = 4  # times as far as our own layer, which is rounding for sure
BEGINS = {  # where a document begins, by the position of a token and of the one before it
    "restarts": lambda at, before: (at < before) | (at == 0),
    "gaps": lambda at, before: at != before + 1,
    "never": lambda at, before: at < at,
}
PADDING = "Padding is seen: attention_mask is ignored."
LEAK = (
    "A document sees those before it: position_ids restart and attention does not. transformers separates "
    "them in some models, if use_cache is False and there is no attention_mask."
)
GAPS = "A gap in position_ids, or one that comes again, is taken for the beginning of a document."
AXES = {  # what is done to the coordinates of pictures, and the axes that are then taken
    "Rows and columns of pictures are exchanged.": [0, 2, 1],
    "Pictures have time only: each axis takes its position.": [0, 0, 0],
}
ELSEWHERE = {  # what a model may do with an input, and those that it then seems to have
    PADDING: ("attention_mask", {"attention_mask": None}),
    LEAK: ("position_ids", {"documents": "never"}),
    GAPS: ("position_ids", {"documents": "gaps"}),
    "position_ids are ignored.": ("position_ids", {"position_ids": None}),
    **{sentence: ("position_ids", {"axes": axes}) for sentence, axes in AXES.items()},
}
ANGLE = 2.0**-22  # a position: twice what float32 makes of a frequency and of its product


def run(described, layer, state, x, given, dtype=None, *, change=None):
    """The output of a layer of a plan, after a `change` of it; in float64 if no other type is asked for."""
    import torch

    from posattn.torch.attention.masks import Window
    from posattn.torch.models.latent import LatentAttention
    from posattn.torch.models.multi_head import MultiHeadAttention

    if layer.selected is not None and len_of(given) <= layer.selected:
        layer = replace(layer, selected=None)  # an indexer that chooses all
    wide, rows = None, torch.arange(x.shape[-2], device=x.device)
    positions, coordinates = stand(given, rows)
    begins = given.get("documents", "restarts")
    if begins == "never":  # then its window goes by rows, too
        wide, layer = layer.window, replace(layer, window=None)
    layers = list(described.layers)
    layers[layer.index] = layer
    x = x.to(torch.float64 if dtype is None else dtype)
    kind = MultiHeadAttention if layer.latent is None else LatentAttention
    made = kind.from_config(
        replace(described, layers=tuple(layers)),
        layer.index,
        weights=only_used(layer, state),
        dtype=x.dtype,
        device=x.device,
    )
    if change is not None:
        change(made)
    at = {"query_positions": positions}
    if layer.rope is not None and layer.rope.sections:
        axes = given.get("axes", [*range(len(layer.rope.sections))])
        at["coordinates"] = coordinates.expand(*x.shape[:-1], len(axes))[..., axes]
    shown = given.get("attention_mask")
    mask = None if shown is None else shown.bool()[:, None, :]
    apart = separate(positions, begins)
    apart = apart if wide is None else Window(wide)(rows, rows)
    if apart is not None:
        mask = apart if mask is None else mask & apart
    with torch.no_grad():
        return made(x, causal=layer.causal, mask=mask, **at)


def stand(given, rows):
    """The position of each token in its text, and its coordinates `(..., n, axes)`, one or three."""
    at = given.get("position_ids")
    at = rows if at is None else at
    if at.ndim < 3:
        return at, at[..., None]
    return at[0] if len(at) > 3 else rows, at[-3:].movedim(0, -1)


def elsewhere(given):
    """Sentences on what a model may do with its inputs, and those that it then seems to have."""
    for sentence, (name, other) in ELSEWHERE.items():
        x = given.get(name)
        if x is not None and (x.ndim > 2 or "axes" not in other):
            yield sentence, given | other


def separate(positions, begins):
    """Which tokens are of the same document, `(..., n, n)`; None if there is one only."""
    begun = BEGINS[begins](positions, positions.roll(1, -1))
    begun[..., 0] = False
    number = begun.cumsum(-1)
    if not begun.any():
        return None
    return number[..., :, None] == number[..., None, :]


def only_used(layer, state):
    """The weights without those of an indexer, or of sinks or norms that a layer does not have."""
    gone = [".indexer."] if layer.sinks else [".indexer.", ".sinks"]
    for norm, name in ((layer.query_norm, ".q_norm."), (layer.key_norm, ".k_norm.")):
        gone += [name] if norm is None else []
    return {name: x for name, x in state.items() if not any(part in name for part in gone)}


def distance(got, want, given):
    """The worst entry, relative to the largest; of tokens that are no padding."""
    got, want = (x.double().cpu().numpy() for x in (got, want))
    if got.shape != want.shape:
        raise ValueError(f"its output must have the shape {got.shape}, got {want.shape}")
    if given.get("attention_mask") is not None:
        rows = given["attention_mask"].bool().cpu().numpy()
        got, want = got[rows], want[rows]
    if not np.isfinite(want).all():
        return np.inf
    return float(np.abs(got - want).max() / np.abs(got).max())


def bounds(described, layer, state, x, given, exact):
    """How far off rounding takes a layer, for sure and at most, with what float32 makes of angles far out."""
    far, kind = ANGLE * len_of(given), str(x.dtype).rpartition(".")[2]
    if kind not in COARSE:
        return TOLERANCE + far, TOLERANCE + far
    own = distance(exact, run(described, layer, state, x, given, x.dtype), given)
    return min(COARSE[kind], ROUNDED * own) + far, COARSE[kind] + far


def windows(layer, exact, want, bound):
    """The windows that the first wrong row leaves open: it has one key too few, or the first too many."""
    apart = (exact - want.double()).abs().amax(-1) / exact.abs().max()
    wrong = (apart > bound).any(0).nonzero()
    first, n = int(wrong[0, 0]), want.shape[-2]
    return range(first + 1, n) if first == layer.window else [first] * (first > 0)


def len_of(given):
    """Up to which position the inputs go, that one not counted."""
    if given.get("position_ids") is not None:
        return int(given["position_ids"].max()) + 1
    return given.get("tokens", given.get("input_ids")).shape[-1]


def of_the_first(n, given):
    """What a model is called with, of its first `n` tokens only."""
    names = ("position_ids", "attention_mask", "tokens", "input_ids")
    cut = {name: x[..., :n] for name, x in given.items() if name in names and x is not None}
    return {**given, **cut}
