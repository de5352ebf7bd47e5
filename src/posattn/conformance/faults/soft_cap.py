"""Faults of the soft cap on the scores."""

import numpy as np

from posattn import reference
from posattn.conformance.faults.registry import fault, misuse, named_as
from posattn.reference.attention.attention import visible

attention = reference.scaled_dot_product_attention


@misuse("soft_cap")
def soft_cap_not_in_decoding(definition, query, *others, soft_cap, **keywords):
    """The soft cap is ignored where there is one query: decoding has a program of its own."""
    kept = {} if query.shape[-2] == 1 else {"soft_cap": soft_cap}
    return definition(query, *others, **kept, **keywords)


@misuse("soft_cap")
def soft_cap_after_the_mask(definition, *heads, before=False, soft_cap, **keywords):
    """The cap comes after the mask: minus infinity becomes minus the cap, so what is hidden is seen."""
    query, key, _ = heads
    bias = keywords.pop("bias", 0)
    seen = visible(query, key, keywords.pop("mask", None), keywords.pop("causal", False))
    scores = query @ key.mT * (keywords.pop("scale", None) or query.shape[-1] ** -0.5)
    scores = np.where(True if seen is None else seen, scores + bias * before, -np.inf)
    bias = soft_cap * np.tanh(scores / soft_cap) + bias * (1 - before)
    return definition(*heads, scale=0.0, bias=bias, **keywords)


@misuse("soft_cap")
def soft_cap_after_mask_and_bias(definition, *heads, **keywords):
    """The cap comes after mask and bias: what is hidden gets minus the cap and is seen."""
    return soft_cap_after_the_mask(definition, *heads, before=True, **keywords)


def of_the_cap(change):
    """Enter an attention with a wrong cap, whose scores are `change(products, scale, bias, cap)`."""

    @fault("soft_cap")
    @named_as(change)
    def attend(query, key, value, *, soft_cap, scale=None, bias=0, **keywords):
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = change(query @ key.mT, scale, bias, soft_cap)
        return attention(query, key, value, scale=0.0, bias=scores, **keywords)

    return change


@of_the_cap
def soft_cap_clips(products, scale, bias, cap):
    """The scores are clipped at the cap, and not bent towards it by a tanh."""
    return np.clip(products * scale, -cap, cap) + bias


@of_the_cap
def soft_cap_before_the_scale(products, scale, bias, cap):
    """The cap comes before the scale: it should come after it."""
    return cap * np.tanh(products / cap) * scale + bias


@of_the_cap
def soft_cap_after_the_bias(products, scale, bias, cap):
    """The bias is capped along with the scores: it should be added after the cap."""
    return cap * np.tanh((products * scale + bias) / cap)


@of_the_cap
def soft_cap_times_the_score(products, scale, bias, cap):
    """The tanh is multiplied by the score, which has no bound then: it should be by the cap."""
    return products * scale * np.tanh(products * scale / cap) + bias


@of_the_cap
def soft_cap_of_one(products, scale, bias, cap):
    """The tanh is not multiplied by the cap: all scores lie between -1 and 1."""
    return np.tanh(products * scale / cap) + bias


@of_the_cap
def soft_cap_of_powers_of_two(products, scale, bias, cap):
    """The cap acts on scores that were made exponents of 2: it should come before."""
    return cap * np.tanh(products * scale / np.log(2) / cap) * np.log(2) + bias


@of_the_cap
def soft_cap_of_raw_scores(products, scale, bias, cap):
    """The scores are not divided by the cap: the tanh is of the score itself."""
    return cap * np.tanh(products * scale) + bias
