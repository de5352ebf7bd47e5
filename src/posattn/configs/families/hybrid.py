"""Hybrids that a row of told.json cannot say, and Inkling, which adds profiles to the scores."""

import math
from dataclasses import replace

from posattn.configs.defaults import origin_of
from posattn.configs.families import rotary, stack
from posattn.configs.families.deepseek import INDEXED, latent, of_indexer, shared_choices
from posattn.configs.families.stack import FULL, LINEAR, RMS, SLIDING, layer_of, norm_of
from posattn.configs.indexers import Indexer
from posattn.configs.keys import REQUIRED, Keys
from posattn.configs.layers import Profiles, Temperature
from posattn.configs.recurrent import Delta

NEAR, FAR = "hybrid_sliding", "hybrid"
SPARSE = "minimax_m3_sparse"
LINEAR_KEYS = {  # of a section, and without it
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
    "gate_lower_bound": "linear_lower_bound",
}
KIMI = list(LINEAR_KEYS.values())[:3]


def kimi_delta(keys, bound=None):
    """The sizes of a layer with Kimi's delta rule."""
    heads, width, taps = (keys.count(name, most=2**16) for name in KIMI)
    return Delta(
        heads,
        heads,
        width,
        width,
        taps,
        per_channel=True,
        rank=width,
        gate="sigmoid",
        eps=keys.number("rms_norm_eps"),
        bound=bound,
    )


def kimi_linear(keys):
    """Kimi Linear and K3: one layer in four attends, with latent vectors and no position."""
    older = keys.section("linear_attn_config") or {}
    told = keys.changed(**{LINEAR_KEYS.get(name, name): x for name, x in older.items()})
    count = keys.count("num_hidden_layers", most=10_000)
    attend = told.sequence("full_attn_layers", absent=list(range(5, count + 1, 4)))
    keys.known(mla_use_nope=True)
    keys.ignore("head_dim", "rope_theta", "rope_parameters")
    if "rope_theta" in keys.values:
        keys.notes += (f"rope_theta = {keys.values['rope_theta']}, as nothing rotates",)
    gate = keys.flag("mla_use_output_gate", absent=False)
    more = older.keys() - LINEAR_KEYS.keys() - {"full_attn_layers", "kda_layers"}
    known = not more and "gate_lower_bound" not in older  # K3 has these, too
    delta = kimi_delta(told) if known and told.values.keys() >= {*KIMI} else None
    layer = latent(keys.without("head_dim"), turns=False)
    layers = {
        FULL: replace(layer, told=gate * "gated output"),
        LINEAR: replace(layer, kind="Kimi delta attention", delta=delta),
    }
    pattern = lambda place: FULL if place + 1 in attend else LINEAR  # noqa: E731
    return stack.by_kind(keys, layers, pattern=pattern)


def glm5_next(keys):
    """GLM-5-Next: one layer in four attends to blocks of keys that an indexer chooses, without position."""
    keys.ignore("head_dim")
    older = keys.section("linear_attn_config") or {}
    told = {name: older[old] for old, name in LINEAR_KEYS.items() if old in older}
    keys = keys.without("head_dim").changed(**told)
    eps = keys.number("rms_norm_eps")
    layer = latent(keys, ranked=REQUIRED, turns=False, eps=eps)
    keys.known(qk_rope_head_dim=0, index_kpool_always_select_tail=True)
    size, count = keys.count("index_kpool"), keys.count("index_topk")
    if count % size:
        raise keys.error(f"index_topk = {count} must be a multiple of index_kpool = {size}")
    bound = keys.number("linear_lower_bound", null=None, above=-math.inf)
    if bound is None and older and older.get("safe_gate", True):
        bound = -5.0
    delta = kimi_delta(keys, bound=bound)
    index = Indexer(*of_indexer(keys), layout=None, pooled="gated")
    kinds = stack.kinds(keys, stack.all_but(4, LINEAR), among=(FULL, LINEAR, INDEXED))
    shares = shared_choices(keys)

    def made(place):
        if kinds[place] == LINEAR:
            return replace(layer, kind="Kimi delta attention", delta=delta)
        own = replace(index, shared=shares(place))
        return replace(layer, indexer=own, selected=count, block=size)

    return stack.stacked(keys, made)


def olmo_hybrid(keys):
    """OLMo hybrid: one layer in four attends, with norms over all heads and mostly without a rotation."""
    layer = layer_of(keys, head_dim=False, norm=RMS | {"axes": "width"})
    told = keys.values.get("rope_parameters") or {}
    turns = "rope_theta" in keys.values or told.get("rope_theta") is not None
    if not turns:
        keys.ignore("rope_parameters")
        keys.notes += (f"no base, for which {origin_of(keys.family)} puts 10000",)
    rope = rotary.rotation(keys, layer.head_dim) if turns else None
    many = {"absent": layer.num_heads, "null": layer.num_heads}
    key_heads = keys.count("linear_num_key_heads", **many)
    width = 3 * layer.dim // (4 * key_heads)
    width = keys.count("linear_key_head_dim", absent=width, null=width)
    delta = Delta(
        keys.count("linear_num_value_heads", **many),
        key_heads,
        width,
        keys.count("linear_value_head_dim", absent=2 * width, null=2 * width),
        keys.count("linear_conv_kernel_dim", absent=4, most=256),
        most=2.0 if keys.flag("linear_allow_neg_eigval", absent=True) else 1.0,
        eps=1e-5,  # whatever rms_norm_eps is
    )
    layers = {
        FULL: replace(layer, rope=rope),
        LINEAR: replace(layer, kind="linear attention", delta=delta),
    }
    return stack.by_kind(keys, layers, pattern=stack.all_but(4, LINEAR))


