"""The drawing room: arrays in, a `matplotlib.figure.Figure` out.

Backgrounds are transparent and ink is exactly ``#000000``, so that a page can set both.
No pyplot, no global state, no framework: an argument is anything that `numpy.asarray` takes.
"""

from posattn.figures.arcs import rotated_vectors
from posattn.figures.blocks import (
    positional_encoding_layer,
    self_attention_layer,
    transformer_block,
)
from posattn.figures.circle import rotation
from posattn.figures.dates import dates
from posattn.figures.decoding import decoding
from posattn.figures.heat_maps import (
    attention_weights,
    binary_counting,
    masks,
    right_and_wrong,
)
from posattn.figures.lines import curves, intervals, offsets
from posattn.figures.networks import architectures
from posattn.figures.order import order
from posattn.figures.pairs import pairs
from posattn.figures.ring import ring
from posattn.figures.score_maps import score_map, score_maps
from posattn.figures.tiling import tiling

__all__ = [
    "architectures",
    "attention_weights",
    "binary_counting",
    "curves",
    "dates",
    "decoding",
    "intervals",
    "masks",
    "offsets",
    "order",
    "pairs",
    "positional_encoding_layer",
    "right_and_wrong",
    "ring",
    "rotated_vectors",
    "rotation",
    "score_map",
    "score_maps",
    "self_attention_layer",
    "tiling",
    "transformer_block",
]
