"""GLM-5-Next's layer with the delta rule beside that of transformers (`nox -s oracles`).

Other families' layers are those of whole decoders, in checks_decoders.py; no Decoder has GLM-5-Next's.
"""

import torch
import transformers
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextLinearAttention

from posattn import torch as torch_column
from tests.nightly.oracles.checks_from_config import distance

N, DIM = 75, 32
GLM = {
    "hidden_size": DIM, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 4,
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 0, "v_head_dim": 6, "q_lora_rank": 12,
    "linear_head_dim": 8, "linear_num_heads": 4,
}  # fmt: skip


def layers():
    """The configuration, the layer of transformers, and ours with its weights."""
    config = transformers.Glm5NextTextConfig(**GLM)
    torch.manual_seed(0)
    theirs = Glm5NextTextLinearAttention(config, 0).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    state = {f"model.layers.0.self_attn.{n}": w for n, w in theirs.state_dict().items()}
    ours = torch_column.DeltaAttention.from_config(config.to_dict(), weights=state)
    return config, theirs, ours


def test_glm_with_padding_in_chunks_and_packed():
    """Its chunks are 3.2e-6 from float64, and ours 0.8e-6."""
    config, theirs, ours = layers()
    x = torch.randn(2, N, DIM, generator=torch.Generator().manual_seed(1))
    seen = torch.arange(N) >= torch.tensor([[0], [5]])
    cache, their_cache = ours.init_cache((2,)), transformers.DynamicCache(config=config)
    with torch.no_grad():
        for part in (slice(0, 66), slice(66, 72), *(slice(i, i + 1) for i in range(72, N))):
            mask = seen[:, part] if part.start == 0 else None
            want = theirs(x[:, part], cache=their_cache, attention_mask=mask)[seen[:, part]]
            got, cache = ours(x[:, part], mask=seen[:, part], cache=cache)
            assert distance(got[seen[:, part]].numpy(), want.numpy()) < 4e-6
        alone = torch.cat([theirs(part) for part in x.split([20, 55], dim=1)], 1).numpy()
        packed = ours(x, documents=(torch.arange(N) >= 20).long()).numpy()
        assert distance(packed, alone) < 2e-5  # whose chunks lie elsewhere: seen 8.6e-6
        assert distance(theirs(x).numpy(), alone) > 0.01
