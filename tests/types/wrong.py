"""What type checkers must refuse: they fail on a comment that silences nothing."""

import jax

from posattn import jax as ours
from posattn.torch import MultiHeadAttention, Rotary

MultiHeadAttention("16", 4)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
MultiHeadAttention(16, 4, bias=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Rotary(layout="neox")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ours.ALiBi("2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
key = jax.random.key(0)
ours.MultiHeadAttention.init(key, 16, 4, head_dim="4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
