"""Layers with the delta rule in a configuration: which arrays of a whole model are their weights."""

from dataclasses import replace

from posattn import contract
from posattn.configs.data import data
from posattn.configs.weights import LLAMA, arrays_of, refuse_left_over

FAMILIES = "Qwen3-Next, Qwen3.5, Kimi Linear, OLMo hybrid and GLM-5-Next"
MATRICES = {
    name: told for names, told in data("deltas.json").items() for name in names.split()
}
CONVOLVED = tuple(f"{part}_conv1d.weight" for part in "qkv")  # of older checkpoints


def as_delta(layer):
    """The sizes of a layer with the delta rule, or a ValueError."""
    if layer.delta is None:
        raise ValueError(
            f"layer {layer.index} must be one with the delta rule, got {layer.kind!r}; "
            f"DeltaAttention builds those of {FAMILIES}"
        )
    return layer.delta


def delta_weights(state, plan, index):
    """The weights of one layer with the delta rule, out of those of a whole model.

    Matrices are as :class:`torch.nn.Linear` keeps them: `query.weight`, `key.weight` and so on, with
    `decay_down.weight` and `gate_down.weight` where these go through fewer entries.
    `taps` is a list of arrays, for queries, keys and values in their order, whose rows belong together;
    `decay_offset`, `decay_rate` and `norm_weight` are vectors.
    A ValueError names what is missing, left over or of a wrong shape.
    """
    family, delta = plan.model_type, plan.layers[index].delta
    if family not in MATRICES:
        raise ValueError(
            f"weights of model_type {family!r} have unknown names; known are {FAMILIES}"
        )
    part = "self_attn" if delta.per_channel else "linear_attn"
    names = replace(LLAMA, module=f"layers.{{}}.{part}.")
    prefix, own = arrays_of(state, names, plan, index)
    shapes = _shapes(plan.layers[index].dim, delta)

    def taken(name, shape):
        """An array of theirs, whose axes of size 1 don't count."""
        name = name if name in own else name.removeprefix("forget_gate.")
        if name not in own:
            raise ValueError(f"weights lack {prefix + name!r}")
        array = state[own.pop(name)]
        found = tuple(array.shape)
        if tuple(n for n in found if n != 1) != tuple(n for n in shape if n != 1):
            raise ValueError(f"{prefix + name!r} must have shape {shape}, got {found}")
        return array.reshape(shape)

    found = {
        f"{role}.weight": taken(f"{name}.weight", shapes[role])
        for role, name in MATRICES[family].items()
    }
    sizes = [shapes[role][0] for role in ("query", "key", "value")]
    if family == "qwen3_next":
        found |= _by_key_head(taken, delta, shapes)
    elif family.startswith("qwen"):
        rows = taken("in_proj_qkv.weight", (sum(sizes), shapes["query"][1]))
        found |= _cut(rows, ("query", "key", "value"), sizes)
    if CONVOLVED[0] in own:
        pairs = zip(CONVOLVED, sizes, strict=True)
        found["taps"] = [taken(name, (size, delta.taps)) for name, size in pairs]
    else:
        found["taps"] = [taken("conv1d.weight", (sum(sizes), delta.taps))]
    gate = "forget_gate." * delta.per_channel
    found["decay_offset"] = taken(f"{gate}dt_bias", shapes["decay"][:1])
    found["decay_rate"] = taken(f"{gate}A_log", (delta.num_heads,))
    norm = "norm" if family.startswith("qwen") else "o_norm"
    found["norm_weight"] = taken(f"{norm}.weight", (delta.value_dim,))
    refuse_left_over(prefix, set(own), plan)
    return found


def _shapes(dim, delta):
    """The rows and columns of each matrix, by its role."""
    heads = delta.num_heads, delta.num_key_heads, delta.key_dim, delta.value_dim
    sizes = contract.delta_sizes(dim, *heads, delta.taps, delta.per_channel, delta.rank)
    return {role: (outputs, inputs) for role, (inputs, outputs) in sizes.matrices.items()}


def _cut(rows, roles, sizes):
    """Rows of several roles, one after the other."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return {
        f"{role}.weight": rows[end - size : end]
        for role, size, end in zip(roles, sizes, ends, strict=True)
    }


def _by_key_head(taken, delta, shapes):
    """Qwen3-Next's rows: of each key head its query, key, values and gates; and its betas and decays."""
    dim, heads = shapes["query"][1], delta.num_key_heads
    groups = delta.num_heads // heads
    each = groups * delta.value_dim
    found = {}
    wide = ("query", "key", "value", "gate"), [delta.key_dim] * 2 + [each] * 2
    narrow = ("beta", "decay"), [groups] * 2
    for name, (roles, sizes) in {"in_proj_qkvz": wide, "in_proj_ba": narrow}.items():
        rows = taken(f"{name}.weight", (heads * sum(sizes), dim))
        rows = rows.reshape(heads, sum(sizes), dim).swapaxes(0, 1)
        for role, part in _cut(rows, roles, sizes).items():
            found[role] = part.swapaxes(0, 1).reshape(-1, dim)
    return found
