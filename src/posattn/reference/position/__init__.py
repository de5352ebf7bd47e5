"""Positional encodings, a scheme in each module."""
