"""Keys and values from a latent vector, with an indexer or compressed keys: DeepSeek and what follows it."""

import math
from dataclasses import replace

from posattn.configs.families import rotary, stack
from posattn.configs.indexers import Indexer
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Latent, Norm

INDEXED = "indexed_attention"
COMPRESSED = {
    0: "sliding_attention",
    4: "compressed_sparse_attention",
    128: "heavily_compressed_attention",
}


def latent(
    keys, *, ranked=None, interleaved=True, turns=True, eps=1e-6, named=True, raw=False
):
    """A layer of latent attention, whose last entries rotate.

    Args:
        keys: of the configuration.
        ranked: None if queries may do without a latent vector, `REQUIRED` if not.
        interleaved: whether neighbors rotate, not halves, or the key that may say that these do.
        turns: whether anything does.
        eps: of the norms of latent vectors.
        named: whether `head_dim` and `partial_rotary_factor` are of what rotates.
        raw: whether queries are made from their latent vector before its norm, too.
    """
    if isinstance(interleaved, str):
        interleaved = keys.flag(interleaved, absent=True)
    rank = keys.count("q_lora_rank", null=ranked, most=2**16)
    if rank is REQUIRED:
        raise keys.missing("q_lora_rank")
    widths = Latent(
        query_rank=rank,
        kv_rank=keys.count("kv_lora_rank", most=2**16),
        content_dim=keys.count("qk_nope_head_dim", most=2**16),
        rotary_dim=keys.count("qk_rope_head_dim", least=int(turns), most=2**16),
        value_dim=keys.count("v_head_dim", most=2**16),
        eps=eps,
        raw=raw,
    )
    width = widths.content_dim + widths.rotary_dim
    keys.only("qk_head_dim", width)
    if not named:
        name, found = rotary.section_of(keys)
        found["partial_rotary_factor"] = None
        keys = keys.without("head_dim", "partial_rotary_factor").changed(**{name: found})
    keys.only("head_dim", widths.rotary_dim)
    layer = stack.plain(keys, head_dim=False, each=width)
    if layer.num_kv_heads != layer.num_heads:
        raise keys.error(
            f"num_key_value_heads = {layer.num_kv_heads} must be num_attention_heads = "
            f"{layer.num_heads}, since each head makes its keys from the latent vector"
        )
    bias = keys.flag("attention_bias", absent=False)
    layer = replace(
        layer,
        latent=widths,
        use_bias=(bias and rank is not None, bias, bias),
        use_output_bias=bias,
    )
    if not turns:
        return layer
    layout = "interleaved" if interleaved else "half"
    rope = replace(rotary.rotation(keys, widths.rotary_dim, layout=layout), last=True)
    return replace(layer, rope=rope, scale=layer.scale * sharpened(keys, rope) ** 2)


def sharpened(keys, rope):
    """The factor by which queries grow with the length that YaRN makes room for, and keys likewise."""
    numbers = dict(rope.numbers)
    if not numbers.get("mscale_all_dim"):
        return 1.0
    if numbers.get("factor") is None:
        raise keys.missing("factor", why=" beside mscale_all_dim")
    return 0.1 * numbers["mscale_all_dim"] * math.log(max(numbers["factor"], 1)) + 1


def indexed(keys, layer, sharing=None, **options):
    """A stack in which an indexer chooses keys, or in some layers the one before.

    Args:
        keys: of the configuration.
        layer: what all have in common.
        sharing: for `shared_choices`; None if each layer has an indexer.
        options: for `Indexer`.
    """
    indexer = Indexer(*of_indexer(keys), **options)
    layer = replace(layer, selected=keys.count("index_topk"))
    shares = (lambda place: False) if sharing is None else shared_choices(keys, sharing)
    stack.kinds(keys, lambda place: INDEXED, among=(INDEXED, "deepseek_sparse_attention"))
    made = {shared: replace(indexer, shared=shared) for shared in (False, True)}
    return stack.stacked(keys, lambda place: replace(layer, indexer=made[shares(place)]))


