"""Mixtures of experts: how a router picks a few of many networks, and where their weights are."""

from dataclasses import dataclass, replace

COUNT = ("num_local_experts", "num_experts", "n_routed_experts")
# the second is Kimi's, as further ones below
CHOSEN = "num_experts_per_tok", "num_experts_per_token", "top_k_experts"
VECTORS = "correction", "counts"  # that are no weights of a part


@dataclass(frozen=True)
class Mixture:
    """The mixtures of a decoder, as its configuration describes them.

    Args:
        count: how many experts a layer has.
        chosen: how many of them each token passes.
        hidden_dim: the width within an expert.
        score: `"softmax"` or `"sigmoid"`.
        normalized: whether the scores of those chosen are divided by their sum.
        scale: a factor on them.
        groups: how many groups the experts are in.
        kept_groups: how many of these a token chooses from.
        corrected: whether a number of each expert is added to its score, but only to choose.
        shared_dim: the width within a network that every token passes; None if there is none.
        shared_gated: whether a sigmoid for each token says how much that network counts.
        use_bias: whether the router and the experts have offsets.
        limit: the bound on what an expert multiplies, as in gpt-oss, or None.
        inward: whether what an expert reads is multiplied by its score, as in Llama 4, not what it says.
        layers: the numbers of the layers that have a mixture; the others have one network.
        beside: in Gemma 4, where the network that every token passes and the experts have norms of their
            own, and those and the router read the stream itself: the number in these norms; None elsewhere.
    """

    count: int
    chosen: int
    hidden_dim: int
    score: str = "softmax"
    normalized: bool = True
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    corrected: bool = False
    shared_dim: int | None = None
    shared_gated: bool = False
    use_bias: bool = False
    limit: float | None = None
    inward: bool = False
    layers: frozenset[int] = frozenset()
    beside: float | None = None


def mixture(keys, told, hidden_dim, num_layers):
    """Read the mixtures of a family, `hidden_dim` wide within where no key says another width."""
    width = keys.own(keys.count, "moe_intermediate_size", hidden_dim)
    if "hidden" in told:
        width = keys.count(told["hidden"])
    shared = keys.own(keys.count, "shared_expert_intermediate_size", None)
    several = keys.own(
        keys.count, "n_shared_experts", told.get("several"), "num_shared_experts"
    )
    keys.only("swiglu_alpha", 1.702)
    normalized = told.get("normalized", True)
    found = Mixture(
        count=keys.count(*COUNT),
        chosen=keys.count(*CHOSEN),
        hidden_dim=width,
        score=told.get("score", "softmax"),
        normalized=keys.own(keys.flag, "norm_topk_prob", normalized, "moe_renormalize"),
        scale=keys.own(keys.number, "routed_scaling_factor", 1.0),
        groups=keys.own(keys.count, "n_group", 1, "num_expert_group"),
        kept_groups=keys.own(keys.count, "topk_group", 1),
        corrected="correction" in told["names"],
        shared_dim=several * width if several else shared,
        shared_gated="shared_gate" in told["names"],
        use_bias=told.get("use_bias", False),
        limit=keys.own(keys.number, "swiglu_limit", None),
        inward=told.get("inward", False),
        layers=layers_of(keys, told, num_layers),
    )
    if told.get("beside"):
        keys.only("use_double_wide_mlp", False)
        eps = keys.number("rms_norm_eps")
        found = replace(found, shared_dim=hidden_dim, beside=eps)
    each, rest = divmod(found.count, found.groups)
    kept = min(found.kept_groups, found.groups)
    if rest or (found.groups > 1 and each < 2) or found.chosen > kept * each:
        raise keys.error(
            f"num_experts_per_tok = {found.chosen} cannot be chosen from {found.kept_groups} of "
            f"{found.groups} groups of {found.count} experts"
        )
    return found


def layers_of(keys, told, num_layers):
    """The numbers of the layers that have a mixture: listed, or all from one on but for some."""
    listed = keys.own(keys.sequence, "moe_layers", None, absent=None)
    kinds = keys.own(keys.sequence, "mlp_layer_types", None, absent=None)
    if kinds is not None:
        listed = [index for index, kind in enumerate(kinds) if kind == "sparse"]
    if listed is not None:
        return frozenset(listed)
    first = keys.own(keys.count, "first_k_dense_replace", 0, least=0)
    if "dense" in told:
        first = keys.count("first_k_dense_replace", absent=told["dense"], least=0)
    step = keys.own(keys.count, "decoder_sparse_step", 1)
    step = keys.own(keys.count, "interleave_moe_layer_step", step)
    dense = keys.own(keys.sequence, "mlp_only_layers", [], absent=[])
    return frozenset(
        index
        for index in range(first, num_layers)
        if (index + 1) % step == 0 and index not in dense
    )


def places(state, told, count, prefix, source):
    """Where each array of a layer comes from, a `source` by names of ours such as `experts.0.up.weight`."""
    made = {}
    for part, given in told["names"].items():
        named = [(one,) if isinstance(one, str) else one for one in given]
        here = [one for one in named if prefix + one[0].format(0) in state]
        name, *half = (here or named)[0]
        several = part.startswith("experts.")
        options = {"half": half[0] if half else None}
        for index in range(count if several else 1):
            ours, full = part.replace("experts.", f"experts.{index}."), name.format(index)
            if several and "{}" not in name:
                options |= {"index": index, **told.get("stacked", {})}
            found = source(prefix + full, **options)
            made[ours if part in VECTORS else f"{ours}.weight"] = found
            if told.get("use_bias") and not part.startswith("shared"):
                bias = full.removesuffix(".weight")
                bias += "_bias" if bias == full else ".bias"
                made[f"{ours}.bias"] = replace(found, name=prefix + bias)
    return made
