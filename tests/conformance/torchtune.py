"""torchtune: neighbors turn, by a table that is made once."""

import torch
from torchtune.models.llama3_1._position_embeddings import Llama3ScaledRoPE
from torchtune.modules import RotaryPositionalEmbeddings

from tests.conformance.adapting import against


@against("rotary", framework="torch", layout="interleaved")
def turned(x, positions=None, *, base=10000.0):
    """`RotaryPositionalEmbeddings`, with a table as long as the text needs."""
    places = torch.arange(x.shape[-2]) if positions is None else positions
    length = int(places.max()) + 1 if places.numel() else 1
    rotary = RotaryPositionalEmbeddings(x.shape[-1], length, int(base))
    heads = x if x.ndim == 4 else x[:, None]
    places = places[:, 0] if places.ndim == 3 else places.expand(len(x), -1)
    return rotary(heads.transpose(1, 2), input_pos=places).transpose(1, 2).reshape(x.shape)


@against("llama3", framework="torch")
def llama3(
    dim,
    *,
    base=500000.0,
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    trained_length=8192,
):
    """The frequencies of `Llama3ScaledRoPE`."""
    rope = Llama3ScaledRoPE(
        dim,
        4,
        int(base),
        scale_factor=factor,
        low_freq_factor=low_frequency_factor,
        high_freq_factor=high_frequency_factor,
        old_context_len=trained_length,
    )
    return rope.theta
