"""Cases of a cache of keys and values: what happens to it, step by step."""

import numpy as np

from posattn import reference
from posattn.conformance.steps import played
from posattn.reference.cases import Cases, draw

ROWS, HEADS, WIDTH = 3, 2, 2  # one pair, so layouts and bases of a rotation agree
PADDING = (0, 2, 3)
FAR = 2**31  # a window that holds everything
TOKENS = ("query", "key", "value", "positions")


class Cache:
    """All tokens are kept as they came; which of them a query sees, their positions say."""

    def __init__(
        self, *, window=None, keep=0, rotate=False, left_padding=None, max_length=32
    ):
        self.window, self.keep, self.rotate = window or FAR, keep, rotate
        self.tokens = None

    def attend(self, query, key, value, positions):
        """Keep the tokens, and attend from each to those that it sees."""
        self.write(key, value, positions[:, None, :, None])
        key, value, where = self.tokens
        where, positions = where[..., 0], positions[:, None]
        seen = self.seen(positions[..., None], where[..., None, :])
        if self.rotate:
            pairs = zip((query, key), self.places(positions, where), strict=True)
            query, key = (reference.rotate(*pair) for pair in pairs)
        return reference.scaled_dot_product_attention(query, key, value, mask=seen)

    def write(self, *tokens):
        """Put tokens after the others."""
        pairs = zip(self.tokens or [x[..., :0, :] for x in tokens], tokens, strict=True)
        self.tokens = [np.concatenate(pair, axis=-2) for pair in pairs]

    def places(self, queries, keys):
        """By which positions queries and keys rotate."""
        return queries, keys

    def seen(self, queries, keys):
        """Which keys a query sees, by the positions of both."""
        window, keep = self.reach(queries.shape[-2] == 1)
        near = (keys > queries - window) | (keys < keep)
        return (keys >= 0) & (keys <= queries) & near

    def reach(self, alone):
        """The window, and how many first tokens stay; it may matter if a query comes alone."""
        return self.window, self.keep

    def trim(self, n):
        """Forget the newest tokens."""
        self.tokens = [x[..., : x.shape[-2] - n, :] for x in self.tokens]

    def reorder(self, rows):
        """Go on in each row of the batch with what another has."""
        self.tokens = [x[rows] for x in self.tokens]

    def shift(self, n):
        """Forget the first tokens after those to keep, and move the later ones down."""
        key, value, where = self.tokens
        gone = (where >= self.keep) & (where < self.keep + n)
        moved = where - n * (where >= self.keep + n)
        self.tokens = [key, value, np.where(gone, -2, moved)]


def script(*parts, padding=(0,) * ROWS):
    """The steps of a case: a number is of tokens that come together, what else happens has a name.

    A jump is no step: the next tokens stand at that position.
    """
    steps, at = [], 0
    for seed, part in enumerate(parts, 40):
        do, n = part if isinstance(part, tuple) else ("attend", part)
        if do == "jump":
            at = n
        elif do == "attend":
            where = at + np.arange(n) - np.array(padding)[:, None]
            drawn = [draw(3 * seed + k, ROWS, HEADS, n, WIDTH) for k in range(3)]
            given = zip(TOKENS, [*drawn, np.maximum(where, -1)], strict=True)
            steps.append({"do": do, **dict(given)})
            at += n
        elif do == "reorder":
            steps.append({"do": do, "rows": np.array(n)})
        else:
            steps.append({"do": do, "n": n})
            at -= n
    return (steps,)


def cache():
    """A cache of keys and values: rings that wrap, rollback, prefixes, beams, shifts, padding."""
    one = (1,) * 7
    yield "one token at a time", script(*one[:5]), {}
    yield "a prompt, then one token at a time", script(5, 1, 1), {}
    yield "a prompt in pieces", script(4, 3, 1), {}
    yield "positions that do not begin at 0", script(("jump", 7), 4, 1, 1), {}
    yield "a ring that wraps, one token at a time", script(*one), {"window": 3}
    yield "a prompt longer than the window", script(7, 1, 1, 1), {"window": 3}
    yield "several tokens where the ring wraps", script(2, 3, 2, 1), {"window": 4}
    back = ("trim", 2)
    yield "speculative tokens rolled back", script(4, 3, back, 1, 1), {}
    early = script(3, 2, back, 1, 1, 4, 1)
    yield "rolled back before the ring wraps", early, {"window": 6}
    late = script(6, 3, back, 1, 1)
    yield "rolled back after the ring has wrapped", late, {"window": 4}
    yield "a prefix that another text reuses", script(6, 2, ("trim", 5), 3, 1), {}
    beams, other = ("reorder", [2, 0, 0]), ("reorder", [1, 1, 2])
    yield "beams reordered", script(4, beams, 1, other, 1, 1), {}
    wrapped = script(5, 1, beams, 1, other, 1)
    yield "beams reordered in a ring that has wrapped", wrapped, {"window": 3}
    down = ("shift", 3)
    yield "a context shifted", script(6, down, 1, 2), {}
    yield "a context shifted, whose keys rotate", script(6, down, 1, 2), {"rotate": True}
    kept = {"rotate": True, "keep": 2}
    yield "a context shifted, its first tokens kept", script(7, down, 1, 2), kept
    some = {"window": 3, "keep": 2}
    yield "first tokens kept as the ring wraps", script(4, *one[:5]), some
    yield "first tokens kept, several at once", script(2, 3, 3, 1), some
    yield "keys that rotate", script(4, 2, 1, 1), {"rotate": True}
    turning = {"rotate": True, "window": 3}
    yield "a ring whose keys rotate", script(4, 1, 1, 2), turning
    far = script(("jump", 2**20), 3, 2, 1, 1)
    yield "large positions, up to 2**20, in a ring", far, {"window": 4}
    gap = script(3, ("jump", 20), 2, 1, 1)
    yield "a gap in the positions", gap, {"window": 4, "rotate": True}
    again = ("jump", 1)
    yield "positions that repeat", script(2, again, 1, again, 1, 1, 1), {}
    yield "positions that leave a gap", script(3, ("jump", 20), 2, 1), {}
    for name, parts, options in (
        ("", (5, 1, 1), {}),
        (", a ring", (5, 1, 1, 1), {"window": 3}),
        (", keys that rotate", (5, 1, 1), {"rotate": True}),
    ):
        padded = {"left_padding": list(PADDING), **options}
        yield f"rows of different lengths{name}", script(*parts, padding=PADDING), padded


function = played(Cache)
function.__name__ = "function"
CASES = {
    "cache": Cases(
        function,
        cache,
        "xiao2024efficient, section 3",
        name="KVCache, with the attention of its layer",
    )
}
