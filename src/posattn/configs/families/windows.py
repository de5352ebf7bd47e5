"""Decoders whose layers slide by a pattern, each kind with what is its own: gpt-oss and OLMo 3."""

from dataclasses import replace

from posattn.configs.families.gemma import every_other
from posattn.configs.families.llama import RMS, layer_of
from posattn.configs.families.stack import FULL, SLIDING, patterned, rotation

__all__ = ["FAMILIES"]


def gpt_oss(keys):
    """gpt-oss: sinks, and a window in every other layer."""
    layer = replace(layer_of(keys), sinks=True)
    rope = rotation(keys, layer.head_dim)
    return patterned(keys, layer, every_other, lambda kind: rope)


def olmo3(keys):
    """OLMo 3: three layers in four slide, and only the others are scaled."""
    layer = layer_of(keys, norm=RMS | {"axes": "width"})
    return patterned(
        keys,
        layer,
        lambda place: FULL if (place + 1) % 4 == 0 else SLIDING,
        lambda kind: of_olmo3(keys, layer.head_dim, kind),
    )


def of_olmo3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form, where sliding layers are not scaled."""
    if keys.values.get("rope_parameters"):
        return rotation(keys, head_dim, kind=kind)
    base = keys.number("rope_theta", "rope_parameters", above=1)
    if base != 500_000:
        raise keys.error(
            f"rope_theta = {base:g} would rotate full layers only, and transformers rotates "
            "sliding ones by 500000",
            do="write rope_parameters for each",
        )
    return rotation(keys if kind == FULL else keys.without("rope_scaling"), head_dim)


FAMILIES = {"gpt_oss": gpt_oss, "olmo3": olmo3}