def mistral_large4(keys):
    """Mistral Large 4: as GLM-5, with learned temperatures and frequencies, and layers without position."""
    keys.ignore("head_dim", "q_lora_rank", "indexer_rope_interleave")
    keys = keys.without("head_dim").changed(q_lora_rank=None)
    layer = latent(keys, eps=keys.number("rms_norm_eps"))
    layer = replace(layer, selected=keys.count("index_topk"))
    widths = replace(layer.latent, temperature=True)
    whole = replace(widths, content_dim=layer.head_dim, rotary_dim=0)
    turned = replace(layer.rope, learned=True)
    index = Indexer(*of_indexer(keys), "interleaved", input_norm=True, temperature=True)
    still = replace(index, layout=None)
    kinds = (
        replace(layer, latent=whole, rope=None, indexer=still),
        replace(layer, latent=widths, rope=turned, indexer=index),
    )
    count = keys.count("num_hidden_layers", most=10_000)
    every = keys.count("no_rope_layer_interval", absent=4)
    absent = [int((place + 1) % every > 0) for place in range(count)]
    turns = keys.sequence("no_rope_layers", absent=absent, among=(0, 1))
    if len(turns) < count:
        raise keys.error(f"no_rope_layers must hold {count} entries, got {len(turns)}")
    own = sources(keys, turns, count)
    shares = shared_choices(keys)
    stack.kinds(keys, lambda place: INDEXED, among=(INDEXED,))

    def made(place):
        layer = kinds[turns[place]]
        index = replace(layer.indexer, shared=shares(place))
        return replace(layer, indexer=index, kv_layer=own[place])

    return stack.stacked(keys, made)


def sources(keys, turns, count):
    """Whose keys each layer uses, None if its own: of its kind, the last before whose keys others use."""
    own = keys.sequence("kv_source_layers", length=count, absent=[*range(count)])
    used = {x for place, x in enumerate(own) if type(x) is int and x != place}
    last = {}
    for place, source in enumerate(own):
        kind = turns[place]
        if type(source) is not int or source not in (place, last.get(kind)):
            raise keys.error(
                f"kv_source_layers[{place}] must be {place} or {last.get(kind)}, the last layer of its kind "
                f"whose keys others use, got {source!r:.80}"
            )
        if source == place and place in used:
            last[kind] = place
    return [None if source == place else source for place, source in enumerate(own)]


