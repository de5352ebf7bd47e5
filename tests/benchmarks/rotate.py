"""Rotary embedding of queries, against a plain copy of them."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

import posattn.jax
import posattn.torch
from posattn import reference
from tests.benchmarks import machine
from tests.benchmarks.measuring import Case, Contender, error

SHAPE = (4, 8, 2048, 64)
SETTING = f"{SHAPE}, float32"
CALLS = 100  # one takes too little to be measured by itself
BOUND = 5e-4  # the tables of others are float32 from the beginning


@cache
def drawn():
    """What is rotated, in float32."""
    return np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def turned(layout, got):
    """The error of rotated queries."""
    return error(got, reference.rotate(drawn().astype(float), layout=layout))


def copied(got):
    """The error of a copy."""
    return error(got, drawn())


pairs, halves = partial(turned, "interleaved"), partial(turned, "half")


def in_torch(compiled):
    """Ours beside a copy and, as they are usually called, beside the others."""
    from rotary_embedding_torch import RotaryEmbedding
    from transformers.models.llama import LlamaConfig
    from transformers.models.llama import modeling_llama as llama
    from x_transformers import x_transformers

    x = torch.tensor(drawn(), device=machine.device())
    n, dim = x.shape[-2:]
    ours = posattn.torch.Rotary().to(x.device)
    contenders = {
        "ours": Contender(partial(torch.compile(ours) if compiled else ours, x), pairs),
        "a copy": Contender(x.clone, copied, limit=True),
    }
    if compiled:
        return contenders
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1)
    where = torch.arange(n, device=x.device)
    # theirs are made once for all layers, so we do not count them
    tables = llama.LlamaRotaryEmbedding(config).to(x.device)(x, where[None])
    frequencies, scale = x_transformers.RotaryEmbedding(dim).to(x.device)(where)
    embedding = RotaryEmbedding(dim).to(x.device)
    return contenders | {
        "transformers": Contender(
            lambda: llama.apply_rotary_pos_emb(x, x[:, :0], *tables)[0], halves
        ),
        "x-transformers": Contender(
            lambda: x_transformers.apply_rotary_pos_emb(x, frequencies, scale), pairs
        ),
        "rotary-embedding-torch": Contender(
            lambda: embedding.rotate_queries_or_keys(x).detach(), pairs
        ),
    }


def in_jax(compiled):
    """Ours, compiled or as it is, beside a copy and Equinox."""
    import equinox

    x = jnp.asarray(drawn())
    ours, copy = posattn.jax.Rotary(), jnp.copy
    if compiled:
        ours, copy = jax.jit(ours), jax.jit(copy)
    contenders = {
        "ours": Contender(partial(ours, x), pairs),
        "a copy": Contender(partial(copy, x), copied, limit=True),
    }
    if compiled:
        rotate = equinox.nn.RotaryPositionalEmbedding(SHAPE[-1])
        theirs = jax.jit(jax.vmap(jax.vmap(rotate)))
        contenders["Equinox"] = Contender(partial(theirs, x), halves)
    return contenders


def checked(column, array):
    """A call with what looks at its arguments, beside the same call without: for one token, many times."""
    token, where = drawn()[:1, :, :1], np.array([7])
    right = partial(one_token, reference.rotate(token.astype(float), where))
    calls = {"ours": column.rotate, "without its checks": column.rotate.__wrapped__}
    return {
        name: Contender(
            partial(repeated, call, array(token), array(where)), right, limit=name != "ours"
        )
        for name, call in calls.items()
    }


def repeated(call, x, where):
    """The result of the last of many calls."""
    for _ in range(CALLS):
        result = call(x, where)
    return result


def one_token(want, got):
    """The error of a rotated token."""
    return error(got, want)


def cases():
    """What this machine can measure."""
    torch_code, jax_code = ("posattn.torch.rotary",), ("posattn.jax.rotary",)
    return [
        Case("rotate", "PyTorch", SETTING, torch_code, partial(in_torch, False), BOUND),
        Case(
            "rotate",
            "PyTorch, compiled",
            SETTING,
            torch_code,
            partial(in_torch, True),
            BOUND,
        ),
        Case(
            "rotate",
            "PyTorch, its checks",
            f"(1, 8, 1, 64), float32, {CALLS} calls",
            (*torch_code, "posattn.contract.border"),
            partial(checked, posattn.torch, torch.tensor),
            BOUND,
        ),
        Case(
            "rotate",
            "JAX, its checks",
            f"(1, 8, 1, 64), float32, {CALLS} calls",
            (*jax_code, "posattn.contract.border"),
            partial(checked, posattn.jax, jnp.asarray),
            BOUND,
        ),
        Case("rotate", "JAX", SETTING, jax_code, partial(in_jax, False), BOUND),
        Case("rotate", "JAX, compiled", SETTING, jax_code, partial(in_jax, True), BOUND),
    ]
