"""The call: one attention whose arguments are known to be good, which every path takes."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from posattn import contract
from posattn.jax.attention.masks import (
    all_of,
    causal_mask,
    of_pairs,
    of_selected,
    zero_unattended,
)
from posattn.jax.trees import register

__all__ = []

STATIC = {"static": True}  # part of the structure: compiled code is for one value


class Positions(NamedTuple):
    """Where queries and keys stand: of each `(n)`, or one row for each example."""

    query: Any
    key: Any


@register
@dataclass(frozen=True, eq=False)
class Call:
    """What to compute: a pytree, since long calls are compiled as functions of one.

    Args:
        query: `(*batch, h, n_q, d)`.
        key: `(*batch, h_kv, n_k, d)`.
        value: `(*batch, h_kv, n_k, d_v)`; None where only the weights are asked for.
        mask: which pairs may attend, an array or a function of positions, or `Every` of several; all if None.
        biases: what is added to the scores.
        positions: where queries and keys stand.
        scale: the factor on the scores.
        causal: hide the future as well.
        dropout_rate: probability of dropping a weight.
        rng: the JAX key that dropout draws from; None means no dropout.
        finite: the keys and values to which nobody attends hold no NaN and no infinity.
        sinks: a score of each head of queries that joins the sum of its weights, `(h)`.
        soft_cap: the bound on the scores before the biases.
        select: the keys that each query reads; all if None.
    """

    query: Any
    key: Any
    value: Any
    mask: Any
    biases: list
    positions: Positions
    scale: float = field(metadata=STATIC)
    causal: bool = field(default=False, metadata=STATIC)
    dropout_rate: float = field(default=0.0, metadata=STATIC)
    rng: Array | None = None
    finite: bool = field(default=False, metadata=STATIC)
    sinks: Array | None = None
    soft_cap: float | None = field(default=None, metadata=STATIC)
    select: Any = None


def checked(query, key, value=None, *, query_positions=None, key_positions=None, **options):
    """Check the arguments of an attention, and make them a call."""
    contract.attention(query, key, value, grouped=True)
    positions = positions_of(query, key, query_positions, key_positions)
    return call_at(positions, query, key, value, **options)


def call_at(
    positions,
    query,
    key,
    value=None,
    *,
    mask=None,
    causal=False,
    bias=None,
    scale=None,
    sinks=None,
    soft_cap=None,
    select=None,
    dropout_rate=0.0,
    rng=None,
    finite=False,
):
    """The call of heads whose positions are known to be good; the other arguments are checked."""
    contract.sinks(sinks, query)
    if select is not None:
        contract.selected(select, query, key, known=not isinstance(select, Tracer))
    return Call(
        query=query,
        key=key,
        value=value,
        mask=mask,
        biases=biases(bias),
        positions=positions,
        scale=1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale),
        causal=causal,
        dropout_rate=contract.dropout_rate(dropout_rate),
        rng=rng,
        finite=finite,
        sinks=sinks,
        soft_cap=contract.soft_cap(soft_cap),
        select=select,
    )


def as_mask(call):
    """The call with its selection as a part of its mask."""
    if call.select is None:
        return call
    chosen = of_selected(call.select, call.query, call.key)
    return replace(call, mask=all_of([call.mask, chosen]), select=None)


def positions_of(query, key, query_positions, key_positions):
    """Where queries and keys stand: the last query at the last key, unless something else is given."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    contract.attention_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    if query_positions is None:
        query_positions = (
            jnp.arange(n_k - n_q, n_k)
            if key_positions is None
            else key_positions[..., n_k - n_q :]
        )
    key_positions = jnp.arange(n_k) if key_positions is None else key_positions
    return Positions(query_positions, key_positions)


def visible(call):
    """Which key each query may attend to, mask and `causal` in one array; None if it is all."""
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    past = causal_mask(n_q, n_k) if call.causal else None
    mask = all_of([call.mask, past])
    return of_pairs(mask, call.positions, (*call.query.shape[:-1], n_k))


def without_hidden(x, call, seen):
    """Keys or values of a call, zero where nobody attends to them."""
    if (
        call.finite or call.mask is None
    ):  # without a mask the last query attends to all keys
        return x
    return zero_unattended(x, seen)


def biases(bias):
    """The parts of a bias, one if it is no list."""
    parts = bias if isinstance(bias, list | tuple) else [bias]
    return [part for part in parts if part is not None]


def changes_values(bias):
    """Whether a bias adds something to the output of the heads, too."""
    return hasattr(bias, "scores") and hasattr(bias, "values")
