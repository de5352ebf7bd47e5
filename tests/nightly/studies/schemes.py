"""What is compared: for each scheme the options of its decoder, which all columns take."""

import importlib
from dataclasses import dataclass
from typing import Any

WIDTH, HEADS = 64, 4
HEAD_WIDTH = WIDTH // HEADS
LONGEST = 512  # tokens that anything is tested on, and rows of the learned table


@dataclass(frozen=True)
class Column:
    """A framework, as far as schemes are made from it; `make` draws what a scheme learns."""

    name: str
    rng: Any

    @property
    def module(self):
        """The column's names."""
        return importlib.import_module(f"posattn.{self.name}")

    def make(self, name, *arguments, **options):
        """Something that learns, with numbers of its own."""
        made = getattr(self.module, name)
        if self.name == "torch":
            return made(*arguments, rng=self.rng, **options)
        return made.init(self.rng, *arguments, **options)


def none(column):
    """Nothing but the causal mask."""
    return {}


def learned(column):
    """A row for each position, of which training reaches only the first."""
    return {"encoding": column.make("LearnedPositionalEncoding", LONGEST, WIDTH)}


def sinusoidal(column):
    """Sines and cosines, added to the embeddings."""
    return {"encoding": column.module.PositionalEncoding(WIDTH)}


def rotary(column):
    """Queries and keys turn."""
    return {"rotate": column.module.Rotary()}


def partial_rotary(column):
    """Half of each query and key turns."""
    return {"rotate": column.module.Rotary(rotary_dim=HEAD_WIDTH // 2)}


def rotary_in_some(column):
    """Every fourth layer knows no positions, as in SmolLM3."""
    turn = column.module.Rotary()
    return {"layer_options": lambda index: {} if index % 4 == 3 else {"rotate": turn}}


def alibi(column):
    """A slope for each head."""
    return {"bias": column.module.ALiBi(HEADS)}


def t5(column):
    """A number for each bucket of distances and each head."""
    return {"bias": column.make("T5Bias", HEADS, bidirectional=False)}


def kerple(column):
    """A logarithm of the distance, of which each head learns the shape."""
    return {"bias": column.make("KerpleLog", HEADS)}


def fire(column):
    """A small network of the distance over the query's position."""
    return {"bias": column.make("FIRE", HEADS)}


def cope(column):
    """Positions are counted in gates that depend on the content."""
    return {"bias": column.make("CoPE", LONGEST, HEAD_WIDTH)}
