"""Self-attention and positional encoding, defined once and written for two frameworks.

`posattn.reference` is the contract, in NumPy and float64.
`posattn.torch` and `posattn.jax` are its twins: same names, same order, same errors.
`posattn.figures` draws.
Importing one of them imports no other framework.
"""

__version__ = "0.1.0"
