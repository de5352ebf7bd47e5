"""The largest memory of one call, inputs and output included, against inputs and output.

Each call has a process of its own. PyTorch's memory is that of the process, as the system counts it;
JAX's is what its compiler has planned.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import torch

from tests.nightly.benchmarks.attention import (
    ALIBI,
    BOUND,
    PLAIN,
    code,
    drawn,
    forward,
    jax_attention,
    torch_attention,
)
from tests.nightly.benchmarks.measuring import Case, Contender, samples_of_results

LENGTHS = (2048, 4096, 8192, 16384)
HEADS, WIDTH = 4, 64
ALLOWED = 6 * 2**30  # bytes that a call may take
STATUS = Path("/proc/self/status")


def inputs_and_output(n):
    """Bytes of queries, keys, values and output in float32."""
    return 4 * HEADS * n * WIDTH * 4


def now(fact):
    """A line of what Linux says of this process, in bytes."""
    (line,) = [
        x
        for x in STATUS.read_text(encoding="utf-8").splitlines()
        if x.startswith(fact + ":")
    ]
    return int(line.split()[1]) * 1024


def peak_in_torch(attend, inputs):
    """The largest memory of a call, and its output; None if it is not allowed so much."""
    import resource

    attend(*[x[..., :128, :] for x in inputs])  # load what is needed
    limit = now("VmSize") + ALLOWED
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
    before = now("VmRSS")
    try:
        out = attend(*inputs)
    except RuntimeError as full:
        if "allocate memory" not in str(full):
            raise
        return None, None
    held = sum(x.nbytes for x in inputs)
    return lambda: now("VmHWM") - before + held, out


@jax.default_matmul_precision("highest")
def in_this_process(column, scheme, n, theirs):
    """Print bytes and error of a call."""
    shape = (1, HEADS, n, WIDTH)
    if column == "torch":
        inputs = [torch.tensor(x) for x in drawn(shape)[:3]]
        attend = torch_attention(scheme, HEADS, "cpu")
        if theirs:
            attend = partial(
                torch.nn.functional.scaled_dot_product_attention, is_causal=True
            )
        with torch.no_grad():
            peak, out = peak_in_torch(attend, inputs)
        found = peak and peak()
    else:
        inputs = [jax.numpy.asarray(x) for x in drawn(shape)[:3]]
        attend = jax_attention(scheme, HEADS)
        if theirs:
            inputs = [x.swapaxes(1, 2) for x in inputs]
            attend = partial(jax.nn.dot_product_attention, is_causal=True)
        compiled = jax.jit(attend).lower(*inputs).compile()
        plan = compiled.memory_analysis()
        found = (
            plan.argument_size_in_bytes
            + plan.output_size_in_bytes
            + plan.temp_size_in_bytes
        )
        found = found if found <= ALLOWED else None
        out = None if found is None else compiled(*inputs)
        out = out.swapaxes(1, 2) if theirs and out is not None else out
    wrong = None if found is None else forward(scheme, shape, out)
    print(json.dumps([found, wrong]))


def in_a_process(*call):
    """What a process of its own says of a call."""
    command = [sys.executable, "-m", "tests.nightly.benchmarks.memory", json.dumps(call)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1]
        )
    return json.loads(done.stdout.splitlines()[-1])


def make(column, scheme, n):
    """Ours beside what there is anyway, and beside the fused attention, which knows no position."""
    least = (float(inputs_and_output(n)), 0.0)
    name = {"torch": "SDPA, no position", "jax": "jax.nn, no position"}[column]

    def call(scheme, theirs):
        return Contender(
            partial(in_a_process, column, scheme, n, theirs), lambda got: got[1], limit=True
        )

    return {
        "ours": call(scheme, False),
        "inputs and output": Contender(lambda: least, lambda got: got[1], limit=True),
        name: call(PLAIN, True),
    }


def cases():
    """What this machine can measure: only Linux tells the peak of a process."""
    if not STATUS.is_file():
        return []
    setting = (
        f"causal, 1 example, {HEADS} heads of {WIDTH}, float32; at most {ALLOWED >> 30} GiB"
    )
    return [
        Case(
            "memory",
            f"{name}, {scheme}, n = {n}",
            setting,
            code(column, scheme),
            partial(make, column, scheme, n),
            BOUND,
            samples_of_results,
            "bytes",
        )
        for name, column in (("PyTorch", "torch"), ("JAX", "jax"))
        for scheme in (PLAIN, ALIBI)
        for n in LENGTHS
    ]


if __name__ == "__main__":
    in_this_process(*json.loads(sys.argv[1]))
