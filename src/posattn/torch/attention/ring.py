"""Ring attention: every process holds a shard of a sequence, and keys and values travel around it.

While a process reads one shard of keys, the next one arrives.
It holds a few shards, however many workers there are, and the scores of one tile: what the backward pass
needs of other shards goes round once more, and the gradients of keys and values with it until they are home.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.func import functional_call
from torch.nn import functional

from posattn import contract
from posattn.torch.attention.call import Positions, biases, total_bias
from posattn.torch.attention.definition import by_head
from posattn.torch.attention.masks import of_pairs, readable, zero_unattended
from posattn.torch.attention.query_tiles import learned_by, wide_dtype
from posattn.torch.validated import validated

__all__ = ["balanced_order", "ring_attention"]

BLOCK = {"cpu": 256}  # queries and keys of a tile: a few heads of it fit into a cache
LARGE = 1024  # where starting a program costs more than memory
MESSAGE = 1024  # bytes in which a worker describes its call

Bias = contract.PositionBias | contract.ContentBias


@validated
def balanced_order(
    n: int, workers: int, *, device: torch.device | str | None = None
) -> Integer[Tensor, " n"]:
    """The order in which tokens are spread over workers so that causal attention costs each the same.

    Twin of :func:`posattn.reference.balanced_order`; the result lives on `device`.

    Args:
        n: the number of tokens, a multiple of `2 * workers`.
        workers: W, at least 1.
        device: where the result lives.

    Returns:
        `(n)`, the positions 0 to n - 1.

    Examples:
        >>> balanced_order(8, 2)
        tensor([0, 1, 6, 7, 2, 3, 4, 5])
    """
    n, workers = contract.balanced(n, workers)
    pieces = torch.arange(n, device=device).reshape(2 * workers, n // (2 * workers))
    return torch.cat([pieces[:workers], pieces[workers:].flip(0)], dim=1).flatten()


@validated
def ring_attention(
    query: Float[Tensor, "*batch n_q d"],
    key: Float[Tensor, "*groups n_k d"],
    value: Float[Tensor, "*groups n_k d_v"],
    *,
    across: dist.ProcessGroup | DeviceMesh | None,
    mask: Bool[Tensor, "*#batch 1 n_k"] | contract.PositionMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Tensor, "... n_q"] | None = None,
    key_positions: Real[Tensor, "... n_k"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch n_q d_v"]:
    """Attention to a sequence that no worker holds as a whole.

    Twin of :func:`posattn.reference.ring_attention`: each process of `across` calls it with its own
    shard of every array, all of the same shapes, and gets its own shard of the result; the backward
    pass must run on all of them, too. Half precision is computed in float32.
    The first message of a call, 1 KiB from each worker to each, compares the shapes; then keys,
    values and positions travel around the ring, and in the backward pass once more with float32 gradients.
    Unlike `scaled_dot_product_attention`, it takes no sinks, no soft cap and no selection.
    A bias gets the gradient of the worker's own queries: that of the whole is the sum over workers.
    If a worker dies, the others raise, at the latest in their next call and after the timeout of
    their group.

    Args:
        query: Q, `(*batch, n_q, d)`, as all arrays the shard of this worker.
        key: K, `(*batch, n_k, d)`, of the same batch axes, width and dtype. The last batch axis
            is that of heads, and keys may have fewer: each head of keys then serves as many
            neighboring heads of queries (grouped heads).
        value: V, `(*batch, n_k, d_v)`, of the same batch axes as the keys and of the same
            dtype.
        across: the workers: a process group, a mesh of one axis, or None for all processes.
        mask: bool, True means may attend: which keys all queries may attend to, of a shape that
            broadcasts to `(*batch, 1, n_k)`, or a function of the positions of queries and keys
            that returns `(n_q, n_k)`, or one for each example if its positions are; it is called
            for some queries and some keys at a time.
        causal: hide the keys whose position is larger than that of the query.
        bias: what is added to the scores: a function of the positions of queries and keys, an
            object with a method `scores` that needs no other keys (see `MultiHeadAttention`), or
            a list of those, which are added up; called likewise. What it learns must be
            parameters or buffers of modules.
        query_positions: where the queries stand, `(n_q)`, or one row for each example, all
            heads alike. If not given, they stand where the keys do, and fewer queries at the
            last keys of the sequence.
        key_positions: where the keys stand, likewise; if not given, the shards follow each other:
            n_k * r, ..., n_k * (r + 1) - 1 on worker r.
        scale: the factor on the scores, 1/sqrt(d) if not given.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Examples:
        >>> alone = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}
        >>> torch.distributed.init_process_group("gloo", **alone)
        >>> value = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> options = {"across": None, "causal": True, "scale": math.log(3)}
        >>> ring_attention(torch.eye(2), torch.eye(2), value, **options)
        tensor([[1.0000, 0.0000],
                [0.2500, 1.5000]])
        >>> torch.distributed.destroy_process_group()
    """
    contract.attention(query, key, value, grouped=True)
    n_q, n_k = query.shape[-2], key.shape[-2]
    contract.shard_mask(mask, query.shape, n_k)
    contract.shard_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    parts = biases(bias)
    for part in parts:
        contract.shard_bias(part)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    group = _group(across)
    places = _places(query, key, query_positions, key_positions, group)
    allowed, known = (mask, None) if callable(mask) else (None, mask)
    ring = _Ring(group, causal, allowed, _Bias(parts, query.dtype), scale)
    tensors = query, key, value, *places, known, *learned_by(ring.bias).values()
    with torch.autocast(query.device.type, enabled=False):
        ring.bias.check(query, key, *places)
        ring.agree(*tensors)
        return _Attention.apply(ring, *tensors)


def _group(across):
    """The process group that is meant by `across`."""
    contract.ring_of_processes(dist.is_available() and dist.is_initialized())
    if isinstance(across, DeviceMesh):
        contract.group(across, known=True, axes=across.ndim)
        return across.get_group()
    group = dist.group.WORLD if across is None else across
    contract.group(across, isinstance(group, dist.ProcessGroup))
    return group


def _places(query, key, query_positions, key_positions, group):
    """Where the queries and keys of this worker stand, shard after shard if nothing else is given."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if query_positions is None:
        first = rank * n_q + size * (n_k - n_q)
        query_positions = (
            torch.arange(first, first + n_q, device=query.device)
            if key_positions is None
            else key_positions
        )
    if key_positions is None:
        key_positions = torch.arange(rank * n_k, (rank + 1) * n_k, device=key.device)
    return query_positions, key_positions


