"""A layer with the delta rule: projections, a short convolution, gates, and a state in place of a cache."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.configs.deltas import as_delta, delta_weights
from posattn.torch.attention.convolution import short_convolution
from posattn.torch.attention.delta import gated_delta, kimi_delta
from posattn.torch.attention.heads import merge_heads, split_heads
from posattn.torch.attention.state_cache import StateCache
from posattn.torch.models.layer_plan import from_config
from posattn.torch.models.projections import made_by, same_dtype
from posattn.torch.validated import validated

__all__ = ["DeltaAttention"]


@validated
class DeltaAttention(nn.Module):
    """The layer of Gated DeltaNet and of Kimi Delta Attention: order is kept in a state, without positions.

    Twin of :class:`posattn.reference.DeltaAttention`.
    The weights are those of :class:`torch.nn.Linear`, `query`, `key`, `value`, `decay`, `beta`, `gate` and
    `output`, which keep them transposed, and `taps`, `decay_offset`, `decay_rate` and `norm_weight`.
    With a `rank`, there are `decay_down` and `gate_down` as well.
    Gates, the rule and the norm are computed in float32 if the weights are of half precision.

    Args:
        dim: the width of the input and of the output, at least 1.
        num_heads: the number of heads of values.
        num_key_heads: that of queries and keys; `num_heads` if not given.
        key_dim: the width of a head of queries and keys.
        value_dim: that of values; `key_dim` if not given.
        taps: of the convolution.
        per_channel: whether each channel of the keys has a log gate of its own.
        rank: through how many entries the gates are projected; directly if not given.
        gate: what acts on the output gates, `"silu"` or `"sigmoid"`.
        most: the upper bound of beta.
        eps: added to the mean square in the norm.
        bound: the lower bound of log gates, which a scaled sigmoid keeps; none if not given.
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Examples:
        >>> layer = DeltaAttention(8, 2, key_dim=4)
        >>> x = torch.randn(3, 5, 8)
        >>> whole = layer(x)
        >>> out, cache = layer(x[:, :4], cache=layer.init_cache((3,)))
        >>> out, cache = layer(x[:, 4:], cache=cache)
        >>> torch.allclose(out, whole[:, 4:], atol=1e-6)
        True
    """

    recurrent = True  # which pairs are not

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        key_dim: int,
        value_dim: int | None = None,
        taps: int = 4,
        per_channel: bool = False,
        rank: int | None = None,
        gate: Literal["silu", "sigmoid"] = "silu",
        most: float = 1.0,
        eps: float = 1e-6,
        bound: float | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        contract.delta_gate(gate, bound)
        sizes = contract.delta_sizes(
            dim, num_heads, num_key_heads, key_dim, value_dim, taps, per_channel, rank
        )
        options = {
            "device": torch.get_default_device() if device is None else device,
            "dtype": dtype,
        }
        for name, shape in sizes.matrices.items():
            linear = nn.utils.skip_init(nn.Linear, *shape, bias=False, **options)
            self.add_module(name, linear)
        vectors = {
            "taps": (sizes.width, sizes.taps),
            "decay_offset": (sizes.gates,),
            "decay_rate": (sizes.num_heads,),
            "norm_weight": (sizes.value_dim,),
        }
        for name, shape in vectors.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, **options)))
        self.dim, self.num_heads = self.output.out_features, sizes.num_heads
        self.num_key_heads, self.key_dim = sizes.num_key_heads, sizes.key_dim
        self.value_dim, self.per_channel = sizes.value_dim, per_channel
        self.activation, self.bound = gate, bound
        self.most, self.eps = contract.positive("most", most), contract.positive("eps", eps)
        self.reset_parameters(rng)

    from_config = classmethod(from_config)

    @classmethod
    def _of_layer(cls, layer, **options):
        """A layer as a plan describes it."""
        return cls(layer.dim, **asdict(as_delta(layer)), **options)

    def _load(self, state, plan, index):
        """Copy the weights of a layer out of those of its model."""
        picked = delta_weights(state, plan, index)
        self.load_state_dict(picked | {"taps": torch.cat(picked["taps"])})

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the weights as :meth:`posattn.reference.DeltaAttention.init` does.

        Args:
            rng: where the weights are drawn from; PyTorch's own generator if not given.
        """
        for part in self.children():
            nn.init.xavier_uniform_(part.weight, generator=rng)
        bound = self.taps.shape[1] ** -0.5
        nn.init.uniform_(self.taps, -bound, bound, generator=rng)
        with torch.no_grad():
            nn.init.uniform_(self.decay_rate, 0.01, 16, generator=rng).log_()
        nn.init.ones_(self.decay_offset)
        nn.init.ones_(self.norm_weight)

    def extra_repr(self) -> str:
        """The numbers."""
        names = "num_heads", "num_key_heads", "key_dim", "value_dim", "activation"
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> StateCache:
        """Make an empty cache that fits this layer.

        Twin of :meth:`posattn.reference.DeltaAttention.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            dtype: of the convolution's inputs; if not given, what the layer makes of them: under
                :class:`torch.autocast` its dtype, otherwise that of the weights.
            device: where the cache lives; where the weights are if not given.
        """
        dtype, device = made_by(self.query, dtype, device)
        width, taps = self.taps.shape
        sizes = self.num_heads, self.key_dim, self.value_dim, taps - 1, width
        return StateCache.init(batch_shape, *sizes, dtype=dtype, device=device)

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        *,
        mask: Bool[Tensor, "*#batch n"] | None = None,
        documents: Integer[Tensor, "*#batch n"] | None = None,
        cache: StateCache | None = None,
    ) -> Float[Tensor, "*batch n d"] | tuple[Float[Tensor, "*batch n d"], StateCache]:
        """Let each token read the state of those before it.

        Twin of calling :class:`posattn.reference.DeltaAttention`.

        Args:
            x: `(*batch, n, d)`.
            mask: bool, `(n)` or `(*batch, n)`, True is a token. Others are treated as absent.
            documents: integers, `(n)` or `(*batch, n)`, another number for another document.
            cache: what was kept of the tokens before.

        Returns:
            `(*batch, n, d)`. With a cache, that and the cache of all tokens so far.
        """
        contract.sequence("x", x, self.dim)
        contract.passed(mask, documents, x.shape[:-2], x.shape[-2])
        same_dtype("x", x, self.query)
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0)
        passed = {"mask": mask, "documents": documents}
        mixed = torch.cat([part(x) for part in (self.query, self.key, self.value)], -1)
        inputs = None if cache is None else cache.inputs
        mixed, inputs = short_convolution(mixed, self.taps, state=inputs, **passed)
        keys = self.num_key_heads * self.key_dim
        wide = torch.promote_types(mixed.dtype, torch.float32)
        mixed = functional.silu(mixed)
        query, key, value = mixed.to(wide).tensor_split([keys, 2 * keys], -1)
        query, key = (_unit(split_heads(part, self.num_key_heads)) for part in (query, key))
        value = split_heads(value, self.num_heads)
        rule = kimi_delta if self.per_channel else gated_delta
        state = None if cache is None else cache.state
        heads, state = rule(query, key, value, *self._gates(x, wide), state=state, **passed)
        heads = functional.rms_norm(
            heads, heads.shape[-1:], self.norm_weight.to(wide), self.eps
        )
        narrow = self.gate_down(x) if hasattr(self, "gate_down") else x
        gate = split_heads(self.gate(narrow).to(wide), self.num_heads)
        gate = functional.silu(gate) if self.activation == "silu" else gate.sigmoid()
        out = self.output(merge_heads(heads * gate).to(mixed.dtype))
        if cache is None:
            return out
        return out, StateCache(inputs, state)

    def _gates(self, x, wide):
        """The log gates and betas, `(*batch, h, n)`, or `(*batch, h, n, d_k)` for each channel."""
        narrow = self.decay_down(x) if hasattr(self, "decay_down") else x
        step = self.decay(narrow).to(wide) + self.decay_offset.to(wide)
        step = split_heads(step, self.num_heads)
        rate = self.decay_rate.to(wide).exp()[:, None, None]
        if self.bound is not None:
            log_gates = self.bound * (rate * step).sigmoid()
        else:  # exact for large and small sums, where PyTorch's softplus is linear from 20 on
            log_gates = rate * functional.logsigmoid(-step)
        beta = self.most * self.beta(x).sigmoid()
        return log_gates if self.per_channel else log_gates.squeeze(-1), beta.mT


def _unit(x):
    """Vectors of length 1, but for short ones."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
