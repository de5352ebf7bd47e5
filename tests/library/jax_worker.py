"""One of two processes of a ring, of which the second dies in the middle: `jax_worker.py RANK ADDRESS`."""

import os
import signal
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posattn import jax as ours

STEPS, LAST = 100, 3  # of the worker that dies


def main(rank, address):
    """Compare a ring of two processes with one, and go on until an error says that one has died."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, rank, heartbeat_timeout_seconds=10)
    spec = PartitionSpec(None, "ring", None)
    mesh = Mesh(np.array(jax.devices()), ["ring"])
    ring = partial(ours.ring_attention, across="ring", causal=True)
    ring = jax.jit(jax.shard_map(ring, mesh=mesh, in_specs=spec, out_specs=spec))
    whole = np.random.default_rng(0).normal(size=(2, 32, 8)).astype("float32")
    shards = jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, spec), whole.__getitem__
    )
    (own,) = ring(shards, shards, shards).addressable_shards
    want = ours.scaled_dot_product_attention(*[jnp.asarray(whole)] * 3, causal=True)
    assert jnp.allclose(own.data, want[own.index], atol=1e-5)
    print("equal", flush=True)
    try:
        for step in range(STEPS):
            if rank == 1 and step == LAST:
                os.kill(os.getpid(), signal.SIGKILL)
            jax.block_until_ready(ring(shards, shards, shards))
    except jax.errors.JaxRuntimeError as error:
        print(error, flush=True)
    os._exit(0)  # there is nobody with whom to leave together


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