class _Bias(nn.Module):
    """What all parts of a bias add to the scores of a tile; what they learn is its own."""

    def __init__(self, parts, dtype):
        super().__init__()
        self.learned = nn.ModuleList(part for part in parts if isinstance(part, nn.Module))
        self.parts, self.dtype = parts, dtype
        self.relative = parts and all(getattr(part, "relative", False) for part in parts)

    def forward(self, query, key, here, there):
        if self.relative and _in_a_row(here) and _in_a_row(there):
            return self.by_distance(query, here, there)
        query, key = query.to(self.dtype), key.to(self.dtype)
        return total_bias(self.parts, query, key, (here, there))

    def by_distance(self, query, here, there):
        """Likewise of distances: a row of numbers, which each next query reads from one place before."""
        n_q, n_k = len(here), len(there)
        keys = torch.arange(1 - n_q, n_k, device=there.device) + there[0]
        row = sum(part(here[:1], keys) for part in self.parts)
        contract.bias(row[..., :n_k], (*query.shape[:-2], 1, n_k))
        return row[..., 0, :].to(wide_dtype(row)).unfold(-1, n_k, 1).flip(-2)

    def leaves(self, learned):
        """What it learns by name, as leaves of what is computed from it."""
        own = [x.detach().requires_grad_() for x in learned]
        return dict(zip(learned_by(self), own, strict=True))

    def check(self, query, key, here, there):
        """Try it on one query and one key, before others wait for the result."""
        pair = query[..., :1, :].detach(), key[..., :1, :].detach()
        fixed = {name: x.detach() for name, x in learned_by(self).items()}
        added = functional_call(self, fixed, (*pair, here[..., :1], there[..., :1]))
        contract.shard_gradient(added is None or not added.requires_grad)


