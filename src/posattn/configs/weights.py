"""Which arrays of a whole model's weights belong to one layer of attention, and how they are cut apart.

It works on any arrays that can be indexed, reshaped and transposed, so both columns use it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from posattn.configs.data import data
from posattn.configs.layers import Buckets

ROLES = ("query", "key", "value", "output")
# tables that old checkpoints keep, and norms of what surrounds the attention
IGNORED = (
    *("bias", "masked_bias", "rotary_emb.inv_freq", "self.rotary_embeddings.inv_freq"),
    *("ln.weight", "ln.bias", "self_attn_layer_norm.weight", "self_attn_layer_norm.bias"),
)
INDEXERS = data("indexers.json")  # how families name the arrays of an indexer
TABLE = "relative_attention_bias.weight"
AROUND = ("LayerNorm.weight", "LayerNorm.bias")


def attention_weights(state, plan, index):
    """The weights of one layer of attention, out of those of a whole model by the names of transformers.

    They are `query.weight`, `(H d_h, d)`, likewise `key`, `value`, `output` and `gate`, with `.bias` where
    the layer has offsets; `query_norm.weight`, likewise `key_norm` and `value_norm`; `sinks`; `bias.table`,
    which T5's first layer has for its stack.
    A ValueError names what is missing, left over or of a wrong shape.
    """
    layer = plan.layers[index]
    if plan.model_type not in NAMES:
        known = ", ".join(sorted(NAMES))
        raise ValueError(
            f"weights of model_type {plan.model_type!r} have unknown names; known are those of {known}"
        )
    names = NAMES[plan.model_type]
    prefix, own = arrays_of(state, names, plan, index)
    if isinstance(layer.bias, Buckets):
        first = arrays_of(state, names, plan, first_of(plan, index))[1]
        own |= {name: key for name, key in first.items() if name == TABLE}
    used = [name for name in own if name in IGNORED or name.endswith(AROUND)]
    if layer.kv_layer is not None:  # of which files may have keys and values anyway
        lent = (*names.separate[1:3], names.norms[1], "v_norm")
        used += [name for name in own if name.startswith(lent)]
    found = {}
    for wanted in _wanted(layer, names):
        name, shape = prefix + wanted.name, wanted.shape(layer)
        if wanted.name not in own:
            raise ValueError(f"weights lack {name!r}, the layer's {wanted}")
        used.append(wanted.name)
        array = state[own[wanted.name]]
        array = array.T if names.transposed and array.ndim == 2 else array
        if tuple(array.shape) != shape:
            raise ValueError(
                f"{name!r} must give {wanted} of shape {shape}, got {tuple(array.shape)}"
            )
        found |= wanted.cut(array, layer)
    refuse_left_over(prefix, set(own) - set(used), plan)
    return found


def arrays(plan, index, root):
    """The arrays that a checkpoint has for one layer of attention, where names begin with `root`.

    From each name they lead to the shape, `(rows, columns)` or `(rows)`, whether the array is kept
    transposed, and what tells the rows of each role, such as `query.weight`, from an array of all rows.
    """
    layer, names = plan.layers[index], NAMES[plan.model_type]
    prefix = root + names.place(plan, index)
    found = {}
    for wanted in _wanted(layer, names):
        shape, cut = wanted.shape(layer), partial(wanted.cut, layer=layer)
        found[prefix + wanted.name] = shape, names.transposed and len(shape) == 2, cut
    return found


@dataclass(frozen=True)
class Names:
    """How a model type names the weights of its attention.

    Args:
        module: the layer's module, with `{}` for its number.
        behind: the same of a decoder behind an encoder, whose layers are counted anew.
        roots: what may come before, the most specific first.
        separate: the names of the projections of queries, keys, values and output.
        fused: the name of one projection for queries, keys and values; None if each has its own.
        split: cuts the fused rows into queries, keys and values.
        norms: the names of the norms of queries and keys.
        gate: the name of the projection of gates; None if its rows are among those of queries.
        transposed: whether matrices are kept as `(d_in, d_out)`.
    """

    module: str = "layers.{}.self_attn."
    behind: str | None = None
    roots: tuple[str, ...] = (
        "model.language_model.",
        "language_model.model.",
        "model.",
        "",
    )
    separate: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj")
    fused: str | None = None
    split: Callable[[Any, Any], tuple[Any, Any, Any]] | None = None
    norms: tuple[str, str] = ("q_norm", "k_norm")
    gate: str | None = None
    transposed: bool = False

    def place(self, plan, index):
        """The layer's module, by its number in its stack."""
        stack = plan.layers[min(index, len(plan.layers) - 1)]
        decodes = self.behind is not None and stack.causal
        pattern = self.behind if decodes else self.module
        return pattern.format(index - first_of(plan, stack.index) * decodes)


