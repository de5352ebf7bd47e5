"""Our schemes in PyTorch's FlexAttention, which makes one kernel of attention and what acts on its scores.

FlexAttention asks two functions about each pair of a query and a key: `score_mod` changes its score, and
`mask_mod` says whether the query may attend to the key. `score_mod` and `mask_mod` make them of any
scheme of positions alone, and `attention` puts all of it behind the arguments that the rest of the
library has.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor, nn
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from posattn import contract
from posattn.torch.attention.block_masks import block_mask_of
from posattn.torch.attention.call import biases, checked
from posattn.torch.attention.masks import zero_unattended
from posattn.torch.attention.pair_terms import flat, placed, places, reader
from posattn.torch.attention.random import Rng

__all__ = ["attention", "mask_mod", "score_mod"]

PairMask = Bool[Tensor, "*#batch #n_q n_k"] | contract.PositionMask
Bias = Float[Tensor, "*#batch #n_q n_k"] | contract.PositionBias | contract.ContentBias
Positions = Real[Tensor, "*#batch n"]


def score_mod(
    bias: Bias | Sequence[Bias | None],
    *,
    query_offset: int | Tensor = 0,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
    length: int | None = None,
    device: torch.device | str | None = None,
) -> Callable:
    """Make a function that adds a bias to the scores of FlexAttention.

    A bias is asked about one query and one key at a time, so there is no array of pairs.
    With `length`, a bias that depends only on the distance is asked once about each distance, and the
    function reads the row of its answers. Only such a row, or an array, gets through `torch.compile`: the
    kernels that it writes have no room for a scheme's own arithmetic.

    Args:
        bias: what is added: a function of the positions of queries and keys, such as `ALiBi` or a `T5Bias`;
            an array that broadcasts to `(batch, h, n_q, n_k)`; or a list of those, which are added up.
        query_offset: query `i` stands at `query_offset + i`; in decoding that is the number of keys that
            came before. A tensor without axes lets one compiled program serve every step.
        query_positions: where the queries stand instead, `(n_q)` or `(batch, n_q)`.
        key_positions: where the keys stand, `(n_k)` or `(batch, n_k)`; 0, 1, ... if not given.
        length: more than the largest distance of a query and a key. A larger distance gives NaN.
        device: where the row is made; where the parameters of `bias` are if not given.

    Returns:
        `score_mod(score, b, h, q_idx, kv_idx)`, for :func:`torch.nn.attention.flex_attention.flex_attention`.

    Raises:
        TypeError: if `bias` reads queries and keys, or an argument is not of its kind.
        ValueError: if `length` is less than 1, or there are an offset and positions.

    Examples:
        >>> from posattn.torch import ALiBi
        >>> change = score_mod(ALiBi(1), query_offset=3)  # the first query stands at 3
        >>> change(torch.tensor(0.0), 0, 0, torch.tensor(0), torch.tensor(1)) * 256
        tensor(-2.)
    """
    parts = [of_positions_alone(part) for part in biases(bias)]
    where = places(query_offset, query_positions, key_positions)
    if length is not None:
        length = contract.integer("length", length, least=1)
    readers = [reader(part, where, length, device) for part in parts]

    def change(score, b, h, q_idx, kv_idx):
        for read in readers:
            score = score + read(b, h, q_idx, kv_idx).to(score.dtype)
        return score

    return change


def mask_mod(
    mask: PairMask,
    *,
    query_offset: int | Tensor = 0,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
) -> Callable:
    """Make a function that tells FlexAttention which query may attend to which key.

    A mask is asked about one query and one key at a time, so this function holds no array of pairs.

    Args:
        mask: a function of the positions of queries and keys, such as `Window`, or an array that broadcasts
            to `(batch, h, n_q, n_k)`. True means may attend.
        query_offset: query `i` stands at `query_offset + i`.
        query_positions: where the queries stand instead, `(n_q)` or `(batch, n_q)`.
        key_positions: where the keys stand, `(n_k)` or `(batch, n_k)`; 0, 1, ... if not given.

    Returns:
        `mask_mod(b, h, q_idx, kv_idx)`, for :func:`torch.nn.attention.flex_attention.create_block_mask`.

    Raises:
        TypeError: if `mask` is neither a function nor an array of truth values.
        ValueError: if there are an offset and positions.

    Examples:
        >>> from posattn.torch import Window
        >>> may_attend, query = mask_mod(Window(3)), torch.tensor(5)
        >>> [bool(may_attend(0, 0, query, torch.tensor(key))) for key in (2, 3, 4, 5)]
        [False, True, True, True]
    """
    if not callable(mask):
        contract.array("mask", mask)
        contract.mask(mask, tuple(mask.shape))
    where = places(query_offset, query_positions, key_positions)
    return reader(mask, where)


def attention(
    query: Float[Tensor, "*batch n_q d"],
    key: Float[Tensor, "*groups n_k d"],
    value: Float[Tensor, "*groups n_k d_v"],
    *,
    mask: PairMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Tensor, "... n_q"] | None = None,
    key_positions: Real[Tensor, "... n_k"] | None = None,
    scale: float | None = None,
    sinks: Float[Tensor, "*h"] | None = None,
    soft_cap: float | None = None,
    dropout_rate: float = 0.0,
    rng: Rng | None = None,
    compiled: bool | None = None,
    length: int | None = None,
) -> Float[Tensor, "*batch n_q d_v"]:
    """Attention by FlexAttention, with the arguments of `scaled_dot_product_attention`.

    For a layer: `MultiHeadAttention(..., attention=posattn.torch.flex.attention)`.
    It was compared with our own function on the CPU, where it is the slower one. On an accelerator it has
    not been measured yet: `nox -s record -- bench attention` measures both there, so try before you choose.

    The blocks of a `Window`, of a `Chunk` and of `causal` are kept from call to call. Another mask is read
    again in each call, 1,024 queries at a time.

    Args:
        query: Q, `(*batch, n_q, d)`.
        key: K, `(*batch, n_k, d)`; heads may be grouped.
        value: V, `(*batch, n_k, d_v)`.
        mask: which query may attend to which key, an array or a function of positions.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: B, what is added to the scores: an array, a function of positions, or a list of those.
        query_positions: where the queries stand; at the last positions of the keys if not given.
        key_positions: where the keys stand; 0, ..., n_k - 1 if not given.
        scale: the factor on the scores, 1/sqrt(d) if not given.
        sinks: one score for each head of queries, which joins the sum that divides its weights, `(h)`.
        soft_cap: the bound c on the scores before the bias, which become c * tanh(s / c).
        dropout_rate: 0, as FlexAttention drops no weights.
        rng: without effect.
        compiled: whether `torch.compile` makes a kernel of it; if not given, on accelerators only. Then, and
            where a bias learns, it must be an array or depend only on the distance. On processors without
            AVX-512, PyTorch 2.13's own kernel errs where a length is no multiple of 16.
        length: more than the largest distance, where tokens stand elsewhere than at 0, 1, ...; `n_k` if not
            given. A larger one gives NaN.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Raises:
        TypeError: if an array is missing or has a wrong or different dtype, or a bias reads queries and keys.
        ValueError: if shapes do not fit, weights are to be dropped, or what is asked for cannot be compiled
            or, on the CPU, differentiated.

    Examples:
        >>> from posattn.torch import ALiBi, MultiHeadAttention
        >>> layer = MultiHeadAttention(8, 2, bias=ALiBi(2), attention=attention)
        >>> layer.attention is attention
        True
    """
    call = checked(
        query,
        key,
        value,
        mask=mask,
        causal=causal,
        bias=bias,
        query_positions=query_positions,
        key_positions=key_positions,
        scale=scale,
        sinks=sinks,
        soft_cap=soft_cap,
        dropout_rate=dropout_rate,
        rng=rng,
    )
    if compiled is None:
        compiled = torch.compiler.is_compiling() or query.device.type != "cpu"
    refuse(call, compiled)
    return attend(call, runner(call, compiled), compiled, length)


def refuse(call, compiled):
    """Reject what FlexAttention cannot do."""
    if call.drops:
        raise ValueError(
            f"dropout_rate must be 0 with FlexAttention, which drops no weights, got {call.dropout_rate}"
        )
    pair = [x[..., :1] for x in call.positions]
    shape = (*call.query.shape[:-2], *(x.shape[-1] for x in pair))
    for part in map(of_positions_alone, call.biases):
        if isinstance(part, Tensor):
            contract.bias(part, (*call.query.shape[:-1], call.key.shape[-2]))
            continue
        contract.bias(part(*pair), shape)
        if (compiled or learns(part)) and not getattr(part, "relative", False):
            raise ValueError(
                "bias must be an array or depend only on the distance where FlexAttention is compiled or "
                f"the bias learns, got {part!r}"
            )
    parts = call.query, call.key, call.value, *call.biases
    if not trains(call.query.device) and any(map(learns, parts)):
        raise ValueError(
            "query, key, value and bias must need no gradients on the CPU, where FlexAttention has no "
            "backward pass: call it under torch.no_grad(), or use scaled_dot_product_attention"
        )


def learns(part):
    """Whether gradients of something are wanted."""
    learned = part.parameters() if isinstance(part, nn.Module) else [part]
    learned = (x for x in learned if isinstance(x, Tensor))
    return torch.is_grad_enabled() and any(x.requires_grad for x in learned)


def trains(device):
    """Whether FlexAttention has a backward pass on a device."""
    return device.type != "cpu"


def runner(call, compiled):
    """What runs FlexAttention; a compiler that is at work already takes it as it is."""
    if torch.compiler.is_compiling():
        return flex_attention
    return compiled_flex(call.query.device.type) if compiled else step_by_step


@cache
def compiled_flex(kind):
    """FlexAttention as a kernel for a kind of device, the same for all calls."""
    # what PyTorch 2.13 writes for CPUs is no program where lengths are left open
    return torch.compile(flex_attention, dynamic=False if kind == "cpu" else None)


def step_by_step(*arguments, **options):
    """FlexAttention without a kernel, and without its advice to compile one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        return flex_attention(*arguments, **options)


