"""Conformance vectors: inputs and outputs of each function, for whoever wrote their own.

The vectors are JSON files in the folder `vectors`, so that any language reads them.
`posattn.conformance.vectors` loads them, `posattn.conformance.generate` makes them from the reference.
"""
