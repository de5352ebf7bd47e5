"""Encoders, which see both directions, and models of an encoder with a decoder behind it."""

from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.families.stack import FULL, SLIDING
from posattn.configs.layers import Buckets, Disentangled
from posattn.configs.rotation import rope

__all__ = ["FAMILIES"]


def both(keys):
    """A layer of an encoder, or of a decoder if it says so."""
    layer = stack.alone(keys)
    return replace(layer, causal=keys.flag("is_decoder", absent=False))


def bert(keys):
    """BERT and those built like it: a learned table at the input."""
    layer = stack.offset(both(keys))
    keys.only("position_embedding_type", "absolute")
    rows = keys.count("max_position_embeddings")
    return stack.equal(keys, layer, table=("learned", rows))


def roformer(keys):
    """RoFormer: neighbors rotate, by a base that is no key."""
    layer = stack.offset(both(keys))
    keys.only("rotary_value", False)
    keys.ignore("max_position_embeddings")
    rotated = rope(
        {"rope_theta": 1e4}, layer.head_dim, layout="interleaved", family="roformer"
    )
    return stack.equal(keys, layer, rope=rotated)


def esm(keys):
    """ESM: a rotation, or a learned table."""
    layer = stack.offset(both(keys))
    kind = keys.choice("position_embedding_type", among=("rotary", "absolute"))
    rows = keys.count("max_position_embeddings")
    if kind == "absolute":
        keys.ignore("rope_theta")
        return stack.equal(keys, layer, table=("learned", rows))
    return stack.equal(keys, layer, rope=stack.rotation(keys, layer.head_dim))


def nomic_bert(keys):
    """Nomic BERT: halves rotate."""
    layer = replace(stack.plain(keys, grouped=False), causal=False)
    return stack.equal(keys, layer, rope=stack.rotation(keys, layer.head_dim))


def modernbert(keys):
    """ModernBERT: every third layer sees all, by a base of its own."""
    layer = stack.alone(keys)
    bias = keys.flag("attention_bias", absent=False)
    layer = stack.offset(replace(layer, causal=False), bias)
    window = keys.count("local_attention", most=2**62) // 2 + 1
    every = keys.count("global_attn_every_n_layers", absent=3)
    bases = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
    keys.ignore("decoder_bias", "max_position_embeddings")

    def rope(name):
        options = {"kind": stack.nested(keys, name), "base": (bases[name],)}
        return stack.rotation(keys, layer.head_dim, **options)

    pattern = lambda place: SLIDING if place % every else FULL  # noqa: E731
    return stack.patterned(keys, layer, pattern, rope, window)


def deberta(keys):
    """DeBERTa: terms of content and position in each layer."""
    return disentangled(keys, None, False, False)


def deberta_v2(keys):
    """DeBERTa v2 and v3: buckets of offsets, and projections that serve both."""
    count = keys.count("position_buckets", absent=None, least=-1)
    shares = keys.flag("share_att_key", absent=False)
    normed = keys.choice("norm_rel_ebd", among=("none", "layer_norm"), absent="none")
    keys.only("conv_kernel_size", 0)
    count = count if count and count > 0 else None
    return disentangled(keys, count, shares, normed == "layer_norm")


def disentangled(keys, count, shares, normed):
    """What the two have in common: the scale shrinks with the number of terms."""
    layer = replace(stack.offset(stack.alone(keys)), causal=False)
    longest = keys.count("max_position_embeddings")
    keys.only("talking_head", False)
    if keys.flag("position_biased_input"):
        layer = replace(layer, table=("learned", longest))
    if not keys.flag("relative_attention"):
        keys.ignore("max_relative_positions", "pos_att_type")
        return stack.equal(keys, layer)
    distance = keys.count("max_relative_positions", least=-1)
    _, terms = keys.take(["pos_att_type"])
    terms = terms.split("|") if isinstance(terms, str) else terms
    if not isinstance(terms, list) or not {"c2p", "p2c"}.issuperset(map(str, terms)):
        raise keys.error(f"pos_att_type must name c2p, p2c or both, got {terms!r}")
    bias = Disentangled(
        tuple(terms), longest if distance < 1 else distance, count, shares, normed
    )
    scale = (layer.head_dim * (1 + len(terms))) ** -0.5
    return stack.equal(keys, layer, bias=bias, scale=scale)


def two(keys, encoder, decoder, names):
    """The layers of an encoder and, behind them, those of its decoder."""
    first, second = (keys.count(name, most=10_000) for name in names)
    return behind(encoder, first, decoder, second)


def behind(encoder, first, decoder, second):
    """So many layers of each, numbered through."""
    layers = (*[encoder] * first, *[decoder] * second)
    return tuple(replace(layer, index=place) for place, layer in enumerate(layers))


def t5(keys):
    """T5 and mT5: buckets of offsets, a table for all layers of a stack, and scores that are not scaled."""
    keys.only("is_decoder", False)
    layer = stack.alone(
        keys,
        dim=("d_model", "hidden_size"),
        heads=("num_heads", "num_attention_heads"),
        each=keys.count("d_kv", "head_dim", most=2**16),
    )
    bias = Buckets(
        keys.count("relative_attention_num_buckets"),
        keys.count("relative_attention_max_distance"),
        bidirectional=True,
    )
    encoder = replace(layer, scale=1.0, causal=False, bias=bias)
    decoder = replace(layer, scale=1.0, bias=replace(bias, bidirectional=False))
    count = keys.count("num_layers", "num_hidden_layers", most=10_000)
    second = keys.count("num_decoder_layers", absent=count, null=count, most=10_000)
    return behind(encoder, count, decoder, second)


def heads_of(keys, name):
    """A layer of an encoder or a decoder, each with a key for its number of heads."""
    return stack.alone(keys, dim=("d_model",), heads=(name,))


def whisper(keys):
    """Whisper: sinusoids in the encoder, a learned table in the decoder; keys have no offset."""
    names = ("encoder_attention_heads", "decoder_attention_heads")
    both = [stack.offset(heads_of(keys, name)) for name in names]
    encoder, decoder = (replace(layer, use_bias=(True, False, True)) for layer in both)
    table = ("sinusoidal", keys.count("max_source_positions"))
    encoder = replace(encoder, causal=False, table=table)
    decoder = replace(decoder, table=("learned", keys.count("max_target_positions")))
    keys.ignore("num_hidden_layers")
    return two(keys, encoder, decoder, ("encoder_layers", "decoder_layers"))


def marian(keys):
    """Marian: sinusoids on both sides."""
    table = ("sinusoidal", keys.count("max_position_embeddings"))
    names = ("encoder_attention_heads", "decoder_attention_heads")
    both = [stack.offset(heads_of(keys, name)) for name in names]
    encoder, decoder = (replace(layer, table=table) for layer in both)
    encoder = replace(encoder, causal=False)
    keys.ignore("num_hidden_layers", "share_encoder_decoder_embeddings")
    return two(keys, encoder, decoder, ("encoder_layers", "decoder_layers"))


FAMILIES = {
    **dict.fromkeys(("bert", "camembert", "electra", "roberta", "xlm-roberta"), bert),
    "deberta": deberta,
    "deberta-v2": deberta_v2,
    "esm": esm,
    "marian": marian,
    "modernbert": modernbert,
    "mt5": t5,
    "nomic_bert": nomic_bert,
    "roformer": roformer,
    "t5": t5,
    "whisper": whisper,
}
