"""Attention itself: scores, masks, heads, caches and rings."""
