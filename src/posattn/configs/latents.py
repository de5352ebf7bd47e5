"""Latent attention of a configuration: whether a layer can be built, and which arrays are its weights."""

from dataclasses import astuple

from posattn import contract
from posattn.configs.data import data
from posattn.configs.reading import refuse_others
from posattn.configs.weights import IGNORED, LLAMA, arrays_of, refuse_left_over

__all__ = ["as_latent", "latent_weights"]

NAMES = data("latents.json")
KNOWN = (  # what LatentAttention knows of a layer; all else must be as if it were not there
    *("index", "kind", "dim", "num_heads", "num_kv_heads", "head_dim", "causal", "scale"),
    *("rope", "latent", "selected", "indexer"),
)


def as_latent(layer):
    """Refuse a layer that `LatentAttention` can't build, so that nothing is left out in silence."""
    if layer.latent is None:
        raise ValueError(
            f"layer {layer.index} must have a latent vector of keys and values, got heads of their own, "
            "which MultiHeadAttention builds"
        )
    index = layer.indexer
    unknown = layer.selected if index is None else index.last or index.layout is None
    if unknown:
        raise ValueError(
            f"layer {layer.index} has {index}, which LightningIndexer does not build"
        )
    refuse_others(layer, KNOWN, "LatentAttention")


def latent_weights(state, plan, index):
    """The weights of one layer of latent attention, out of those of a whole model.

    They are as :class:`torch.nn.Linear` keeps them: `query_down.weight`, `query_norm.weight` (both only if
    queries have a latent vector), `query.weight`, `kv_down.weight`, `kv_norm.weight`, `key.weight`,
    `value.weight` and `output.weight`. A ValueError names what is missing, left over or of a wrong shape.
    """
    layer = plan.layers[index]
    prefix, own = arrays_of(state, LLAMA, plan, index)
    found = {}
    for role, (name, shape) in _wanted(layer).items():
        if name not in own:
            raise ValueError(f"weights lack {prefix + name!r}, the layer's {role}")
        array = state[own.pop(name)]
        if tuple(array.shape) != shape:
            raise ValueError(
                f"{prefix + name!r} must have shape {shape}, got {tuple(array.shape)}"
            )
        found[role if role.endswith(".bias") else f"{role}.weight"] = array
    refuse_left_over(prefix, set(own) - set(IGNORED), plan)
    both = found.pop("key and value.weight")
    each = both.reshape(layer.num_heads, -1, layer.latent.kv_rank)
    content = layer.latent.content_dim
    for role, part in (("key", each[:, :content]), ("value", each[:, content:])):
        found[f"{role}.weight"] = part.reshape(-1, layer.latent.kv_rank)
    return found


def _wanted(layer):
    """The name and the shape of each array, by what it is."""
    widths, index = layer.latent, layer.indexer
    sizes = contract.latent_sizes(layer.dim, layer.num_heads, *astuple(widths)[:5])
    shapes = {role: (outputs, inputs) for role, (inputs, outputs) in sizes.weights.items()}
    (content, rank), (value, _) = shapes.pop("key"), shapes.pop("value")
    shapes |= {"key and value": (content + value, rank), "kv_norm": (rank,)}
    names = NAMES
    if widths.query_rank is None:
        names = NAMES | {"query": "q_proj.weight"}
    else:
        shapes["query_norm"] = (widths.query_rank,)
    if index is not None and not index.shared:
        width = index.head_dim
        sizes = layer.dim, index.num_heads, width, 1, widths.query_rank
        for role, (inputs, outputs) in contract.indexer_sizes(*sizes)[-1].items():
            shapes[f"indexer.{role}"] = outputs, inputs
        shapes |= dict.fromkeys(("indexer.key_norm", "indexer.key_norm.bias"), (width,))
    return {role: (names[role], shape) for role, shape in shapes.items()}
