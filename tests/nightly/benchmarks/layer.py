"""The layer, with and without positions, beside the layers of others, which have none."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import posattn.jax
import posattn.torch
from posattn import reference
from tests.nightly.benchmarks import machine
from tests.nightly.benchmarks.measuring import Case, Contender, along, error, rows

SHAPE, HEADS = (2, 2048, 512), 8
SETTING = f"causal, {SHAPE}, {HEADS} heads, float32"
PLAIN, ROTARY, ALIBI = SCHEMES = ("no position", "rotary", "ALiBi")
OWN = "PyTorch's layer"
FORWARD, BACKWARD = 1e-5, 1e-4  # the second relative to the length of the gradient


@cache
def drawn():
    """Tokens, and what the outputs are multiplied with, zero but in some rows."""
    x, cotangent = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)
    seen = np.zeros(SHAPE[-2], bool)
    seen[rows(SHAPE[-2])] = True
    return x, cotangent * seen[:, None]


@cache
def weights():
    """Four matrices for `x @ weight`."""
    dim = SHAPE[-1]
    drawn = np.random.default_rng(1).normal(size=(4, dim, dim)) / dim**0.5
    return [w.astype(np.float32) for w in drawn]


def options(column, scheme):
    """What a column's layer is given for a scheme."""
    return {
        PLAIN: {},
        ROTARY: {"rotate": column.Rotary()},
        ALIBI: {"bias": column.ALiBi(HEADS)},
    }[scheme]


def exact(scheme, x):
    """Some rows of the right output, in float64 (or of a complex one)."""
    where = rows(SHAPE[-2])
    held = [w.astype(float) for w in weights()]
    layer = reference.MultiHeadAttention(
        *held, num_heads=HEADS, **options(reference, scheme)
    )
    mask = np.arange(SHAPE[-2]) <= where[:, None]
    return layer(x[:, where], x, mask=mask, query_positions=where)


@cache
def right(scheme):
    """The right rows."""
    return exact(scheme, drawn()[0].astype(float))


def forward(scheme, got):
    """The error of some rows of an output."""
    return error(got[:, rows(SHAPE[-2])], right(scheme))


def backward(scheme, got):
    """The error of the tokens' gradient along a direction, relative to its length."""
    x, cotangent = drawn()
    return along(partial(exact, scheme), [x], cotangent, got[:1])


def torch_layer(scheme):
    """Our layer in PyTorch."""
    layer = posattn.torch.MultiHeadAttention(
        SHAPE[-1], HEADS, **options(posattn.torch, scheme)
    )
    for name, w in zip(("query", "key", "value", "output"), weights(), strict=True):
        layer.get_submodule(name).weight.data = torch.tensor(w.T.copy())
    return layer


