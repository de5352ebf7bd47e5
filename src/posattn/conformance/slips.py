"""What goes wrong in the code of a layer, however well its configuration is read."""

from dataclasses import replace
from functools import partial

import numpy as np

from posattn.conformance.comparison import AXES
from posattn.conformance.computation import attend, counted, scheme_of, seen
from posattn.conformance.faults import FAULTS
from posattn.conformance.misreadings import rotation

__all__ = ["forgotten", "planted", "slips"]

TILED = (
    "Key heads are repeated one after the other, as tile does: each belongs to neighboring query heads, "
    "as with repeat_interleave."
)

AHEAD = "Each query rotates one position ahead of its key, as where the new token is counted before it."
BEHIND = "Each query rotates one position behind its key, as where an offset is read before it grows."
ANGLES = "Angles are computed in bfloat16, which holds no position above 256 exactly."
FREQUENCIES = "Frequencies are rounded to bfloat16, as where a model casts its buffers."
CORNER = (
    "The causal mask counts queries from 0 in each call, so it begins in the top left corner: the last query "
    "must see the last key."
)
FROM_0 = "Each call {} as if the first of them stood at position 0."


def planted(layer):
    """Sentences, and functions that make the mistake in a torch layer of ours."""
    if layer.latent is not None:
        return
    if 1 < layer.num_kv_heads < layer.num_heads:
        yield TILED, partial(tile, layer)
    if layer.rope is None or layer.rope.sections or layer.rope.last:
        return
    for what, steps in ((AHEAD, 1), (BEHIND, -1)):
        yield what, partial(apart, steps)
    for what, products in ((ANGLES, True), (FREQUENCIES, False)):
        for table in (False, True):
            yield what, partial(rounded, products, table)


def forgotten(layer, starts):
    """Sentences, and functions that make a later call forget its place: calls begin at `starts`."""
    import torch

    from posattn.torch.attention.masks import Every

    def since(at):
        begun = starts.to(at.device)
        return at - begun[torch.searchsorted(begun, at.contiguous(), right=True) - 1]

    def corner(queries, keys):
        return keys[..., None, :] <= since(queries)[..., None]

    def cornered(made):
        made.mask = corner if made.mask is None else Every((made.mask, corner))

    def restarted(*parts):
        def change(made):
            from_0 = lambda rotary: lambda x, at: rotary(x, since(at))  # noqa: E731
            made.rotate = [
                exchanged(scheme, from_0) if part in parts else scheme
                for part, scheme in zip(("queries", "keys"), both(made), strict=True)
            ]

        return FROM_0.format("rotates its " + " and ".join(parts)), change

    if layer.latent is None:
        yield CORNER, cornered
        if layer.rope is not None and not layer.rope.sections:
            yield restarted("queries", "keys")
            yield restarted("queries")


def tile(layer, made):
    """Put each query head where it reads the key head that it meets if those are repeated in turn."""
    heads = sorted(range(layer.num_heads), key=lambda head: head % layer.num_kv_heads)
    width = made.query.weight.shape[0] // layer.num_heads
    rows = [width * head + entry for head in heads for entry in range(width)]
    asked = [p for p in (made.query, made.gate) if p is not None]
    for array in (x for projection in asked for x in projection.parameters()):
        array.data = array.data[rows]
    made.output.weight.data = made.output.weight.data[:, rows]


def apart(steps, made):
    """Rotate queries some positions further than keys."""
    query, key = both(made)
    further = lambda rotary: lambda x, at: rotary(x, at + steps)  # noqa: E731
    made.rotate = [exchanged(query, further), key]


def rounded(products, table, made):
    """Round frequencies to bfloat16, or positions and their products too, and sines or not."""
    import torch

    from posattn.torch.position.rotary import rotate_by

    def coarse(rotary):
        def rotate(x, at):
            omega = torch.tensor(rotary.frequencies, device=at.device).bfloat16()
            angles = (at.bfloat16() if products else at.float())[..., None] * omega
            kept = torch.bfloat16 if table else torch.float32
            tables = (
                f(angles.float()).to(kept).to(x.dtype) for f in (torch.cos, torch.sin)
            )
            cos, sin = (rotary.attention_factor * each for each in tables)
            return rotate_by(x, cos, sin, rotary.layout)

        return rotate

    made.rotate = [exchanged(scheme, coarse) for scheme in both(made)]


def both(made):
    """The rotations of queries and keys of a torch layer."""
    from posattn.torch.models.projections import as_given

    given = as_given(made.rotate)
    return given if isinstance(given, (list, tuple)) else (given, given)