@dataclass(frozen=True)
class Wanted:
    """An array to look for, the roles whose rows it has, and what cuts these apart if there are several."""

    name: str
    roles: tuple[str, ...]
    split: Callable[[Any, Any], tuple[Any, ...]] | None = None

    def __str__(self):
        return " and ".join(self.roles)

    def shape(self, layer):
        """Of the whole array."""
        shapes = [_shape(role, layer) for role in self.roles]
        return (sum(rows for rows, *_ in shapes), *shapes[0][1:])

    def cut(self, array, layer):
        """What is made of it, by role."""
        pieces = [array] if self.split is None else self.split(array, layer)
        found = dict(zip(self.roles, pieces, strict=True))
        both = layer.shares_values and self.roles[0].startswith("key.")
        return found | {f"value{r[3:]}": x for r, x in found.items() if both}


def first_of(plan, index):
    """The number of the first layer of a layer's stack, encoder or decoder."""
    causal = plan.layers[index].causal
    return next(layer.index for layer in plan.layers if layer.causal == causal)


def arrays_of(state, names, plan, index):
    """What the names of the layer's weights begin with, and these names by how they go on."""
    tried = [root + names.place(plan, index) for root in names.roots]
    for prefix in tried:
        own = {key.removeprefix(prefix): key for key in state if key.startswith(prefix)}
        if own:
            return prefix, own
    raise ValueError(
        f"weights have no layer {index}: no name begins with " + " or ".join(tried)
    )


def learned(layer, plan, state):
    """The layer, whose frequencies are multiplied by what a model's weights hold for them, if they do."""
    if state is None or layer.rope is None or not layer.rope.learned:
        return layer
    prefix = arrays_of(state, LLAMA, plan, layer.index)[0]
    name = prefix.removesuffix(LLAMA.place(plan, layer.index)) + "rotary_emb.alpha"
    shape = (len(layer.rope.frequencies),)
    if name not in state or tuple(state[name].shape) != shape:
        raise ValueError(
            f"weights must have {name!r}, factors of frequencies, of shape {shape}"
        )
    pairs = zip(layer.rope.frequencies, state[name].tolist(), strict=True)
    frequencies = tuple(speed * math.exp(alpha) for speed, alpha in pairs)
    return replace(layer, rope=replace(layer.rope, frequencies=frequencies))


def refuse_left_over(prefix, left, plan):
    """Refuse weights of a layer that nothing was made of."""
    if left:
        raise ValueError(
            f"weights have {prefix + min(left)!r}, which a layer of {plan.model_type!r} with this"
            f" configuration does not use"
        )


