"""A mixture of experts: a router picks a few of many feed-forward networks for each token."""

from functools import partial

import torch
from torch import nn

from posattn.torch.models.block import FeedForward, norm_of

__all__ = []

NORMS = "router_norm", "input_norm", "shared_norm", "output_norm"


class Experts(nn.Module):
    """Feed-forward networks of which each token passes a few.

    Twin of the reference's. Each network reads only the tokens that chose it.

    Args:
        dim: the width of the stream.
        mixture: what is mixed and how, a `posattn.configs.experts.Mixture`.
        activation: of each network.
        options: `dtype` and `device` of the weights.
    """

    def __init__(self, dim, mixture, activation, **options):
        super().__init__()
        make = partial(nn.utils.skip_init, nn.Linear, dim, **options)
        network = partial(FeedForward, dim, gated=True, activation=activation, **options)
        hidden, use_bias = mixture.hidden_dim, mixture.use_bias
        self.mixture = mixture
        correction = None
        self.router = make(mixture.count, bias=use_bias)
        self.experts = nn.ModuleList(
            network(hidden, use_bias=use_bias, limit=mixture.limit)
            for _ in range(mixture.count)
        )
        self.shared = self.shared_gate = None
        if mixture.shared_dim is not None:
            self.shared = network(mixture.shared_dim, use_bias=False)
        if mixture.shared_gated:
            self.shared_gate = make(1, bias=False)
        if mixture.corrected:  # which decides between scores that are near each other
            wide = torch.promote_types(self.router.weight.dtype, torch.float32)
            correction = torch.zeros_like(self.router.weight[:, 0], dtype=wide)
        self.register_buffer("correction", correction)
        self.counts = None
        beside = mixture.beside
        if beside is not None:
            self.counts = nn.Parameter(torch.ones(mixture.count, **options))
        for name in NORMS:
            norm = None if beside is None else norm_of("rms", dim, beside, **options)
            setattr(self, name, norm)

    reset_parameters = FeedForward.reset_parameters

    def forward(self, x, stream=None):
        """What is added to `x`, `(*batch, n, d)`, which is a norm of the stream."""
        every = torch.zeros_like(x) if self.shared is None else self.shared(x)
        if self.shared_gate is not None:
            every = every * self.shared_gate(x).sigmoid()
        if self.counts is None:
            return self._mixed(x, x, every)
        told = self.router_norm(stream) * x.shape[-1] ** -0.5
        mixed = self._mixed(told, self.input_norm(stream), torch.zeros_like(x))
        return self.shared_norm(every) + self.output_norm(mixed)

    def _mixed(self, told, x, total):
        """What the experts say of `x`, chosen by what the router is told, added to a sum."""
        weights = routed(self.router(told), self.correction, self.mixture).to(x.dtype)
        weights = weights if self.counts is None else weights * self.counts
        if x.is_meta:  # which tokens chose an expert is not known, and the shape is
            return total
        for network, weight in zip(self.experts, weights.unbind(-1), strict=True):
            there = weight.nonzero(as_tuple=True)
            read, counts = x[there], weight[there][:, None]
            inward = self.mixture.inward
            total[there] += network(counts * read) if inward else counts * network(read)
        return total


def routed(logits, correction, mixture):
    """How much each expert counts, `(*batch, n, count)`: 0 unless it is chosen."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scores = logits.softmax(-1) if mixture.score == "softmax" else logits.sigmoid()
    ranks = scores if correction is None else scores + correction
    if mixture.groups > 1:
        grouped = ranks.unflatten(-1, (mixture.groups, -1))
        best = grouped.topk(2, -1).values.sum(-1)
        kept = among(best, mixture.kept_groups)
        ranks = grouped.where(kept[..., None], -torch.inf).flatten(-2)
    weights = scores.where(among(ranks, mixture.chosen), 0)
    if mixture.normalized:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * mixture.scale


def among(x, count):
    """Whether an entry is among the `count` highest of its row."""
    ranked = x.argsort(dim=-1, descending=True, stable=True)
    return ranked.argsort(dim=-1) < count
