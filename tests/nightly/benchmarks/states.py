"""States and selected keys: the delta rules beside transformers' fallback, a selection beside all keys."""

import json
import sys
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

import posattn.jax
import posattn.torch
from posattn import reference
from tests.nightly.benchmarks import machine, memory
from tests.nightly.benchmarks.measuring import (
    Case,
    Contender,
    NotHere,
    error,
    plain,
    samples_of_results,
)

HEADS, WIDTH = 8, 128
SETTING = f"1 example, {HEADS} heads of {WIDTH}, float32"
BOUND = 1e-5
THEIRS = "transformers, fallback"
KEYS, READ, QUERIES = 32_768, 2_048, 64


@cache
def drawn(n, kind="gated"):
    """The five arguments of a delta rule, keys of length 1."""
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 1, HEADS, n, WIDTH))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    shape = (1, HEADS, n) + (WIDTH,) * (kind == "kimi")
    gates, beta = -np.abs(rng.normal(size=shape)) / 4, rng.uniform(size=(1, HEADS, n))
    return [x.astype(np.float32) for x in (query, key, value, gates, beta)]


@cache
def right(n, kind="gated"):
    """The right outputs, which are linear in the values."""
    rule = {"gated": reference.gated_delta, "kimi": reference.kimi_delta}[kind]
    return rule(*(x.astype(float) for x in drawn(n, kind)))[0]


def in_torch(call, n, slopes, kind="gated"):
    """A rule that returns its outputs, alone or with the gradients of their sum of squares, halved."""
    inputs = [torch.tensor(x, device=machine.device()) for x in drawn(n, kind)]
    inputs = [x.requires_grad_(slopes) for x in inputs]

    def run():
        out = call(*inputs)
        if not slopes:
            return (out,)
        return out, *torch.autograd.grad((out * out).sum() / 2, inputs)

    def check(found):
        want = right(n, kind)
        wrong = error(found[0], want)
        if slopes:  # since the rule is linear, values times their gradients are the squares
            squares = np.sum(plain(found[3]) * drawn(n, kind)[2])
            wrong = max(wrong, abs(float(squares / np.sum(want**2)) - 1))
        return wrong

    return Contender(run, check)


def ours(*inputs):
    """Our outputs without the state."""
    return posattn.torch.gated_delta(*inputs)[0]


def theirs(*inputs):
    """Those of transformers, which has heads after tokens."""
    from transformers.models.qwen3_next import modeling_qwen3_next as model

    step = inputs[0].shape[-2] == 1
    rule = f"torch_{'recurrent' if step else 'chunk'}_gated_delta_rule"
    given = dict(zip(("query", "key", "value", "g", "beta"), inputs, strict=True))
    given = {name: x.transpose(1, 2) for name, x in given.items()}
    state = {"initial_state": None, "output_final_state": True}
    return getattr(model, rule)(**given, **state)[0].transpose(1, 2)


def beside_transformers(n, slopes):
    """Ours beside the fallback."""
    calls = {"ours": ours, THEIRS: theirs}
    return {name: in_torch(call, n, slopes) for name, call in calls.items()}


def beside_torch(kind, n):
    """Ours in JAX beside ours in PyTorch."""
    rules = [getattr(column, f"{kind}_delta") for column in (posattn.jax, posattn.torch)]
    given = [jnp.asarray(x) for x in drawn(n, kind)]
    compiled = jax.jit(lambda *x: rules[0](*x)[0])
    return {
        "ours": Contender(lambda: compiled(*given), lambda x: error(x, right(n, kind))),
        "ours in PyTorch": in_torch(lambda *x: rules[1](*x)[0], n, False, kind),
    }


def peak(who, n):
    """Print the bytes that a call with its gradients takes beyond its arguments, and its error."""
    rule = {"ours": ours, THEIRS: theirs}[who]
    in_torch(rule, 128, True).call()  # load what is needed
    held = in_torch(rule, n, True)
    memory.STATUS.with_name("clear_refs").write_text("5", encoding="utf-8")
    before = memory.now("VmRSS")
    result = held.call()
    most = memory.now("VmHWM") - before
    print(json.dumps([most, held.error(result)]))


def of_memory(n):
    """The peak of ours beside that of the fallback, each in a process of its own."""
    if not memory.STATUS.is_file() or machine.device() != "cpu":
        raise NotHere("only Linux tells the peak of a process")
    return {
        name: Contender(
            partial(memory.in_a_process, name, n, module=__name__), lambda got: got[1]
        )
        for name in ("ours", THEIRS)
    }


def selected():
    """A block of queries that reads some keys, beside one that reads all."""
    rng = np.random.default_rng(0)
    sizes = ((QUERIES, HEADS), (KEYS, 1), (KEYS, 1))
    drawn = [rng.normal(size=(1, heads, n, WIDTH)).astype(np.float32) for n, heads in sizes]
    chosen = rng.permuted(np.tile(np.arange(KEYS), (1, QUERIES, 1)), axis=-1)[..., :READ]
    want = reference.scaled_dot_product_attention(
        *(x.astype(float) for x in drawn), select=chosen
    )
    arrays = [torch.tensor(x, device=machine.device()) for x in drawn]
    select = torch.tensor(chosen, device=machine.device())
    attend = partial(posattn.torch.scaled_dot_product_attention, *arrays, select=select)
    whole = partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    return {
        "ours": Contender(torch.no_grad()(attend), lambda got: error(got, want)),
        "SDPA, all keys": Contender(
            torch.no_grad()(partial(whole, *arrays)), lambda _: None, limit=True
        ),
    }


def cases():
    """What this machine can measure."""
    chunks, gathered = "posattn.torch.attention.delta", "posattn.torch.attention.gathered"
    found = [
        ("gated delta, PyTorch, n = 1", partial(beside_transformers, 1, False)),
        ("gated delta, PyTorch, n = 4096", partial(beside_transformers, 4096, False)),
        (
            "gated delta, PyTorch, n = 4096, with gradients",
            partial(beside_transformers, 4096, True),
        ),
        ("gated delta, JAX, n = 1024", partial(beside_torch, "gated", 1024)),
        ("Kimi's delta rule, JAX, n = 1024", partial(beside_torch, "kimi", 1024)),
    ]
    made = [
        Case("states", name, SETTING, (chunks, chunks.replace("torch", "jax")), make, BOUND)
        for name, make in found
    ]
    name, setting = f"{READ} of {KEYS} keys", f"{QUERIES} queries, {SETTING}, 1 of keys"
    made.append(Case("states", name, setting, (gathered,), selected, BOUND))
    name, setting = "gated delta, n = 8192", f"{SETTING}; memory beyond the arguments"
    make, last = partial(of_memory, 8192), (BOUND, samples_of_results, "bytes")
    return [*made, Case("states", name, setting, (chunks,), make, *last)]


if __name__ == "__main__":
    peak(*json.loads(sys.argv[1]))