def their_torch_layers():
    """The layers of PyTorch and of x-transformers, with the same weights, as functions of tokens."""
    from x_transformers.x_transformers import Attention

    q, k, v, out = (torch.tensor(w.T.copy()) for w in weights())
    own = nn.MultiheadAttention(SHAPE[-1], HEADS, bias=False, batch_first=True)
    own.in_proj_weight.data, own.out_proj.weight.data = torch.cat([q, k, v]), out
    theirs = Attention(
        SHAPE[-1], dim_head=SHAPE[-1] // HEADS, heads=HEADS, causal=True, flash=True
    )
    for name, w in {"to_q": q, "to_k": k, "to_v": v, "to_out": out}.items():
        getattr(theirs, name).weight.data = w
    own, theirs = (layer.to(machine.device()).eval() for layer in (own, theirs))
    hidden = nn.Transformer.generate_square_subsequent_mask(SHAPE[-2], machine.device())

    def attend(x):
        return own(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[0]

    return {OWN: (own, attend), "x-transformers": (theirs, theirs)}


def of_torch(scheme, slopes, layer, attend, limit=False):
    """A layer of PyTorch, with the gradients of its tokens and its weights if they are asked for."""
    x, cotangent = (torch.tensor(a, device=machine.device()) for a in drawn())

    def call():
        if not slopes:
            with torch.no_grad():
                return attend(x)
        given = x.detach().requires_grad_()
        return torch.autograd.grad(attend(given), [given, *layer.parameters()], cotangent)

    return Contender(call, partial(backward if slopes else forward, scheme), limit=limit)


def of_jax(slopes, layer, attend):
    """A compiled layer of JAX, likewise; `layer` is a pytree of its weights."""
    x, cotangent = map(jnp.asarray, drawn())

    def weighted(x, layer):
        return (attend(layer, x) * cotangent).sum()

    function = jax.jit(jax.grad(weighted, (0, 1)) if slopes else lambda x, a: attend(a, x))
    return Contender(
        partial(function, x, layer), partial(backward if slopes else forward, PLAIN)
    )


def in_torch(scheme, slopes):
    """Ours beside theirs."""
    ours = torch_layer(scheme).to(machine.device())
    contenders = {"ours": of_torch(scheme, slopes, ours, partial(ours, causal=True))}
    for name, (layer, attend) in their_torch_layers().items():
        said = name if scheme == PLAIN else f"{name}, no position"
        if scheme == PLAIN or name == OWN:
            contenders[said] = of_torch(PLAIN, slopes, layer, attend, limit=scheme != PLAIN)
    return contenders


def in_jax(slopes):
    """Ours beside our own layer in PyTorch, and those of Flax and Equinox."""
    import equinox
    from flax import nnx

    q, k, v, out = held = [jnp.asarray(w) for w in weights()]
    dim, width = SHAPE[-1], SHAPE[-1] // HEADS
    ours = posattn.jax.MultiHeadAttention(*held, num_heads=HEADS)
    mask = jnp.tri(SHAPE[-2], dtype=bool)

    flax = nnx.MultiHeadAttention(
        HEADS, dim, use_bias=False, decode=False, rngs=nnx.Rngs(0)
    )
    for name, w in {"query": q, "key": k, "value": v}.items():
        getattr(flax, name).kernel[...] = w.reshape(dim, HEADS, width)
    flax.out.kernel[...] = out.reshape(HEADS, width, dim)
    graph, state = nnx.split(flax)

    def of_flax(state, x):
        return nnx.merge(graph, state)(x, mask=mask[None, None])

    made = equinox.nn.MultiheadAttention(HEADS, dim, key=jax.random.key(0))
    names = ("query_proj", "key_proj", "value_proj", "output_proj")
    made = equinox.tree_at(
        lambda layer: [getattr(layer, n).weight for n in names], made, [w.T for w in held]
    )
    arrays, rest = equinox.partition(made, equinox.is_array)

    def of_equinox(arrays, x):
        layer = equinox.combine(arrays, rest)
        return jax.vmap(lambda x: layer(x, x, x, mask))(x)

    twin = torch_layer(PLAIN).to(machine.device())
    return {
        "ours": of_jax(slopes, ours, lambda layer, x: layer(x, causal=True)),
        "ours in PyTorch": of_torch(PLAIN, slopes, twin, partial(twin, causal=True)),
        "Flax NNX": of_jax(slopes, state, of_flax),
        "Equinox": of_jax(slopes, arrays, of_equinox),
    }


def cases():
    """What this machine can measure."""
    found = []
    for slopes in (False, True):
        bound, tail = (BACKWARD, ", with gradients") if slopes else (FORWARD, "")
        for scheme in SCHEMES:
            names = {PLAIN: (), ROTARY: ("rotary",), ALIBI: ("alibi",)}[scheme]
            code = (
                "posattn.torch.models.multi_head",
                *(f"posattn.torch.position.{name}" for name in names),
            )
            make = partial(in_torch, scheme, slopes)
            found.append(
                Case("layer", f"PyTorch, {scheme}{tail}", SETTING, code, make, bound)
            )
        code = ("posattn.jax.models.multi_head", "posattn.torch.models.multi_head")
        make = partial(in_jax, slopes)
        found.append(Case("layer", f"JAX, no position{tail}", SETTING, code, make, bound))
    return found
