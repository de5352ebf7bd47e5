"""The call: one attention whose arguments are known to be good, which every path takes."""

import math
from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import torch
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.masks import (
    causal_mask,
    of_pairs,
    readable,
    transformed,
    zero_unattended,
)
from posattn.torch.attention.random import seed

__all__ = []

FAINTEST = 2.0**-15  # the scale by which half precision can still divide a sink


class Positions(NamedTuple):
    """Where queries and keys stand: of each `(n)`, or one row for each example."""

    query: Tensor
    key: Tensor


@no_type_check  # jaxtyping's check of a constructor is nothing that torch.compile traces
@dataclass(frozen=True)
class Call:
    """What to compute.

    Args:
        query: `(*batch, h, n_q, d)`.
        key: `(*batch, h_kv, n_k, d)`.
        value: `(*batch, h_kv, n_k, d_v)`; None where only the weights are asked for.
        mask: which pairs may attend, an array or a function of positions; all if None.
        causal: hide the future as well.
        biases: what is added to the scores.
        positions: where queries and keys stand.
        scale: the factor on the scores.
        dropout_rate: probability of dropping a weight.
        seed: fixes which weights are dropped; none if None.
        aligned: tokens stand at 0, 1, ..., and the queries are the last of them.
        finite: the keys and values to which nobody attends hold no NaN and no infinity.
        place: where in a larger array of pairs these stand, see `uniform`; they are all if None.
        sinks: a score of each head of queries that joins the sum of its weights, `(h)`.
        soft_cap: the bound on the scores before the biases.
        select: the keys that each query reads, by their indices; all if None.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    mask: Tensor | contract.PositionMask | None
    causal: bool
    biases: list
    positions: Positions
    scale: float
    dropout_rate: float
    seed: int | Tensor | None
    aligned: bool
    finite: bool
    place: tuple[int, int, int, int] | None = None
    sinks: Tensor | None = None
    soft_cap: float | None = None
    select: Tensor | None = None

    @property
    def drops(self):
        """Whether weights are dropped."""
        return self.dropout_rate > 0 and self.seed is not None

    @property
    def needs_weights(self):
        """Whether no fused kernel will do, which holds no weights and leaves its scores as they are."""
        faint = self.sinks is not None and abs(self.scale) < FAINTEST
        changed = self.drops or self.soft_cap is not None or faint
        return changed or any(changes_values(part) for part in self.biases)


def checked(query, key, value=None, *, query_positions=None, key_positions=None, **options):
    """Check the arguments of an attention, and make them a call."""
    contract.attention(query, key, value, grouped=True)
    positions = positions_of(query, key, query_positions, key_positions)
    aligned = query_positions is None and key_positions is None
    return call_at(positions, query, key, value, aligned=aligned, **options)


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
    aligned=False,
    finite=False,
):
    """The call of heads whose positions are known to be good; the other arguments are checked."""
    if not callable(mask):
        contract.mask(mask, (*query.shape[:-1], key.shape[-2]))
    contract.sinks(sinks, query)
    if select is not None:
        contract.array("select", select)
        known = readable(select) and not transformed()
        contract.selected(select, query, key, known=known)
    return Call(
        query=query,
        key=key,
        value=value,
        mask=mask,
        causal=causal,
        biases=biases(bias),
        positions=positions,
        scale=1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale),
        dropout_rate=contract.dropout_rate(dropout_rate),
        seed=seed(rng),
        aligned=aligned,
        finite=finite,
        sinks=sinks,
        soft_cap=contract.soft_cap(soft_cap),
        select=select,
    )


def positions_of(query, key, query_positions, key_positions):
    """Where queries and keys stand: the last query at the last key, unless something else is given."""
    n_q, n_k, device = query.shape[-2], key.shape[-2], key.device
    contract.attention_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    if query_positions is None:
        query_positions = (
            torch.arange(n_k - n_q, n_k, device=device)
            if key_positions is None
            else key_positions[..., n_k - n_q :]
        )
    if key_positions is None:
        key_positions = torch.arange(n_k, device=device)
    return Positions(query_positions, key_positions)


def positions_at(call, queries, keys):
    """Where some queries and keys of a call stand, which slices tell."""
    return Positions(call.positions.query[..., queries], call.positions.key[..., keys])


def visible(call):
    """Which key each query may attend to, mask and `causal` in one array; None if it is all."""
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    mask = of_pairs(call.mask, call.positions, (*call.query.shape[:-1], n_k))
    if call.causal:
        future_hidden = causal_mask(n_q, n_k, device=call.query.device)
        mask = future_hidden if mask is None else mask & future_hidden
    return mask


def without_hidden(x, call, seen):
    """Keys or values of a call, zero where nobody attends to them."""
    if (
        call.finite or call.mask is None
    ):  # without a mask the last query attends to all keys
        return x
    return zero_unattended(x, seen)


def biases(bias):
    """The parts of a bias, one if it is no list."""
    parts = bias if isinstance(bias, (list, tuple, nn.ModuleList)) else [bias]
    return [part for part in parts if part is not None]


def changes_values(bias):
    """Whether a bias adds something to the output of the heads, too."""
    return hasattr(bias, "scores") and hasattr(bias, "values")


def total_bias(parts, query, key, positions):
    """Add up what the parts of a bias add to the scores, or give None."""
    total = None
    for part in parts:
        if hasattr(part, "scores"):
            part = part.scores(query, for_each_head(key, query), *positions)
        elif callable(part):
            part = part(*positions)
        contract.array("bias", part)
        contract.bias(part, (*query.shape[:-1], key.shape[-2]))
        total = part if total is None else total + part
    return total


def for_each_head(x, query):
    """Give each head of queries the head of keys or values that serves it."""
    if query.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3)
