"""What the atlas says about each scheme: its name and year, its idea, its formula, and who uses it.

The page of all schemes is made from this, so every sentence of a card is written here.
"""

from posattn.cards.biases import BIASES
from posattn.cards.card import Card
from posattn.cards.inputs import INPUTS
from posattn.cards.rotations import ROTATIONS

__all__ = ["CARDS", "Card"]

#: From the names of `SCHEMES` to their cards.
CARDS = INPUTS | ROTATIONS | BIASES
