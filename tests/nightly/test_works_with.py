"""What a layer works with, for each kind of scheme: the table of the page *Use it in a model*.

Each tool runs in a process of its own, in which no annotation is checked; two for what is distributed.
"""

import json
import os
import subprocess
import sys
from functools import partial

import pytest

SCHEMES = ("Rotary", "ALiBi", "T5Bias", "FIRE", "StickBreaking", "CoPE", "sinks")
DIM, HEADS, LENGTH = 8, 4, 6


def options(column, rng, scheme):
    """Those of a layer, as test_compile.py has them."""
    from tests.nightly.studies.schemes import Column
    from tests.nightly.test_compile import LAYERS

    return LAYERS[scheme](Column(column, rng))


def layer_in_torch(scheme):
    import torch

    import posattn.torch as ours

    rng = torch.Generator().manual_seed(0)
    return ours.MultiHeadAttention(DIM, HEADS, rng=rng, **options("torch", rng, scheme))


def sequence_in_torch(length=LENGTH):
    import torch

    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, length, DIM, generator=generator)


def gradients(layer, call=None):
    """Those of the parameters, where the layer, or what calls it, reads a text."""
    layer.zero_grad()
    (call or layer)(sequence_in_torch(), causal=True).square().sum().backward()
    return [p.grad.clone() for p in layer.parameters()]


def alike(got, want, bound=1e-5):
    return all((a - b).abs().max() <= bound for a, b in zip(got, want, strict=True))


def exported(layer):
    import torch

    n = torch.export.Dim("n", min=2, max=16)
    shapes = {"query": {1: n}, "causal": None}
    x = sequence_in_torch()
    program = torch.export.export(layer, (x,), {"causal": True}, dynamic_shapes=shapes)
    x = sequence_in_torch(9)
    got, want = (f(x, causal=True) for f in (program.module(), layer))
    assert alike([got], [want])


def cast(layer):
    import torch

    x = sequence_in_torch()
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x, causal=True)
    assert got.dtype == torch.bfloat16
    assert alike([got.float()], [layer(x, causal=True)], 0.05)


def checkpointed(layer):
    from torch.utils.checkpoint import checkpoint

    again = partial(checkpoint, layer, use_reentrant=False)
    assert alike(gradients(layer, again), gradients(layer))


def mapped(layer):
    """The gradient of each example by itself."""
    import torch
    from torch.func import functional_call, grad, vmap

    learned = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(learned, example):
        return functional_call(layer, learned, (example,), {"causal": True}).square().sum()

    x = sequence_in_torch()
    got = vmap(grad(loss), in_dims=(None, 0))(learned, x)
    for i, example in enumerate(x):
        want = grad(loss)(learned, example)
        assert alike([g[i] for g in got.values()], want.values())
    assert torch.is_tensor(got["query.weight"])


def replicated(layer):
    from torch.nn.parallel import DistributedDataParallel

    want = gradients(layer)
    assert alike(gradients(layer, DistributedDataParallel(layer)), want)


def sharded(layer):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    want = gradients(layer)
    fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
    assert alike([g.full_tensor() for g in gradients(layer)], want)


def layer_in_jax(scheme):
    import jax

    import posattn.jax as ours

    rng = jax.random.key(0)
    return ours.MultiHeadAttention.init(rng, DIM, HEADS, **options("jax", rng, scheme))


def sequence_in_jax():
    import jax

    return jax.random.normal(jax.random.key(1), (4, LENGTH, DIM))


def loss_in_jax(layer, x):
    return (layer(x, causal=True) ** 2).sum()


def same(got, want):
    import jax
    import jax.numpy as jnp

    pairs = zip(*map(jax.tree.leaves, (got, want)), strict=True)
    return all(jnp.abs(a - b).max() <= 1e-4 for a, b in pairs)


def jitted(layer):
    import jax

    x, gradient = sequence_in_jax(), jax.grad(loss_in_jax)
    assert same(jax.jit(gradient)(layer, x), gradient(layer, x))


def mapped_in_jax(layer):
    """The gradient of each example by itself."""
    import jax

    x, gradient = sequence_in_jax(), jax.grad(loss_in_jax)
    got = jax.vmap(gradient, in_axes=(None, 0))(layer, x)
    assert same(jax.tree.map(lambda g: g[1], got), gradient(layer, x[1]))


def remade(layer):
    import jax

    x = sequence_in_jax()
    got = jax.grad(jax.checkpoint(loss_in_jax))(layer, x)
    assert same(got, jax.grad(loss_in_jax)(layer, x))


def meshed(layer):
    import jax
    from jax.sharding import PartitionSpec

    x = sequence_in_jax()
    want = layer(x, causal=True)
    with jax.set_mesh(jax.make_mesh((4,), ("batch",))):
        got = jax.jit(lambda x: layer(x, causal=True))(
            jax.device_put(x, PartitionSpec("batch"))
        )
    assert same(jax.device_get(got), jax.device_get(want))


TOOLS = {
    "torch.compile": None,  # test_compile.py
    "torch.export": (layer_in_torch, exported),
    "torch.autocast": (layer_in_torch, cast),
    "torch.utils.checkpoint": (layer_in_torch, checkpointed),
    "torch.func.vmap": (layer_in_torch, mapped),
    "DistributedDataParallel": (layer_in_torch, replicated),
    "fully_shard": (layer_in_torch, sharded),
    "jax.jit": (layer_in_jax, jitted),
    "jax.vmap": (layer_in_jax, mapped_in_jax),
    "jax.checkpoint": (layer_in_jax, remade),
    "jax.export": None,  # test_jax_export.py
    "jax.make_mesh": (layer_in_jax, meshed),
}
DISTRIBUTED = ("DistributedDataParallel", "fully_shard")


@pytest.mark.parametrize("tool", [tool for tool, tried in TOOLS.items() if tried])
def test_every_scheme_works_with_the_tool(tool, tmp_path):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, tool, str(rank), str(tmp_path / "meet")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"XLA_FLAGS": flags},
        )
        for rank in range(2 if tool in DISTRIBUTED else 1)
    ]  # fmt: skip
    for worker in workers:
        printed, said = worker.communicate(timeout=600)
        assert worker.returncode == 0, said[-3000:]
        assert json.loads(printed.splitlines()[-1]) == {}


def main(tool, rank, meet):
    """Print which schemes fail with a tool, and how."""
    make, use = TOOLS[tool]
    if tool in DISTRIBUTED:
        import torch.distributed as dist

        place = {"init_method": f"file://{meet}", "rank": int(rank), "world_size": 2}
        dist.init_process_group("gloo", **place)
    failed = {}
    for scheme in SCHEMES:
        try:
            use(make(scheme))
        except Exception as error:  # whatever it is, it does not work
            failed[scheme] = f"{type(error).__name__}: {error}"
    if tool in DISTRIBUTED:
        dist.destroy_process_group()
    print(json.dumps(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
