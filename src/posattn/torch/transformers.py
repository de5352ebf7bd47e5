"""Models of transformers with our attention inside: one call adds it to those that they can choose."""

from collections.abc import Callable

import torch

from posattn import contract
from posattn.torch.attention.attention import scaled_dot_product_attention

__all__ = ["register"]


def register(name: str = "posattn", *, attention: contract.Attention | None = None) -> None:
    """Let models of transformers choose our attention by name.

    Then `from_pretrained(..., attn_implementation="posattn")` or
    `model.set_attn_implementation("posattn")` makes every layer of a model call it. Projections, rotations
    and caches stay the model's own. Windows, padding, grouped heads, soft caps, sinks, the position bias of
    T5 and dropout are passed on. Masks are arrays of all pairs, as transformers makes them for PyTorch's
    kernel.

    Args:
        name: what the models call it.
        attention: computes the output of the heads, called as `scaled_dot_product_attention`, which it is if
            not given; such as `posattn.torch.flex.attention`.

    Raises:
        TypeError: if `name` is not a string, or `attention` is not a function.
        ModuleNotFoundError: if transformers is not installed.

    Examples:
        >>> register()  # doctest: +SKIP
        >>> model = LlamaForCausalLM(config)  # doctest: +SKIP
        >>> model.set_attn_implementation("posattn")  # doctest: +SKIP
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    if not (attention is None or callable(attention)):
        raise TypeError(f"attention must be a function, got {type(attention).__name__}")
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    chosen = scaled_dot_product_attention if attention is None else attention
    AttentionInterface.register(name, forward(chosen))
    AttentionMaskInterface.register(name, sdpa_mask)


def forward(attention: contract.Attention) -> Callable:
    """Make a function that a layer of transformers calls, of an attention.

    Args:
        attention: called as `scaled_dot_product_attention`.

    Returns:
        A function of the layer, queries, keys and values `(batch, h, n, d_h)`, and a mask, which returns
        `(batch, n_q, h, d_h)` and, for the weights, None.
    """

    def attend(
        module,
        query,
        key,
        value,
        attention_mask,
        dropout=0.0,
        scaling=None,
        is_causal=None,
        softcap=None,
        s_aux=None,
        position_bias=None,
        **_,  # what says nothing of attention, or what the mask knows, as a window
    ):
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        n_q, n_k = query.shape[-2], key.shape[-2]
        causal = bool(is_causal) and attention_mask is None and n_q > 1
        # in a cache of a fixed size only the beginning is in use
        if causal and n_k > n_q:
            key, value = key[..., :n_q, :], value[..., :n_q, :]
            position_bias = None if position_bias is None else position_bias[..., :n_q]
        additive = attention_mask is not None and attention_mask.is_floating_point()
        bias = [position_bias, attention_mask if additive else None]
        options = {
            "mask": None if additive else attention_mask,
            "causal": causal,
            "bias": [part.to(query.dtype) for part in bias if part is not None],
            "scale": scaling,
            "sinks": s_aux,
            "soft_cap": softcap,
        }
        if dropout > 0:
            seed = torch.randint(2**31, ())  # of PyTorch's own source, as in transformers
            options |= {"dropout_rate": dropout, "rng": seed}
        return attention(query, key, value, **options).transpose(-3, -2).contiguous(), None

    return attend
