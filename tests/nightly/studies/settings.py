"""How every decoder is trained: fixed before the first run, and the same for all schemes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """AdamW; the rate warms up in a straight line and sinks to zero as a cosine."""

    steps: int = 4000
    batch: int = 32
    rate: float = 3e-3
    warm_up: int = 100
    betas: tuple[float, float] = (0.9, 0.98)
    decay: float = 0.01
    norm: float = 1.0  # longer gradients are cut to this


SEEDS = (0, 1, 2, 3, 4)
STORIES = Settings()
TOPICS = Settings(steps=1500)
TUNED = Settings(steps=200, batch=8, rate=1e-3, warm_up=20)  # on texts four times as long
TIMES = (1, 2, 4, 8)  # how often the trained length
