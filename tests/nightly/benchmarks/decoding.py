"""Decoding token by token after a prompt, with our cache, without one, and with that of transformers."""

from copy import deepcopy
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

DIM, HEADS, PROMPT, STEPS = 512, 8, 1024, 32
N = PROMPT + STEPS
SETTING = (
    f"1 example, width {DIM}, {HEADS} rotated heads, {STEPS} tokens after {PROMPT}, float32"
)
BOUND = 5e-4  # the angles of transformers are float32 from the beginning
CODE = ("models.multi_head", "attention.cache", "position.rotary")


@cache
def drawn():
    """Tokens, and four matrices for `x @ weight`."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, N, DIM)).astype(np.float32)
    weights = rng.normal(size=(4, DIM, DIM)) / DIM**0.5
    return x, [w.astype(np.float32) for w in weights]


@cache
def right():
    """The right outputs of the tokens after the prompt."""
    x, weights = drawn()
    layer = reference.MultiHeadAttention(
        *(w.astype(float) for w in weights),
        num_heads=HEADS,
        rotate=partial(reference.rotate, layout="half"),
    )
    where = np.arange(PROMPT, N)
    mask = np.arange(N) <= where[:, None]
    return layer(
        x[:, where].astype(float), x.astype(float), mask=mask, query_positions=where
    )


def check(got):
    """The error of the outputs, which are a list."""
    return max(error(one, right()[:, [i]]) for i, one in enumerate(got))


def their_attention(x):
    """The attention of Llama with our weights, and its angles."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    config = LlamaConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        max_position_embeddings=N,
    )
    config._attn_implementation = "sdpa"
    theirs = llama.LlamaAttention(config, 0).to(x.device).eval()
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    for name, w in zip(names, drawn()[1], strict=True):
        getattr(theirs, name).weight.data = torch.tensor(w.T.copy(), device=x.device)
    where = torch.arange(N, device=x.device)[None]
    return config, theirs, llama.LlamaRotaryEmbedding(config).to(x.device)(x, where)


def in_torch():
    """Our cache beside reading all again and the two caches of transformers, on the same weights."""
    from transformers import DynamicCache, StaticCache

    x = torch.tensor(drawn()[0], device=machine.device())
    layer = posattn.torch.MultiHeadAttention(
        DIM, HEADS, rotate=posattn.torch.Rotary(layout="half")
    )
    for name, w in zip(("query", "key", "value", "output"), drawn()[1], strict=True):
        layer.get_submodule(name).weight.data = torch.tensor(w.T.copy())
    layer.to(x.device)
    config, theirs, (cos, sin) = their_attention(x)

    def read(cache):
        return layer(x[:, :PROMPT], cache=cache)[1]

    def ours(cache):
        out = []
        for t in range(PROMPT, N):
            one, cache = layer(x[:, t : t + 1], cache=cache)
            out.append(one)
        return out

    def again():
        return [layer(x[:, : t + 1], causal=True)[:, -1:] for t in range(PROMPT, N)]

    def step(cache, start, stop):
        hidden = None
        if stop - start > 1 or isinstance(cache, StaticCache):
            keys = torch.arange(
                N if isinstance(cache, StaticCache) else stop, device=x.device
            )
            hidden = (keys <= torch.arange(start, stop, device=x.device)[:, None])[
                None, None
            ]
        angles = cos[:, start:stop], sin[:, start:stop]
        return theirs(x[:, start:stop], angles, hidden, past_key_values=cache)[0]

    def transformers(cache):
        return [step(cache, t, t + 1) for t in range(PROMPT, N)]

    with torch.no_grad():
        empty = posattn.torch.KVCache.init((1,), HEADS, N, DIM // HEADS, device=x.device)
        held = {"ours": read(empty), "dynamic": DynamicCache(config=config)}
        held["static"] = StaticCache(config, max_cache_len=N)
        for name in ("dynamic", "static"):
            step(held[name], 0, PROMPT)
    entries = {
        "ours": (ours, "ours"),
        "transformers, DynamicCache": (transformers, "dynamic"),
        "transformers, StaticCache": (transformers, "static"),
    }

    found = {
        name: Contender(
            torch.no_grad()(call), check, prepare=lambda kept=kept: (deepcopy(held[kept]),)
        )
        for name, (call, kept) in entries.items()
    }
    return found | {"reading all again": Contender(torch.no_grad()(again), check)}


def in_jax():
    """Our cache beside reading all again, each with one compilation for all steps."""
    x = jnp.asarray(drawn()[0])
    layer = posattn.jax.MultiHeadAttention(
        *map(jnp.asarray, drawn()[1]),
        num_heads=HEADS,
        rotate=posattn.jax.Rotary(layout="half"),
    )
    empty = posattn.jax.KVCache.init((1,), HEADS, N, DIM // HEADS)
    held = jax.jit(layer)(x[:, :PROMPT], cache=empty)[1]
    tokens = [x[:, t : t + 1] for t in range(PROMPT, N)]
    advance = jax.jit(lambda token, cache: layer(token, cache=cache), donate_argnums=1)
    whole = jax.jit(
        lambda x, t: jax.lax.dynamic_slice_in_dim(layer(x, causal=True), t, 1, 1)
    )

    def ours(cache):
        out = []
        for token in tokens:
            one, cache = advance(token, cache)
            out.append(one)
        return out

    def again():
        return [whole(x, t) for t in range(PROMPT, N)]

    copies = Contender(ours, check, prepare=lambda: (jax.tree.map(jnp.copy, held),))
    return {"ours": copies, "reading all again": Contender(again, check)}


def cases():
    """What this machine can measure."""
    return [
        Case(
            "decoding",
            name,
            SETTING,
            tuple(f"posattn.{column}.{module}" for module in CODE),
            make,
            BOUND,
            tokens=STEPS,
        )
        for name, column, make in (
            ("PyTorch", "torch", in_torch),
            ("JAX", "jax", in_jax),
        )
    ]
