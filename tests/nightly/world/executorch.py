"""ExecuTorch, PyTorch's `scaled_dot_product_attention` exported to its portable kernels."""

import torch
from executorch.exir import to_edge
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from executorch.runtime import Runtime
from torch.nn.functional import scaled_dot_product_attention as sdpa

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "executorch==1.5.1"]


def _attend(*arrays, **options):
    class Attention(torch.nn.Module):
        def forward(self, query, key, value, mask=None):
            return sdpa(query, key, value, attn_mask=mask, **options)

    given = tuple(map(torch.from_numpy, arrays))
    program = to_edge(torch.export.export(Attention(), given)).to_executorch()
    loaded = Runtime.get().load_program(program.buffer)
    return loaded.load_method("forward").execute(given)[0]


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, is_causal=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask),
    "scale": lambda query, key, value: _attend(query, key, value),
}


def cached(query, key, value):
    heads = [torch.from_numpy(x.swapaxes(1, 2).copy()) for x in (query, key, value)]
    attend, caches = torch.ops.llama.sdpa_with_kv_cache, torch.zeros(2, 1, 6, 2, 16)
    steps = [
        attend(*(x[:, n : n + 1] for x in heads), *caches, n, 1, None, 0.0, True)
        for n in range(6)
    ]
    once = sdpa(*(x.transpose(1, 2) for x in heads), is_causal=True)
    return once, torch.cat(steps, 1).transpose(1, 2)
