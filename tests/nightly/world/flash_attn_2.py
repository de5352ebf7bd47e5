"""FlashAttention 2."""

INSTALL = ["flash-attn==2.8.3.post2"]
REFUSED = "it is compiled where it is installed, for a GPU"