def shared_choices(keys, usual=0):
    """Which layers take the choice of a layer before: listed, by a pattern of letters, or every so often.

    `usual` is how often a layer behind the first has an indexer if no key says it; 0 if keys do.
    """
    keys.ignore("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
    kinds = keys.sequence("indexer_types", absent=None)
    pattern = keys.values.get("index_topk_pattern")
    if kinds is None and pattern is not None:
        kinds = [{"F": "full", "S": "shared"}.get(kind, kind) for kind in pattern]
    count = keys.count("num_hidden_layers", most=10_000)
    if kinds is None and usual:
        return lambda place: place > 0 and (place - 1) % usual > 0
    if kinds is None:
        step = keys.count("index_topk_freq", least=0, absent=1)
        first = keys.count("index_skip_topk_offset", least=0, absent=2)
        return lambda place: max(place - first + 1, 0) % max(step, 1) > 0
    if len(kinds) != count or kinds[0] != "full" or set(kinds) - {"full", "shared"}:
        raise keys.error(
            f"indexer_types must hold 'full' or 'shared' for each of {count} layers, and begin with "
            f"'full', got {kinds!r:.80}"
        )
    return lambda place: kinds[place] == "shared"


def of_indexer(keys):
    """How many heads an indexer has, and how wide they are."""
    return [keys.count(name, most=2**16) for name in ("index_n_heads", "index_head_dim")]


def deepseek_v4(keys):
    """DeepSeek V4: a window and compressed keys; keys are values, so the output is rotated back."""
    layer = stack.plain(keys)
    keys.only("num_key_value_heads", 1)
    keys.only("attention_bias", False)
    eps = keys.number("rms_norm_eps")
    keys.ignore("o_groups", "hc_sinkhorn_iters")
    layer = replace(
        layer,
        kind="sliding",
        window=keys.count("sliding_window", most=2**62),
        sinks=True,
        shares_values=True,
        turns_back=True,
        query_norm=Norm("rms", eps, learned=False),
        key_norm=Norm("rms", eps),
        ranks=(("query", keys.count("q_lora_rank")), ("output", keys.count("o_lora_rank"))),
    )
    of_indexer(keys)
    chosen = keys.count("index_topk")
    rates = rates_of_v4(keys)
    ropes = {main: turning_of_v4(keys, layer.head_dim, main) for main in (True, False)}
    return stack.stacked(
        keys,
        lambda place: replace(
            layer,
            rope=ropes[rates[place] == 0],
            compressed=rates[place] or None,
            selected=chosen if rates[place] == 4 else None,
        ),
    )


def rates_of_v4(keys):
    """How many positions each layer makes a key of, or 0: named by kinds, or as numbers in the older form."""
    count = keys.count("num_hidden_layers", most=10_000)
    given = keys.sequence("compress_ratios", absent=None, among=tuple(COMPRESSED))
    if given is not None:
        if len(given) < count:
            raise keys.error(
                f"compress_ratios must hold {count} entries or more, got {len(given)}"
            )
        return given[:count]  # the rest is of layers that predict further tokens
    kind = stack.kinds(keys, among=tuple(COMPRESSED.values()))
    rates = keys.section("compress_rates") or {}
    for rate, name in COMPRESSED.items():
        if rate and rates.get(name, rate) != rate:
            raise keys.error(
                f"compress_rates[{name!r}] is known only as {rate}, got {rates[name]!r}"
            )
    numbers = {name: rate for rate, name in COMPRESSED.items()}
    return [numbers[name] for name in kind]


def turning_of_v4(keys, head_dim, window_only):
    """The rotation of layers with a window only, or of those with compressed keys, which YaRN scales."""
    kind = "main" if window_only else "compress"
    base = ("rope_theta",) if window_only else ("compress_rope_theta",)
    turns = keys.count("qk_rope_head_dim", absent=None, most=2**16)
    share = keys.number("partial_rotary_factor", absent=None)
    if turns is None and share is None:
        raise keys.missing("qk_rope_head_dim", "partial_rotary_factor")
    if turns is not None and share is not None and turns != int(head_dim * share):
        raise keys.clash(qk_rope_head_dim=turns, partial_rotary_factor=share)
    options = {"base": base, "layout": "interleaved"}
    if "main" in (keys.values.get("rope_parameters") or {}):
        rope = rotary.rotation(keys, head_dim, kind=kind, partial=True, **options)
        return replace(rope, last=True)
    older = keys.without("partial_rotary_factor")
    if apart := dict(keys.section("compress_rope_parameters") or {}):
        apart.pop("partial_rotary_factor", None)
        older = older.without("rope_scaling").changed(rope_parameters=apart)
    if window_only:
        older = older.without("rope_scaling", "rope_parameters")
    name, told = rotary.section_of(older)
    if "yarn" in (told.get("type"), told.get("rope_type")):
        told.setdefault("attention_factor", 1.0)  # which DeepSeek leaves out
        older = older.changed(**{name: told})
    rope = rotary.rotation(older, turns or int(head_dim * share), **options)
    return replace(rope, last=True)


FAMILIES = {
    "deepseek_ref": deepseek_v4,
    "deepseek_v4": deepseek_v4,
    "mistral_large4_text": mistral_large4,
}