@dataclass(frozen=True)
class _Ring:
    """The workers, and what they do to every tile."""

    group: dist.ProcessGroup
    causal: bool
    allowed: contract.PositionMask | None  # the mask, where it is a function
    bias: _Bias
    scale: float

    def agree(self, query, key, value, here, there, known, *learned):
        """Compare the calls of all workers, which else would wait for what never comes."""
        names = "query", "key", "value", "key_positions", "mask"
        given = zip(names, (query, key, value, there, known), strict=True)
        given = [(name, x) for name, x in given if x is not None]
        said = [f"{name} {contract.dtype(x)} {tuple(x.shape)}" for name, x in given]
        said += [] if self.allowed is None else ["mask a function"]
        said += [f"bias {type(part).__name__}" for part in self.bias.parts]
        learns = any(x.requires_grad for x in (query, key, value, *learned))
        said.append(f"gradient {torch.is_grad_enabled() and learns}")
        text = ", ".join([*said, f"causal {self.causal}", f"scale {self.scale}"])
        message = bytearray(text.encode().ljust(MESSAGE)[:MESSAGE])
        message = torch.frombuffer(message, dtype=torch.uint8).to(query.device)
        heard = [torch.empty_like(message) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(heard, message, group=self.group)
        contract.alike([bytes(x.tolist()).decode().rstrip() for x in heard])

    def pass_on(self, tensors):
        """Begin to send to the next worker, and to receive as much from the one before."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if size == 1:
            return tensors, []
        after, before = (
            dist.get_global_rank(self.group, (rank + step) % size) for step in (1, -1)
        )
        arriving = [x if x is None else torch.empty_like(x) for x in tensors]
        messages = []
        for x, y in zip(tensors, arriving, strict=True):
            if x is not None:
                messages.append(dist.P2POp(dist.isend, x, after, self.group))
                messages.append(dist.P2POp(dist.irecv, y, before, self.group))
        return arriving, dist.batch_isend_irecv(messages)

    def around(self, *shard):
        """The shards of all workers, the own one first; while one is read, the next one arrives."""
        shard = [x if x is None else x.contiguous() for x in shard]
        for left in reversed(range(dist.get_world_size(self.group))):
            following, work = self.pass_on(shard) if left else (shard, [])
            yield shard
            _wait(work)
            shard = following

    def tiles(self, query, here, key, value, there, known):
        """The tiles in which a query may see a key: places, what is seen, None for all, keys and values.

        Keys and values are zero where none of the queries may see them.
        """
        size = BLOCK.get(key.device.type, LARGE)
        keys = list(_blocks(there, size))
        for rows, first, last in _blocks(here, size):
            for columns, earliest, latest in keys:
                if self.causal and earliest > last:
                    continue
                positions = Positions(here[..., rows], there[..., columns])
                q, k, v = query[..., rows, :], key[..., columns, :], value[..., columns, :]
                seen = None if known is None else known[..., columns]
                rules = self.allowed, _past if self.causal and latest > first else None
                for rule in (rule for rule in rules if rule is not None):
                    found = of_pairs(rule, positions, (*q.shape[:-1], k.shape[-2]))
                    seen = found if seen is None else seen & found
                if seen is None or not readable(seen) or seen.any():
                    k, v = (zero_unattended(x.to(wide_dtype(x)), seen) for x in (k, v))
                    yield rows, columns, positions, seen, k, v

    def scores(self, query, key, positions, seen, learned):
        """The scores of a tile, with this instead of what the bias learns."""
        scores = by_head(query * self.scale, key.mT)
        added = functional_call(self.bias, learned, (query, key, *positions))
        scores = scores if added is None else scores + added.to(scores.dtype)
        return scores if seen is None else scores.masked_fill(~seen, -math.inf)


class _Attention(torch.autograd.Function):
    """The online softmax around the ring, and its derivative."""

    @staticmethod
    def forward(ctx, ring, query, key, value, here, there, known, *learned):
        wide = wide_dtype(query)
        mixed = query.new_zeros((*query.shape[:-1], value.shape[-1]), dtype=wide)
        total = query.new_zeros((*query.shape[:-1], 1), dtype=wide)
        peak = torch.full_like(total, torch.finfo(wide).min)
        for shard in ring.around(key, value, there, known):
            for rows, _, positions, seen, k, v in ring.tiles(query, here, *shard):
                q, top, sum_, mix = (x[..., rows, :] for x in (query, peak, total, mixed))
                scores = ring.scores(q.to(wide), k, positions, seen, {})
                larger = torch.maximum(top, scores.amax(-1, keepdim=True))
                shrink, exp = torch.exp(top - larger), _exp(scores - larger)
                sum_.mul_(shrink).add_(exp.sum(-1, keepdim=True))
                mix.mul_(shrink).add_(by_head(exp, v))
                top.copy_(larger)
        total.masked_fill_(total == 0, 1)
        out = (mixed / total).to(query.dtype)
        ctx.ring = ring
        own = query, key, value, here, there, known
        ctx.save_for_backward(*own, out, peak + total.log(), *learned)
        return out

    @staticmethod
    def backward(ctx, grad):
        contract.first_derivative(torch.is_grad_enabled())
        ring = ctx.ring
        query, key, value, here, there, known, out, level, *learned = ctx.saved_tensors
        grad = grad.to(level.dtype)
        mean = (grad * out).sum(-1, keepdim=True)
        bias = ring.bias.leaves(learned)
        learned = list(bias.values())
        sums = [torch.zeros_like(x, dtype=wide_dtype(x)) for x in (query, *learned)]
        travelled = (0, 0)
        work = []
        for shard in ring.around(key, value, there, known):
            grown = [torch.zeros_like(x, dtype=level.dtype) for x in shard[:2]]
            for rows, columns, positions, seen, k, v in ring.tiles(query, here, *shard):
                q, top, pull, pulled = (x[..., rows, :] for x in (query, level, grad, mean))
                leaves = q.to(level.dtype).requires_grad_(), k.detach().requires_grad_()
                with torch.enable_grad():
                    scores = ring.scores(*leaves, positions, seen, bias)
                weights = _exp(scores.detach() - top)
                change = weights * (by_head(pull, v.mT) - pulled)
                slopes = torch.autograd.grad(
                    scores, [*leaves, *learned], change, materialize_grads=True
                )
                sums[0][..., rows, :] += slopes[0]
                grown[0][..., columns, :] += slopes[1]
                grown[1][..., columns, :] += _fold(weights, v).mT @ _fold(pull, v)
                for each, slope in zip(sums[1:], slopes[2:], strict=True):
                    each += slope
            _wait(work)
            grown = [x.add_(y) for x, y in zip(grown, travelled, strict=True)]
            travelled, work = ring.pass_on(grown)
        _wait(work)
        to_query, *to_bias = sums
        to_bias = (x.to(y.dtype) for x, y in zip(to_bias, learned, strict=True))
        to_heads = (x.to(query.dtype) for x in (to_query, *travelled))
        return None, *to_heads, None, None, None, *to_bias


def _exp(x):
    """Weights beside one of 1; those that are lost in rounding are 0: what has no normal product is slow."""
    least = math.log(torch.finfo(x.dtype).tiny) / 2
    return functional.threshold(x, least, -math.inf, inplace=True).exp_()


def _blocks(positions, size):
    """Places of at most `size` tokens, and their first and last positions."""
    for start in range(0, positions.shape[-1] if positions.numel() else 0, size):
        block = positions[..., start : start + size]
        yield slice(start, start + size), *torch.stack(block.aminmax()).tolist()


def _in_a_row(positions):
    """Whether tokens are known to stand one after the other, alike in all examples."""
    one_by_one = positions.ndim == 1 and len(positions) > 0 and readable(positions)
    return one_by_one and bool((positions.diff() == 1).all())


def _past(here, there):
    """A mask that lets each query see the keys whose position is not larger than its own."""
    return there[..., None, :] <= here[..., :, None]


def _fold(x, like):
    """Put the heads that share keys below each other, as many as serve one head of `like`."""
    if x.ndim < 3 or x.shape[-3] == like.shape[-3]:
        return x
    return x.unflatten(-3, (like.shape[-3], -1)).flatten(-3, -2)


def _wait(work):
    for each in work:
        each.wait()
