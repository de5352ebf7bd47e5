"""Layers with the delta rule in a configuration: which arrays of a whole model are their weights."""

from posattn import contract
from posattn.configs.weights import LLAMA, refuse_left_over

__all__ = ["as_delta", "delta_weights"]

FAMILIES = "Qwen3-Next, Qwen3.5, Kimi Linear, OLMo hybrid and GLM-5-Next"
QWEN = {
    "decay": "in_proj_a",
    "beta": "in_proj_b",
    "gate": "in_proj_z",
    "output": "out_proj",
}
OLMO = {
    **{role: f"{role[0]}_proj" for role in ("query", "key", "value", "output", "gate")},
    **{"decay": "a_proj", "beta": "b_proj"},
}
KIMI = {
    **{role: f"{role[0]}_proj" for role in ("query", "key", "value", "output")},
    **{"decay_down": "forget_gate.f_a_proj", "decay": "forget_gate.f_b_proj"},
    **{"gate_down": "g_a_proj", "gate": "g_b_proj", "beta": "b_proj"},
}
MATRICES = {
    "qwen3_next": {"output": "out_proj"},
    "qwen3_5_text": QWEN,
    "qwen3_5_moe_text": QWEN,
    "olmo_hybrid": OLMO,
    "kimi_linear": KIMI,
    "glm5_next_text": KIMI,
}
MODULES = dict.fromkeys(("kimi_linear", "glm5_next_text"), "layers.{}.self_attn.")
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
    place = MODULES.get(family, "layers.{}.linear_attn.").format(index)
    tried = [root + place for root in LLAMA.roots]
    prefix = next((p for p in tried if any(name.startswith(p) for name in state)), None)
    if prefix is None:
        tried = " or ".join(tried)
        raise ValueError(f"weights have no layer {index}: no name begins with {tried}")
    own = {name[len(prefix) :]: name for name in state if name.startswith(prefix)}
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

    names = MATRICES[family]
    found = {
        f"{role}.weight": taken(f"{n}.weight", shapes[role]) for role, n in names.items()
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
    widths = [delta.key_dim] * 2 + [each] * 2
    for name, roles, sizes in (
        ("in_proj_qkvz", ("query", "key", "value", "gate"), widths),
        ("in_proj_ba", ("beta", "decay"), [groups] * 2),
    ):
        rows = taken(f"{name}.weight", (heads * sum(sizes), dim))
        rows = rows.reshape(heads, sum(sizes), dim).swapaxes(0, 1)
        for role, part in _cut(rows, roles, sizes).items():
            found[role] = part.swapaxes(0, 1).reshape(-1, dim)
    return found
