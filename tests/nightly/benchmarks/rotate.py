"""Rotary embedding of queries, against a plain copy of them."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

import posattn.jax
import posattn.torch
from posattn import reference
from tests.nightly.benchmarks import machine
from tests.nightly.benchmarks.measuring import Case, Contender, error

SHAPE = (4, 8, 2048, 64)
SETTING = f"{SHAPE}, float32"
CALLS = 100  # one takes too little to be measured by itself
BOUND = 5e-4  # the tables of others are float32 from the beginning


@cache
def drawn():
    """What is rotated, in float32."""
    return np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def rotated(layout, got):
    """The error of rotated queries."""
    return error(got, reference.rotate(drawn().astype(float), layout=layout))


def copied(got):
    """The error of a copy."""
    return error(got, drawn())


def in_torch(layout, compiled):
    """Ours beside a copy and, as they are usually called, beside the others of this layout."""
    x = torch.tensor(drawn(), device=machine.device())
    ours = posattn.torch.Rotary(layout=layout)
    contenders = {
        "ours": Contender(
            partial(torch.compile(ours) if compiled else ours, x), RIGHT[layout]
        ),
        "a copy": Contender(x.clone, copied, limit=True),
    }
    if compiled:
        return contenders
    return contenders | {
        name: Contender(call, RIGHT[layout]) for name, call in THEIRS[layout](x).items()
    }


def in_pairs(x):
    """The others that turn neighbours."""
    from rotary_embedding_torch import RotaryEmbedding
    from x_transformers import x_transformers

    n, dim = x.shape[-2:]
    # theirs are made once for all layers, so we do not count them
    made = x_transformers.RotaryEmbedding(dim).to(x.device)
    frequencies, scale = made(torch.arange(n, device=x.device))
    embedding = RotaryEmbedding(dim).to(x.device)
    return {
        "x-transformers": lambda: x_transformers.apply_rotary_pos_emb(
            x, frequencies, scale
        ),
        "rotary-embedding-torch": lambda: embedding.rotate_queries_or_keys(x).detach(),
    }


def in_halves(x):
    """The one that turns an entry with that of the other half."""
    from transformers.models.llama import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    n, dim = x.shape[-2:]
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1)
    # theirs, too, are made once
    made = llama.LlamaRotaryEmbedding(config).to(x.device)
    tables = made(x, torch.arange(n, device=x.device)[None])
    return {"transformers": lambda: llama.apply_rotary_pos_emb(x, x[:, :0], *tables)[0]}


def in_jax(layout, compiled):
    """Ours, compiled or as it is, beside a copy and, of the same layout, beside Equinox."""
    import equinox

    x = jnp.asarray(drawn())
    ours, copy = posattn.jax.Rotary(layout=layout), jnp.copy
    if compiled:
        ours, copy = jax.jit(ours), jax.jit(copy)
    contenders = {
        "ours": Contender(partial(ours, x), RIGHT[layout]),
        "a copy": Contender(partial(copy, x), copied, limit=True),
    }
    if compiled and layout == "half":
        rotate = equinox.nn.RotaryPositionalEmbedding(SHAPE[-1])
        theirs = jax.jit(jax.vmap(jax.vmap(rotate)))
        contenders["Equinox"] = Contender(partial(theirs, x), RIGHT[layout])
    return contenders


RIGHT = {layout: partial(rotated, layout) for layout in ("interleaved", "half")}
THEIRS = {"interleaved": in_pairs, "half": in_halves}


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
    columns = {
        "PyTorch": ("torch", in_torch, posattn.torch, torch.tensor),
        "JAX": ("jax", in_jax, posattn.jax, jnp.asarray),
    }
    found = []
    for framework, (column, make, library, array) in columns.items():
        code = (f"posattn.{column}.position.rotary",)
        for layout in RIGHT:
            for compiled, how in ((False, ""), (True, ", compiled")):
                work = partial(make, layout, compiled)
                said = f"{framework}, {layout}{how}"
                found.append(Case("rotate", said, SETTING, code, work, BOUND))
        found.append(
            Case(
                "rotate",
                f"{framework}, its checks",
                f"(1, 8, 1, 64), float32, {CALLS} calls",
                (*code, "posattn.contract.annotations"),
                partial(checked, library, array),
                BOUND,
            )
        )
    return found