def nemotron_nas(keys):
    """Llama-Nemotron: a search took the attention out of some layers, or changed its groups."""
    layer = layer_of(keys.without("num_key_value_heads"))
    layer = replace(layer, rope=rotary.rotation(keys, layer.head_dim))
    count = keys.count("num_hidden_layers", most=10_000)
    told = [block["attention"] for block in keys.sequence("block_configs", length=count)]

    def made(place):
        own = Keys(told[place], f"{keys.family}: block_configs[{place}]")
        if own.flag("no_op", absent=False) or own.flag("replace_with_linear", absent=False):
            return replace(layer, kind="no attention, a network")
        for name in ("sparsify", "window_length", "num_sink_tokens"):
            own.only(name)
        groups = layer.num_heads // own.count("n_heads_in_group")
        return stack.with_groups(keys, layer, groups)

    return stack.stacked(keys, made)


def inkling(keys):
    """Inkling: each query mixes profiles over the distance; keys and values are convolved."""
    norm = norm_of(keys, **RMS)
    keys.ignore("max_position_embeddings", "model_max_length")
    floor = keys.count("log_scaling_n_floor", null=None)
    scale = keys.number("log_scaling_alpha", absent=REQUIRED if floor else None)
    count = keys.count("d_rel", most=2**16)
    window = keys.count("sliding_window_size", "sliding_window")
    convolved = keys.count("conv_kernel_size", "sconv_kernel_size")

    def made(layer, extent):
        return replace(
            layer,
            scale=1 / layer.head_dim,
            query_norm=norm,
            key_norm=norm,
            bias=Profiles(count, extent),
            convolved=convolved,
        )

    far = made(stack.plain(keys), keys.count("rel_extent"))
    if floor is not None:
        far = replace(far, temperature=Temperature(floor, scale, smooth=True))
    sizes = "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim"
    heads, groups, each = (keys.count(name, most=2**16) for name in sizes)
    near = replace(stack.plain(keys), head_dim=each)
    near = stack.with_groups(keys, near, groups, "swa_num_key_value_heads", heads)
    near = made(near, window)
    near = stack.windowed(keys, near, SLIDING, window)
    local = keys.sequence("local_layer_ids", absent=None)
    pattern = None if local is None else lambda place: NEAR if place in local else FAR
    return stack.by_kind(keys, {NEAR: near, FAR: far}, pattern=pattern)


def minimax_m2(keys):
    """MiniMax-M2: norms over all heads at once; how many entries rotate may stand as `rotary_dim`."""
    layer = layer_of(keys, bias=False, norm=RMS | {"axes": "width"})
    keys.known(use_qk_norm=True, qk_norm_type="per_layer")
    keys.sequence("attn_type_list", absent=None, among=(1,))
    return stack.equal(keys, layer, rope=part_of(keys, layer))


def minimax_m3(keys):
    """MiniMax-M3: norms of each head; in most layers an indexer chooses blocks of keys."""
    keys.known(use_qk_norm=True, qk_norm_type="per_head", use_gemma_norm=True)
    keys.known(attention_output_gate=False)
    layer = layer_of(keys, bias=False, norm=RMS | {"plus_one": True})
    told = keys.values | (keys.values.get("rope_parameters") or {})
    if "partial_rotary_factor" in told or (
        keys.family == "minimax_m3" and "rotary_dim" in told
    ):
        rope = part_of(keys, layer)
    else:  # its class has a rotary_dim, and does not use it
        turns = keys.count("rotary_dim", absent=layer.head_dim)
        if turns != layer.head_dim:
            keys.notes += (f"rotary_dim = {turns}, as all {layer.head_dim} entries rotate",)
        rope = rotary.rotation(keys, layer.head_dim)
    layer = replace(layer, rope=rope)
    told = keys.section("sparse_attention_config") or {}
    both = keys.changed(**told)
    keys.only("index_local_blocks", 1)
    both.known(sparse_local_block=1, sparse_init_block=0, sparse_score_type="max")
    heads = both.count("sparse_num_index_heads", "index_n_heads", most=2**16)
    width = both.count("sparse_index_dim", "index_head_dim", most=2**16)
    index = Indexer(heads, width, pooled="max")
    block = both.count("sparse_block_size", "index_block_size")
    chosen = both.count("sparse_topk_blocks", "index_topk_blocks") * block
    sparse = replace(layer, selected=chosen, block=block, indexer=index)
    often = both.sequence("sparse_attention_freq", absent=None)
    pattern = lambda place: SPARSE if often and often[place] else FULL  # noqa: E731
    return stack.by_kind(keys, {FULL: layer, SPARSE: sparse}, pattern=pattern)


def part_of(keys, layer):
    """The rotation of a part of each head, which may stand as `rotary_dim`, a share, or both."""
    nested = keys.values.get("rope_parameters") or {}
    share = keys.values.get("partial_rotary_factor", nested.get("partial_rotary_factor"))
    absent = REQUIRED if share is None and not nested else None
    turns = keys.count("rotary_dim", absent=absent, most=2**16)
    if share is None:  # of which the class writes none where whole heads rotate
        return rotary.rotation(keys, turns or layer.head_dim)
    rope = rotary.rotation(keys, layer.head_dim, partial=REQUIRED)
    if turns not in (None, rope.rotary_dim):
        raise keys.clash(rotary_dim=turns, partial_rotary_factor=share)
    return rope


FAMILIES = {
    "glm5_next_text": glm5_next,
    "inkling_text": inkling,
    "kimi_linear": kimi_linear,
    "minimax_m2": minimax_m2,
    "minimax_m3": minimax_m3,
    "minimax_m3_vl_text": minimax_m3,
    "nemotron-nas": nemotron_nas,
    "olmo_hybrid": olmo_hybrid,
}
