"""Latent attention of a configuration: whether a layer can be built, and which arrays are its weights."""

from dataclasses import astuple

import numpy as np

from posattn import contract
from posattn.configs.data import data
from posattn.configs.reading import refuse_others
from posattn.configs.weights import IGNORED, LLAMA, arrays_of, refuse_left_over

NAMES = data("latents.json")
KNOWN = (  # what LatentAttention knows of a layer; all else must be as if it were not there
    *("index", "kind", "dim", "num_heads", "num_kv_heads", "head_dim", "causal", "scale"),
    *("rope", "latent", "kv_layer", "selected", "indexer", "block", "sinks", "gate"),
)


def as_latent(layer):
    """Refuse a layer that `LatentAttention` can't build, so that nothing is left out in silence."""
    if layer.latent is None:
        raise ValueError(
            f"layer {layer.index} must have a latent vector of keys and values, got heads of their own, "
            "which MultiHeadAttention builds"
        )
    if layer.selected is not None and layer.indexer is None:
        raise ValueError(f"layer {layer.index} has an indexer of unknown widths")
    refuse_others(layer, KNOWN, "LatentAttention")


def latent_weights(state, plan, index):
    """The weights of one layer of latent attention, out of those of a whole model.

    They are as :class:`torch.nn.Linear` keeps them: `query_down.weight`, `query_norm.weight` (both only if
    queries have a latent vector), `query.weight`, `kv_down.weight`, `kv_norm.weight`, `key.weight`,
    `value.weight` and `output.weight`, with `gate.weight`, `sinks`, `temperature` and those of the indexer,
    where there are any. What stands in several arrays is a list of them, whose rows belong together. An
    indexer that rotates the last entries of its heads gets them as the first ones.
    A ValueError names what is missing, left over or of a wrong shape.
    """
    layer = plan.layers[index]
    prefix, own = arrays_of(state, LLAMA, plan, index)
    found = {}
    for role, (names, shape) in _wanted(layer).items():
        arrays = []
        for name in names.split():
            if name not in own:
                raise ValueError(f"weights lack {prefix + name!r}, the layer's {role}")
            array = state[own.pop(name)]
            if tuple(array.shape) != shape:
                raise ValueError(
                    f"{prefix + name!r} must have shape {shape}, got {tuple(array.shape)}"
                )
            arrays.append(array[None] if role.endswith("temperature") else array)
        whole = role.endswith((".bias", "sinks", "places", "temperature"))
        role = role.removesuffix(" and gate") if arrays[1:] else role
        found[role if whole else f"{role}.weight"] = arrays if arrays[1:] else arrays[0]
    refuse_left_over(prefix, set(own) - set(IGNORED), plan)
    widths = {"key and value": layer.latent.content_dim, "query and gate": layer.head_dim}
    for both, width in widths.items():
        if f"{both}.weight" in found:
            rows = found.pop(f"{both}.weight")
            each = rows.reshape(layer.num_heads, -1, rows.shape[1])
            parts = each[:, :width], each[:, width:]
            for role, part in zip(both.split(" and "), parts, strict=True):
                found[f"{role}.weight"] = part.reshape(-1, rows.shape[1])
    index = layer.indexer
    if index is not None and index.last and not index.shared:
        order = np.roll(np.arange(index.head_dim), layer.latent.rotary_dim)
        for role in ("key.weight", "key_norm.weight", "key_norm.bias"):
            found[f"indexer.{role}"] = found[f"indexer.{role}"][order]
        heads = index.head_dim * np.arange(index.num_heads)[:, None]
        found["indexer.query.weight"] = found["indexer.query.weight"][
            (heads + order).ravel()
        ]
    return found


def _wanted(layer):
    """The name and the shape of each array, by what it is."""
    widths, index = layer.latent, layer.indexer
    sizes = layer.dim, layer.num_heads, *astuple(widths)[:5]
    lent = layer.kv_layer is not None
    sizes = contract.latent_sizes(*sizes, raw=widths.raw, gate=layer.gate, lent=lent)
    shapes = {role: (outputs, inputs) for role, (inputs, outputs) in sizes.weights.items()}
    (content, rank), (value, _) = shapes.pop("key"), shapes.pop("value")
    shapes["key and value"] = content + value, rank
    if not lent:
        shapes["kv_norm"] = (rank,)
    names = NAMES
    if widths.query_rank is None:
        names = NAMES | {"query": "q_proj.weight"}
    else:
        shapes["query_norm"] = (widths.query_rank,)
    if widths.raw and layer.gate:
        (rows, inputs), (more, _) = shapes.pop("query"), shapes.pop("gate")
        shapes["query and gate"] = rows + more, inputs
    if layer.sinks:
        shapes["sinks"] = (layer.num_heads,)
    if widths.temperature:
        shapes["temperature"] = (layer.num_heads,)
    if index is not None and not index.shared:
        width = index.head_dim
        sizes = layer.dim, index.num_heads, width, 1, widths.query_rank, index.pooled
        for role, (inputs, outputs) in contract.indexer_sizes(*sizes)[-1].items():
            shapes[f"indexer.{role}"] = outputs, inputs
        shapes |= dict.fromkeys(("indexer.key_norm", "indexer.key_norm.bias"), (width,))
        if index.pooled == "gated":
            shapes["indexer.places"] = layer.block, width
            shapes["indexer.key and gate"] = width, shapes.pop("indexer.key")[1]
        if index.input_norm:
            inputs = shapes["indexer.query"][1:]
            shapes |= {"indexer.input_norm": inputs, "indexer.input_norm.bias": inputs}
        if index.temperature:
            shapes["indexer.temperature"] = (index.num_heads,)
    return {role: (names[role], shape) for role, shape in shapes.items()}
