"""fla-core, its references in PyTorch: read by their path, tokens before heads."""

import importlib.metadata
import runpy

import torch

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "fla-core==0.6.0"]


def _naive(name):
    """The functions of a file, since importing `fla` asks for a GPU."""
    files = importlib.metadata.files("fla-core")
    (path,) = (path for path in files if path.match(f"fla/ops/{name}/naive.py"))
    return runpy.run_path(path.locate())


def _attend(*arrays, **options):
    rows = [torch.from_numpy(x).transpose(1, 2) for x in arrays]
    return _naive("attn")["naive_parallel_attn"](*rows, **options)[0].transpose(1, 2)


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value),
    "scale": lambda query, key, value: _attend(query, key, value, causal=False),
    "sliding": lambda query, key, value, window: _attend(query, key, value, window_size=window),
}  # fmt: skip


def packed(query, key, value):
    """One query at the end of each of two documents."""
    rows = [torch.from_numpy(x).transpose(1, 2) for x in (query, key, value)]
    attend = _naive("attn")
    alone = [
        attend["naive_parallel_attn"](*(x[:, part] for x in rows))[0][:, -1:]
        for part in (slice(3), slice(3, 6))
    ]
    ends = (rows[0][:, [2, 5]], *rows[1:])
    lengths = torch.tensor([0, 3, 6])
    return torch.cat(alone, 1), attend["naive_attn_decoding"](*ends, cu_seqlens=lengths)


def cached(query, key, value):
    """The delta rule over four tokens, then two with its state."""
    step, rows = (
        _naive("delta_rule")["delta_rule_recurrence"],
        [torch.from_numpy(x) for x in (query, key / 4, value)],
    )
    beta = torch.full((1, 2, 6), 0.5)
    whole, _ = step(*rows, beta)
    first, state = step(*(x[:, :, :4] for x in (*rows, beta)))
    second, _ = step(*(x[:, :, 4:] for x in (*rows, beta)), initial_state=state)
    return whole, torch.cat([first, second], 2)
