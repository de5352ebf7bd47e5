"""Faults of rotations: layouts that are mixed, and frequencies of another width than the head's."""

import numpy as np

from posattn import reference
from posattn.conformance.faults.registry import fault, tokens
from posattn.reference.position.rotary import rotate_by, to_half, to_interleaved
from posattn.reference.position.rotary_cases import rotated

OTHER = {"interleaved": "half", "half": "interleaved"}
HEADS = (4, 8, 12, 16, 32)
BASES = {160000: "Avarok-Cybersecurity/atlas #276", 500000: "", 1000000: ""}
WIDTHS = (64, 128, 256, 512, 768, 1024, 2048, 4096)


@fault("rotary", seen="facebookresearch/vjepa2 #15")
def layouts_mixed(x, positions=None, *, layout="interleaved", frequencies=None, **keywords):
    """Layouts are mixed: entries are paired as asked for, angles laid out as in the other layout."""
    width = keywords.get("rotary_dim") or x.shape[-1]
    plain = reference.frequencies(width, base=keywords.get("base", 10000.0))
    angles = tokens(x, positions)[..., None] * (
        plain if frequencies is None else frequencies
    )
    return mixed(x, angles, layout, keywords.get("attention_factor", 1))


def mixed(x, angles, layout, factor=1):
    """Pair entries by one layout, and lay the angles out by the other."""
    wrong = np.repeat(angles, 2, -1) if layout == "half" else np.tile(angles, 2)
    head, rest = x[..., : wrong.shape[-1]], x[..., wrong.shape[-1] :]
    across = rotate_by(head, 0 * angles, 1 + 0 * angles, layout)
    made = head * np.cos(wrong) + across * np.sin(wrong)
    return np.concatenate([factor * made, rest], -1)


@fault("rotary", seen="raiyanyahya/how-to-train-your-gpt #6")
def layouts_mixed_the_other_way(x, positions=None, *, layout="interleaved", **keywords):
    """Layouts are mixed: angles are laid out as asked for, entries paired as in the other layout."""
    return layouts_mixed(x, positions, layout=OTHER[layout], **keywords)


@fault("rotary")
def halves_of_the_whole_head(
    x,
    positions=None,
    *,
    layout="interleaved",
    frequencies=None,
    rotary_dim=None,
    **keywords,
):
    """Partial rotation in the layout half pairs the halves of the whole head, (x[j], x[j + d/2])."""
    if rotary_dim is not None:
        base = keywords.get("base", 10000.0)
        frequencies = reference.frequencies(rotary_dim, base=base)
    if layout == "half" and frequencies is not None:
        frequencies = np.pad(frequencies, (0, x.shape[-1] // 2 - len(frequencies)))
    return rotated(x, positions, layout=layout, frequencies=frequencies, **keywords)


@fault("rotary")
def exponents_of_the_whole_head(
    x, positions=None, *, base=10000.0, rotary_dim=None, **keywords
):
    """The exponents divide by the width of the head, as in Gemma 4: here they divide by rotary_dim."""
    if rotary_dim is not None:
        by = base ** -(np.arange(0, rotary_dim, 2) / x.shape[-1])
        return rotated(x, positions, frequencies=by, **keywords)
    return rotated(x, positions, base=base, **keywords)


@fault("rotary", seen="apple/coreai-models #66")
def zeros_left_out(x, positions=None, *, frequencies=None, **keywords):
    """Pairs lie within the part that rotates: frequencies of 0 should keep them across the whole head."""
    if frequencies is not None:
        frequencies = frequencies[frequencies != 0]
    return rotated(x, positions, frequencies=frequencies, **keywords)


@fault("rotary", seen="pie-project/pie #602")
def across_the_whole_head(
    x, positions=None, *, base=10000.0, rotary_dim=None, layout="interleaved", **keywords
):
    """Proportional rotation, as in Gemma 4: pairs lie across the whole head, and here within rotary_dim."""
    if rotary_dim is not None:
        by = base ** -(np.arange(0, x.shape[-1] - 1, 2) / x.shape[-1])
        by[rotary_dim // 2 :] = 0
        keywords["frequencies"] = by
    return rotated(x, positions, base=base, layout=layout, **keywords)


@fault("rotary")
def all_entries_turn(x, positions=None, *, rotary_dim=None, **keywords):
    """All entries rotate: rotary_dim is ignored."""
    return rotated(x, positions, **keywords)


@fault("rotary")
def last_entries_turn(x, positions=None, *, rotary_dim=None, **keywords):
    """The last rotary_dim entries rotate: here the first ones do."""
    if rotary_dim is None:
        return rotated(x, positions, **keywords)
    rest, tail = x[..., :-rotary_dim], x[..., -rotary_dim:]
    return np.concatenate([rest, rotated(tail, positions, **keywords)], -1)


@fault("rotary", seen="vllm-project/vllm-metal #44")
def pairs_come_back_in_the_other_layout(
    x, positions=None, *, layout="interleaved", frequencies=None, **keywords
):
    """Layouts are mixed: the pairs are those asked for, and they come back in the other order."""
    made = rotated(x, positions, layout=layout, frequencies=frequencies, **keywords)
    width = keywords.get("rotary_dim") or x.shape[-1]
    width = width if frequencies is None else 2 * frequencies.shape[-1]
    head, rest = made[..., :width], made[..., width:]
    back = to_half(head) if layout == "interleaved" else to_interleaved(head)
    return np.concatenate([back, rest], -1)


@fault("rotary")
def pairs_of_the_other_layout(x, positions=None, *, layout="interleaved", **keywords):
    """Layouts are mixed: the pairs are those of the other, and they come back in the order asked for."""
    return pairs_come_back_in_the_other_layout(
        x, positions, layout=OTHER[layout], **keywords
    )


def of_the_model(name, width):
    """Enter the frequencies of the width of a model, `width(x)`, for heads `x`."""

    def frequencies_of_the_model(
        x, positions=None, *, frequencies=None, base=10000.0, rotary_dim=None, **keywords
    ):
        """The frequencies are of the model's width, where the head's should be: they fall too slowly."""
        if frequencies is None:
            turns = x.shape[-1] if rotary_dim is None else rotary_dim
            frequencies = base ** -(np.arange(0, turns, 2) / width(x))
        return rotated(x, positions, frequencies=frequencies, **keywords)

    frequencies_of_the_model.__name__ = name
    fault("rotary")(frequencies_of_the_model)


of_the_model("frequencies_of_all_heads", lambda x: x.shape[-1] * (*x.shape[:-2], 1)[-2])
for heads in HEADS:
    of_the_model(f"frequencies_of_{heads}_heads", lambda x, h=heads: x.shape[-1] * h)
for wide in WIDTHS:
    of_the_model(f"frequencies_of_width_{wide}", lambda x, wide=wide: wide)


def of_another_layer(other, seen):
    """Enter the base of another layer or model."""

    def turned_by(x, positions=None, *, base=10000.0, **keywords):
        return rotated(x, positions, base=float(other), **keywords)

    turned_by.__name__ = f"base_of_{other}"
    turned_by.__doc__ = (
        f"The base is {other}, as in other layers or models, whatever was asked."
    )
    fault("rotary", seen=seen)(turned_by)


for other, thread in BASES.items():
    of_another_layer(other, thread)
