"""Causal attention with and without positions, against the fused attention of each framework.

Theirs knows no position: it is the limit of what a scheme may cost.
"""

from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

import posattn.jax
import posattn.torch
from posattn import reference
from tests.nightly.benchmarks import machine
from tests.nightly.benchmarks.measuring import Case, Contender, along, error, plain, rows

PLAIN, ROTARY, ALIBI, T5 = SCHEMES = ("no position", "rotary", "ALiBi", "T5")
SHAPE = (1, 4, 8192, 64)
BOUND = 1e-5
GRADIENT = 1e-4  # relative to the length of the gradient
BUCKETS = {"num_buckets": 32, "max_distance": 128, "bidirectional": False}
FAR = {"max_distance": 128, "bidirectional": False}


@cache
def drawn(shape):
    """Queries, keys, values and what their outputs are multiplied with; the last row-wise, see `rows`."""
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(4, *shape)).astype(np.float32)
    seen = np.zeros(shape[-2], bool)
    seen[rows(shape[-2])] = True
    arrays[3] *= seen[:, None]
    return arrays


def table(heads):
    """T5's numbers, one for each bucket and head."""
    return np.random.default_rng(1).normal(size=(32, heads)).astype(np.float32)


def exact(scheme, query, key, value):
    """Some rows of the right result, in float64 (and of a complex one, for its derivative)."""
    where, heads = rows(key.shape[-2]), key.shape[-3]
    query = query[..., where, :]
    if scheme == ROTARY:
        query, key = reference.rotate(query, where), reference.rotate(key)
    bias = {
        ALIBI: reference.ALiBi(heads),
        T5: reference.T5Bias(table(heads).astype(float), **FAR),
    }.get(scheme)
    mask = np.arange(key.shape[-2]) <= where[:, None]
    return reference.scaled_dot_product_attention(
        query, key, value, mask=mask, bias=bias, query_positions=where
    )


@cache
def right(scheme, shape):
    """The right rows."""
    return exact(scheme, *map(plain, drawn(shape)[:3]))


def forward(scheme, shape, got):
    """The error of some rows of an output."""
    return error(got[..., rows(shape[-2]), :], right(scheme, shape))


def backward(scheme, shape, got):
    """The error of gradients along a direction, relative to their length."""
    *arrays, cotangent = drawn(shape)
    return along(partial(exact, scheme), arrays, cotangent, got)


def checks(shape, slopes):
    """What finds the error of an output, or of gradients."""
    return partial(backward if slopes else forward, shape=shape)


def torch_attention(scheme, heads, device):
    """Our attention with a scheme."""
    ours = partial(posattn.torch.scaled_dot_product_attention, causal=True)
    if scheme == ROTARY:
        rotate = posattn.torch.Rotary()
        return lambda q, k, v: ours(rotate(q), rotate(k), v)
    if scheme == T5:
        bias = posattn.torch.T5Bias(heads, **BUCKETS).to(device)
        bias.table.data = torch.tensor(table(heads), device=device)
        bias.requires_grad_(False)
        return partial(ours, bias=bias)
    return partial(ours, bias=posattn.torch.ALiBi(heads)) if scheme == ALIBI else ours


def flex(scheme, shape, device):
    """FlexAttention, compiled, with the scheme on its scores."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, n = shape[-3:-1]
    slopes = posattn.torch.alibi_slopes(heads, dtype=torch.float32, device=device)
    bucket = reference.t5_bucket(-np.arange(n), **BUCKETS)
    by_distance = torch.tensor(table(heads)[bucket].T.copy(), device=device)

    def alibi(score, b, h, q, k):
        return score - slopes[h] * (q - k).abs()

    def t5(score, b, h, q, k):
        return score + by_distance[h, (q - k).clamp(min=0)]

    causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, n, n, device=device)
    change = {ALIBI: alibi, T5: t5}.get(scheme)
    return partial(torch.compile(flex_attention), score_mod=change, block_mask=causal)


def in_torch(scheme, shape, slopes=False):
    """Ours, the fused attention, and FlexAttention where it knows the scheme."""
    device = machine.device()
    *inputs, cotangent = (torch.tensor(x, device=device) for x in drawn(shape))
    check = checks(shape, slopes)

    def entered(attend, scheme=scheme, limit=False):
        def call():
            if not slopes:
                with torch.no_grad():
                    return attend(*inputs)
            leaves = [x.detach().requires_grad_() for x in inputs]
            return torch.autograd.grad(attend(*leaves), leaves, cotangent)

        return Contender(call, lambda got: check(scheme, got=got), limit=limit)

    sdpa = partial(functional.scaled_dot_product_attention, is_causal=True)
    contenders = {"ours": entered(torch_attention(scheme, shape[-3], device))}
    contenders["SDPA, no position"] = entered(sdpa, PLAIN, scheme != PLAIN)
    if scheme != ROTARY and not slopes:
        contenders["FlexAttention"] = entered(flex(scheme, shape, device))
    return contenders


def jax_attention(scheme, heads):
    """Our attention with a scheme."""
    ours = partial(posattn.jax.scaled_dot_product_attention, causal=True)
    if scheme == ROTARY:
        rotate = posattn.jax.Rotary()
        return lambda q, k, v: ours(rotate(q), rotate(k), v)
    if scheme == T5:
        return partial(ours, bias=posattn.jax.T5Bias(jnp.asarray(table(heads)), **FAR))
    return partial(ours, bias=posattn.jax.ALiBi(heads)) if scheme == ALIBI else ours


def in_jax(scheme, shape, slopes=False):
    """Ours beside `jax.nn.dot_product_attention`, both compiled; theirs wants heads after tokens."""
    *inputs, cotangent = map(jnp.asarray, drawn(shape))
    check = checks(shape, slopes)

    def entered(attend, scheme=scheme, theirs=False):
        def turn(x):
            return x.swapaxes(1, 2) if theirs else x

        def weighted(arrays, cotangent):
            return (attend(*arrays) * cotangent).sum()

        function = jax.grad(weighted) if slopes else lambda arrays, _: attend(*arrays)
        given = tuple(map(turn, inputs)), turn(cotangent)
        call = partial(jax.jit(function), *jax.block_until_ready(given))
        limit = theirs and scheme != named
        return Contender(
            call, lambda got: check(scheme, got=jax.tree.map(turn, got)), limit=limit
        )

    named = scheme
    fused = partial(jax.nn.dot_product_attention, is_causal=True)
    ours = entered(jax_attention(scheme, shape[-3]))
    return {"ours": ours, "jax.nn, no position": entered(fused, PLAIN, True)}


def code(column, scheme):
    """The modules that a scheme needs."""
    names = {PLAIN: (), ROTARY: ("rotary",), ALIBI: ("alibi",), T5: ("t5",)}[scheme]
    home = f"posattn.{column}"
    positions = (f"{home}.position.{name}" for name in names)
    return f"{home}.attention.attention", *positions


def cases():
    """What is measured."""
    found = []
    columns = ("PyTorch", "torch", in_torch), ("JAX", "jax", in_jax)
    for (name, column, make), scheme, slopes in product(columns, SCHEMES, (False, True)):
        title = f"{name}, {scheme}" + ", with gradients" * slopes
        setting, bound = f"causal, {SHAPE}, float32", GRADIENT if slopes else BOUND
        work = partial(make, scheme, SHAPE, slopes)
        found.append(Case("attention", title, setting, code(column, scheme), work, bound))
    return found