def exchanged(scheme, change):
    """Another rotation, with the same norms before or after it."""
    from posattn.torch.models.head_norm import Steps

    if isinstance(scheme, Steps):
        return Steps(change(scheme.rotation), scheme.norm, scheme.temperature)
    return change(scheme)


def slips(layer):
    """Names, sentences and the attention that a layer then computes."""
    yield from of_later_calls(layer)
    yield from of_the_order(layer)
    if layer.rope is not None:
        twice = {"frequencies": 2 * np.array(layer.rope.frequencies)}
        twice["attention_factor"] = layer.rope.attention_factor**2
        what = "Queries and keys are rotated twice, as by a layer and its kernel, or positions are doubled."
        yield "rotated_twice", what, partial(attend, rotation(layer, **twice))
    if layer.rope is not None and len(layer.rope.sections) == 3:
        for what, axes in AXES.items():
            yield "axes_" + "_".join(map(str, axes)), what, partial(on_axes, layer, axes)
        what = "Pictures' coordinates are ignored: tokens are counted."
        yield "coordinates_ignored", what, partial(on_axes, layer, None)
    if 1 < layer.num_kv_heads < layer.num_heads:
        group = layer.num_heads // layer.num_kv_heads

        def tiled(query, key, value, *positions, **more):
            key, value = (np.concatenate([x] * group, axis=1) for x in (key, value))
            return attend(layer, query, key, value, *positions, **more)

        yield "key_heads_tiled", TILED, tiled
    scheme = "attention" if layer.soft_cap is None else "soft_cap"
    places = {"sinks" if layer.sinks else scheme: "attention"}
    places[scheme_of(layer.bias)] = "biased"
    for fault in FAULTS:
        for place in {places.get(scheme) for scheme in fault.schemes} - {None}:
            yield fault.name, fault.sentence, partial(attend, layer, **{place: fault.make})


def on_axes(layer, axes, *given, coordinates=None, **more):
    """What a layer computes with other axes of its coordinates, or without any."""
    none = coordinates is None or axes is None
    return attend(layer, *given, coordinates=None if none else coordinates[:, axes], **more)


def of_later_calls(layer):
    """What is forgotten where there is one query, or a cache."""

    def where(few, **changed):
        other = replace(layer, **changed)

        def attention(query, key, *given, **more):
            return attend(other if few(query, key) else layer, query, key, *given, **more)

        return attention

    def decoding(query, key):
        return query.shape[-2] == 1

    def cached(query, key):
        return query.shape[-2] < key.shape[-2]

    moments = {
        "in_decoding": (decoding, "is one query: decoding has a program of its own"),
        "with_a_cache": (cached, "are fewer queries than keys, as with a cache"),
    }
    for name in ("window", "chunk", "bias"):
        if getattr(layer, name) is not None:
            for moment, (few, there) in moments.items():
                what = f"The {name} is ignored where there {there}."
                yield f"{name}_not_{moment}", what, where(few, **{name: None})
    if layer.window is not None:
        what = f"The window is one too large in decoding: it holds {layer.window} with the query's own."
        larger = where(decoding, window=layer.window + 1)
        yield "window_one_too_large_in_decoding", what, larger


def of_the_order(layer):
    """Masks, rotations and biases that go by the rows of a call, and not by positions."""

    def masked_by(mask):
        return lambda *given, **more: attend(layer, *given, **more, mask=mask(*given))

    def placed_by(order):
        return lambda *given, **more: attend(
            layer, *given[:3], *order(*given), **more, mask=seen(layer, *given[3:])
        )

    if layer.causal:
        corner = masked_by(lambda *given: seen(layer, *counted(*given)))
        yield "mask_from_the_top_left", CORNER, corner
    what = "The mask counts the rows of a call, the last query at the last key: it should go by positions."
    by_rows = masked_by(lambda *given: seen(layer, *counted(*given, at_the_end=True)))
    yield "mask_by_rows", what, by_rows
    if layer.window is not None:
        past, near = replace(layer, window=None), replace(layer, causal=False)
        what = "The window counts queries from 0 in each call: it should go by positions, as causality does."
        both = lambda *given: seen(past, *given[3:]) & seen(near, *counted(*given))  # noqa: E731
        yield "window_from_the_top_left", what, masked_by(both)
    if layer.rope is not None or layer.bias is not None:
        does = "biases" if layer.rope is None else "rotates"
        first = placed_by(lambda *given: (counted(*given)[0], given[-1]))
        yield "queries_from_0", FROM_0.format(f"{does} its queries"), first
        both_from_0 = FROM_0.format(f"{does} its queries and keys")
        yield "positions_from_0", both_from_0, placed_by(counted)
