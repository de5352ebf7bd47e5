"""Faults of latent attention: what rotates, what is normalized, what the scores are divided by."""

from functools import partial

import numpy as np

from posattn import reference
from posattn.conformance.faults.registry import line
from posattn.reference import attention_weights, merge_heads, split_heads


def root_mean_square(x, eps):
    """What a norm divides by."""
    return np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def normalized(latent, both, eps):
    """The latent vector over its root mean square; `both` is it and the shared key."""
    return latent / root_mean_square(latent, eps)


def naive(x, positions=None, *, normalize=normalized, but=None, **options):
    """Latent attention as it is written down, with `normalize(latent, both, eps)`.

    What is named in `but` is left as it is: a query's norm, a rotation, or the vector that values are from.
    """
    heads, weight = options["num_heads"], options["kv_norm_weight"]
    eps, rank = options.get("eps", 1e-6), len(weight)
    where = np.arange(x.shape[-2]) if positions is None else positions
    where = where[..., None, :]
    known = {name: options[name] for name in ("base", "layout") if name in options}
    if but == "half":
        half = (options["kv_down_weight"].shape[1] - rank) // 2
        known["frequencies"] = reference.frequencies(half, base=known.pop("base", 1e4))
    rotary = reference.Rotary(**known)
    both = x @ options["kv_down_weight"]
    latent, shared = both[..., :rank], both[..., None, :, rank:]
    raw, latent = latent, weight * normalize(latent, both, eps)
    if "query_down_weight" in options:
        x = x @ options["query_down_weight"]
        normal = options["query_norm_weight"] * x / root_mean_square(x, eps)
        x = x if but == "norm of queries" else normal
    query = split_heads(x @ options["query_weight"], heads)
    content = split_heads(latent @ options["key_weight"], heads)
    width = content.shape[-1]
    rotated = query[..., width:]
    rotated = rotated if but == "rotation of queries" else rotary(rotated, where)
    shared = shared if but == "rotation of keys" else rotary(shared, where)
    shared = np.broadcast_to(shared, (*content.shape[:-1], shared.shape[-1]))
    mask = options.get("mask")
    weights = attention_weights(
        np.concatenate([query[..., :width], rotated], axis=-1),
        np.concatenate([content, shared], axis=-1),
        mask=None if mask is None else mask[..., None, :, :],
        causal=options.get("causal", False),
        scale=options.get("scale"),
    )
    latent = raw if but == "norm of values" else latent
    values = split_heads(latent @ options["value_weight"], heads)
    return merge_heads(weights @ values) @ options["output_weight"]


def centered(latent, both, eps):
    """The latent vector without its mean, over its standard deviation."""
    return normalized(latent - np.mean(latent, axis=-1, keepdims=True), both, eps)


# fmt: off
line("latent_not_normalized", partial(naive, normalize=lambda latent, both, eps: latent),
     "The latent vector of keys and values is not normalized.", "latent")
line("latent_norm_over_all",
     partial(naive, normalize=lambda latent, both, eps: latent / root_mean_square(both, eps)),
     "The norm is over the latent vector and the shared key together.", "latent")
line("latent_half_turned", partial(naive, but="half"),
     "Only the first half of the rotary part rotates, as where a partial rotation is taken twice.", "latent")
line("latent_key_not_turned", partial(naive, but="rotation of keys"),
     "The shared key does not rotate, only the queries do.", "latent")
line("latent_query_not_turned", partial(naive, but="rotation of queries"),
     "The queries do not rotate, only the shared key does.", "latent")
line("latent_query_not_normalized", partial(naive, but="norm of queries"),
     "The norm of the latent vector of queries is left out, and its factors with it.", "latent")
line("latent_values_not_normalized", partial(naive, but="norm of values"),
     "Values are made of the latent vector before its norm: they should be of it after.", "latent")
line("latent_mean_subtracted", partial(naive, normalize=centered),
     "The norm of the latent vector subtracts the mean: it should only divide by the root mean square.",
     "latent")
# fmt: on