def attend(call, run, compiled, length):
    """Attention of a call, by `flex_attention` itself or a compiled one."""
    shape, n_k = call.query.shape, call.key.shape[-2]
    if 0 in (*shape[:-1], n_k):
        return call.query.new_zeros(*shape[:-1], call.value.shape[-1])
    key, value, options = call.key, call.value, {"scale": call.scale}
    if call.mask is not None or (call.causal and shape[-2] > 1):  # one query is the last
        options["block_mask"], used = block_mask_of(call)
        if call.mask is not None:  # the last query sees all that a mask shows
            key, value = (zero_unattended(x, used) for x in (key, value))
    if call.biases or call.soft_cap is not None:
        if length is None and (call.aligned or compiled or torch.is_grad_enabled()):
            length = max(shape[-2], n_k)
        options["score_mod"] = change_of(call, length)
    query, key, value = (in_four(x) for x in (call.query, key, value))
    if not torch.is_grad_enabled():  # the CPU wants none that could have gradients
        query, key, value = (x.detach() for x in (query, key, value))
    options["enable_gqa"] = query.shape[1] != key.shape[1]
    if call.sinks is None:
        out = run(query, key, value, **options)
        return out.reshape(*shape[:-1], value.shape[-1])
    out, sums = run(query, key, value, return_aux=AuxRequest(lse=True), **options)
    total = sums.lse.reshape(shape[:-1]).clamp(min=torch.finfo(sums.lse.dtype).min)
    kept = torch.sigmoid(total - call.sinks[..., None])
    return out.reshape(*shape[:-1], value.shape[-1]) * kept[..., None].to(out.dtype)


def change_of(call, length):
    """What a call does to its scores: first the cap, then the biases."""
    parts = [flat(part, call.query.shape[:-3]) for part in call.biases]
    made = {"length": length, "device": call.query.device}
    added = score_mod(parts, **placed(call), **made)
    return added if call.soft_cap is None else after_cap(added, call.soft_cap)


def after_cap(change, cap):
    """The same of scores that a cap bounds before."""

    def capped(score, b, h, q_idx, kv_idx):
        return change(cap * torch.tanh(score / cap), b, h, q_idx, kv_idx)

    return capped


def in_four(x):
    """Queries, keys or values with one batch axis."""
    return x.flatten(0, -4) if x.ndim > 3 else x[(None,) * (4 - x.ndim)]


def of_positions_alone(part):
    """Reject a bias that needs more than positions."""
    if hasattr(part, "scores"):
        raise TypeError(
            "bias must be a function of positions alone for FlexAttention, "
            f"got {type(part).__name__}, which reads queries and keys"
        )
    if not callable(part):
        contract.floating("bias", part)
    return part
