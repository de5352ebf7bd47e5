"""Latent attention of a configuration: whether a layer can be built, and which arrays are its weights."""

from posattn.configs.reading import refuse_others
from posattn.configs.weights import IGNORED, LLAMA, arrays_of, refuse_left_over

__all__ = ["as_latent", "latent_weights"]

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
    if layer.rope is None:
        raise ValueError(
            f"layer {layer.index} has no rotation, which LatentAttention does not build"
        )
    index = layer.indexer
    unknown = (
        layer.selected is not None if index is None else index.last or not index.layout
    )
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
    widths, heads = layer.latent, layer.num_heads
    rank, dim = widths.kv_rank, layer.dim
    queries = heads * (widths.content_dim + widths.rotary_dim)
    wanted = {"query": ("q_proj.weight", (queries, dim))}
    if widths.query_rank is not None:
        wanted = {
            "query_down": ("q_a_proj.weight", (widths.query_rank, dim)),
            "query_norm": ("q_a_layernorm.weight", (widths.query_rank,)),
            "query": ("q_b_proj.weight", (queries, widths.query_rank)),
        }
    if layer.indexer is not None and not layer.indexer.shared:
        many, width = layer.indexer.num_heads, layer.indexer.head_dim
        queries = many * width, widths.query_rank or dim
        wanted |= {
            "indexer.query": ("indexer.wq_b.weight", queries),
            "indexer.key": ("indexer.wk.weight", (width, dim)),
            "indexer.key_norm": ("indexer.k_norm.weight", (width,)),
            "indexer.key_norm.bias": ("indexer.k_norm.bias", (width,)),
            "indexer.head": ("indexer.weights_proj.weight", (many, dim)),
        }
    both, values = widths.content_dim + widths.value_dim, heads * widths.value_dim
    return wanted | {
        "kv_down": ("kv_a_proj_with_mqa.weight", (rank + widths.rotary_dim, dim)),
        "kv_norm": ("kv_a_layernorm.weight", (rank,)),
        "key and value": ("kv_b_proj.weight", (heads * both, rank)),
        "output": ("o_proj.weight", (dim, values)),
    }
