"""Ports: the layers of one model, in one file, for frameworks that have no column.

A port holds what a model calls, written as a user of that framework would write it, with the names,
parameters and error texts of `posattn.reference`.
Each is an optional extra: nothing else in the package imports one, and a port imports its framework,
NumPy, and `posattn.contract`.
Read it, copy it, or import it: `from posattn.ports import mlx`.
"""