def _wanted(layer, names):
    """The arrays of a layer."""
    parts = []
    offsets = dict(zip(ROLES, (*layer.use_bias, layer.use_output_bias), strict=True))
    own = dict(zip(ROLES, names.separate, strict=True))
    lent = ("key", "value") if layer.kv_layer is not None else ()
    for role in {*lent, *["value"] * layer.shares_values}:
        del own[role]
    if layer.gate and names.gate is not None:
        own["gate"] = names.gate
        offsets["gate"] = False
    if names.fused is not None:
        for role in ROLES[:3]:
            del own[role]
        for kind in ("weight", "bias") if layer.use_bias[0] else ("weight",):
            roles = tuple(f"{role}.{kind}" for role in ROLES[:3])
            parts.append(Wanted(f"{names.fused}.{kind}", roles, names.split))
    for role, name in own.items():
        for kind in ("weight", "bias") if offsets[role] else ("weight",):
            gated = layer.gate and names.gate is None and role == "query"
            roles = tuple(f"{one}.{kind}" for one in (role, "gate")[: 1 + gated])
            parts.append(Wanted(f"{name}.{kind}", roles, in_pairs if gated else None))
    for role, name in zip(ROLES[:3], (*names.norms, "v_norm"), strict=True):
        norm = getattr(layer, f"{role}_norm")
        if norm is not None and norm.learned and role not in lent:
            for kind in ("weight", "bias") if norm.offset else ("weight",):
                parts.append(Wanted(f"{name}.{kind}", (f"{role}_norm.{kind}",)))
    if isinstance(layer.bias, Buckets):
        parts.append(Wanted(TABLE, ("bias.table",)))
    for part, name in INDEXERS[layer.indexer.pooled].items() if layer.indexer else ():
        roles = tuple(f"indexer.{role}.weight" for role in part.split())
        split = queries_first if len(roles) > 1 else None
        parts.append(Wanted(f"indexer.{name}.weight", roles, split))
    return parts + [Wanted("sinks", ("sinks",))] * layer.sinks


def queries_first(array, layer):
    """An indexer's queries, then its key."""
    rows = layer.indexer.num_heads * layer.indexer.head_dim
    return array[:rows], array[rows:]


def in_pairs(array, layer):
    """Each head's rows are those of its query and then those of its gate."""
    heads = array.reshape(layer.num_heads, 2, layer.head_dim, *array.shape[1:])
    return tuple(heads[:, i].reshape(-1, *array.shape[1:]) for i in (0, 1))


def stacked(array, layer):
    """All queries, then all keys, then all values."""
    q, k = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    return array[:q], array[q : q + k], array[q + k :]


def grouped(array, layer):
    """Group by group: the queries that share a key, that key, and its value."""
    few, width = layer.num_kv_heads, layer.head_dim
    many = layer.num_heads // few
    groups = array.reshape(few, many + 2, width, *array.shape[1:])
    return (
        groups[:, :many].reshape(few * many * width, *array.shape[1:]),
        groups[:, many].reshape(few * width, *array.shape[1:]),
        groups[:, many + 1].reshape(few * width, *array.shape[1:]),
    )


def fourfold(array, layer):
    """In four parts, one for each accelerator that CodeGen was trained on: queries, values, keys."""
    parts = array.reshape(4, 3, -1, *array.shape[1:])
    return tuple(parts[:, i].reshape(-1, *array.shape[1:]) for i in (0, 2, 1))


def _shape(role, layer):
    """Of an array of a role."""
    part, _, kind = role.partition(".")
    many, few = (n * layer.head_dim for n in (layer.num_heads, layer.num_kv_heads))
    rows = {"query": many, "gate": many, "key": few, "value": few, "output": layer.dim}
    if part == "sinks":
        return (layer.num_heads,)
    if part == "indexer":
        width = layer.indexer.head_dim
        rows = width * (layer.indexer.num_heads if "query" in kind else 1)
        return (width,) if "norm" in kind else (rows, layer.dim)
    if part == "bias":
        return layer.bias.count, layer.num_heads
    if part.endswith("_norm"):
        heads = layer.num_heads if part == "query_norm" else layer.num_kv_heads
        axes = getattr(layer, part).axes
        each = {"head": (layer.head_dim,), "heads": (heads, layer.head_dim)}
        return each.get(axes, (heads * layer.head_dim,))
    columns = many if part == "output" else layer.dim
    return (rows[part],) if kind == "bias" else (rows[part], columns)


SPLITS = {"stacked": stacked, "grouped": grouped, "fourfold": fourfold, None: None}
NAMES = {
    family: Names(**{**given, "split": SPLITS[given.get("split")]})
    for families, given in data("weights.json").items()
    for family in families.split()
}
NAMES |= {name: NAMES[other] for name, other in data("same.json").items()}
LLAMA = NAMES["llama"]
