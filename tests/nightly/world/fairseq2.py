"""fairseq2."""

INSTALL = ["fairseq2==0.8.1"]
REFUSED = "its native half, fairseq2n, asks for another PyTorch, whose build for a CPU we don't have"
