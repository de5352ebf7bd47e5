"""Faults of the soft cap on the scores."""

import numpy as np

from posattn import reference
from posattn.conformance.faults.registry import line, misuse
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


def of_the_cap(name, change, sentence):
    """Enter an attention with a wrong cap, whose scores are `change(products, scale, bias, cap)`."""

    def attend(query, key, value, *, soft_cap, scale=None, bias=0, **keywords):
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = change(query @ key.mT, scale, bias, soft_cap)
        return attention(query, key, value, scale=0.0, bias=scores, **keywords)

    line(name, attend, sentence, "soft_cap")


# fmt: off
CAPS = (  # a name, scores of products x, a scale s, a bias b and a cap c, and a sentence
    ("soft_cap_clips", lambda x, s, b, c: np.clip(x * s, -c, c) + b,
     "The scores are clipped at the cap, and not bent towards it by a tanh."),
    ("soft_cap_before_the_scale", lambda x, s, b, c: c * np.tanh(x / c) * s + b,
     "The cap comes before the scale: it should come after it."),
    ("soft_cap_after_the_bias", lambda x, s, b, c: c * np.tanh((x * s + b) / c),
     "The bias is capped along with the scores: it should be added after the cap."),
    ("soft_cap_times_the_score", lambda x, s, b, c: x * s * np.tanh(x * s / c) + b,
     "The tanh is multiplied by the score, which has no bound then: it should be by the cap."),
    ("soft_cap_of_one", lambda x, s, b, c: np.tanh(x * s / c) + b,
     "The tanh is not multiplied by the cap: all scores lie between -1 and 1."),
    ("soft_cap_of_powers_of_two", lambda x, s, b, c: c * np.tanh(x * s / np.log(2) / c) * np.log(2) + b,
     "The cap acts on scores that were made exponents of 2: it should come before."),
    ("soft_cap_of_raw_scores", lambda x, s, b, c: c * np.tanh(x * s) + b,
     "The scores are not divided by the cap: the tanh is of the score itself."),
)
# fmt: on
for row in CAPS:
    of_the_cap(*row)
