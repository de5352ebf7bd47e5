"""Keys that a family's attention doesn't read: whether they say what its layers are anyway."""

from posattn.configs.keys import shown
from posattn.configs.layers import Slopes

CLAIMS = {  # what a layer would have to be for a key, or another of these names, to be true of it
    "use_qk_norm qk_norm qk_layernorm": lambda layer: layer.query_norm is not None,
    "rotary_dim": lambda layer: layer.rope and layer.rope.rotary_dim,
    "sliding_window sliding_window_size": lambda layer: layer.window,
    "attention_chunk_size": lambda layer: layer.chunk,
    "head_dim kv_channels attention_head_dim": lambda layer: layer.head_dim,
    "num_key_value_heads num_kv_heads multi_query_group_num": lambda layer: (
        layer.num_kv_heads
    ),
    "attention_bias qkv_bias use_qkv_bias": lambda layer: layer.use_bias[0],
    "attn_logit_softcapping": lambda layer: layer.soft_cap,
    "rope_theta rotary_emb_base": lambda layer: layer.rope and layer.rope.base,
    "use_mrope": lambda layer: bool(layer.rope and layer.rope.sections),
    "alibi": lambda layer: isinstance(layer.bias, Slopes),
}
CLAIMS = {name: claim for names, claim in CLAIMS.items() for name in names.split()}


def agreeing(keys, layers):
    """The keys that were not read, in words, each with whether it is true of the layers; an error if not."""
    words = []
    unread = keys.unread()
    if keys.values.get("use_sliding_window") is False:
        unread.pop("sliding_window", None)
    for key, value in unread.items():
        claim = CLAIMS.get(key)
        found = [] if claim is None else [claim(layer) for layer in layers]
        if found and value not in found:
            said = " or ".join(sorted({shown(one) for one in found}))
            raise keys.error(
                f"{key} = {shown(value)} is no key that this family's attention reads, and its layers"
                f" have {said} for it",
                do="remove it, or correct model_type",
            )
        words.append(f"{key} = {shown(value)}" + ", which holds anyway" * bool(found))
    return tuple(words)
