"""The lines of the chapter on attention across machines, as a user runs them."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

import posattn
from posattn.jax import MultiHeadAttention, Rotary
from tests.conftest import draw

PAGE = Path(posattn.__file__).parents[2] / "docs" / "scale" / "ring.md"
WORKERS = 4
TEXT = draw(1, 2, 16, 64).astype(np.float32)
AROUND = """
import torch
torch.manual_seed(0)
text = torch.tensor({text})
{recipe}
from torch.nn.parallel import DistributedDataParallel
whole = MultiHeadAttention(64, 8, rotate=Rotary())
whole.load_state_dict(layer.state_dict())
want = whole(text, causal=True)
assert torch.allclose(out, want[:, mine], atol=1e-6)
want.square().mean().backward()
shared = DistributedDataParallel(layer)
shared(text[:, mine], causal=True, query_positions=mine).square().mean().backward()
for one, other in zip(layer.parameters(), whole.parameters(), strict=True):
    assert torch.allclose(one.grad, other.grad, atol=1e-6)
print("learned alike")
dist.destroy_process_group()
"""


def recipe(framework):
    """The code below a tab."""
    tabs = re.findall(
        r":sync: (\w+)\n+```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL
    )
    return dict(tabs)[framework]


def test_devices_share_a_text(unchecked):
    found = {"text": TEXT}
    exec(recipe("jax"), found)  # the page's own lines
    assert found["jax"].device_count() == found["mesh"].size == WORKERS
    layer = found["layer"]
    whole = MultiHeadAttention(
        *(getattr(layer, f"{role}_weight") for role in ("query", "key", "value", "output")),
        num_heads=8,
        rotate=Rotary(),
    )
    want = whole(TEXT, causal=True)[:, found["order"]]
    assert np.allclose(found["out"], want, atol=1e-6)


def test_processes_share_a_text_and_learn_as_one(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(AROUND.format(text=TEXT.tolist(), recipe=recipe("torch")))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(WORKERS)]
    start += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    done = subprocess.run(
        [sys.executable, *start, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("learned alike") == WORKERS
