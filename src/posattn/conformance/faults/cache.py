"""Faults of caches of keys and values: of windows, rings, rollback, beams, shifts and padding."""

import numpy as np

from posattn.conformance.cases.cache import FAR, Cache
from posattn.conformance.faults.registry import fault
from posattn.conformance.steps import played
from posattn.reference import rotate


class Ring(Cache):
    """As many tokens as the window holds, from old to new: this is right."""

    def attend(self, *tokens):
        """Let go of the tokens that no later one sees."""
        made = super().attend(*tokens)
        self.evict()
        return made

    def write(self, *tokens):
        """One token takes the place of another; several come after the others."""
        super().write(*tokens)
        if tokens[0].shape[-2] == 1:
            self.evict()

    def evict(self):
        """Keep the newest."""
        if not self.keep:
            self.tokens = [x[..., -self.window :, :] for x in self.tokens]


def instead_of(method, kind=Cache, *, seen=""):
    """Enter a cache that has a function as one of its methods."""

    def enter(wrong):
        made = type(wrong.__name__, (kind,), {"__doc__": wrong.__doc__, method: wrong})
        fault("cache", seen=seen)(played(made))

    return enter


@instead_of("evict", Ring)
def ring_rolled_the_wrong_way(self):
    """The ring is rolled the wrong way: new tokens replace those before them, and should the oldest."""
    n = max(self.tokens[0].shape[-2] - self.window, 0)
    if n and not self.keep:
        self.tokens = [np.roll(x, n, axis=-2)[..., : self.window, :] for x in self.tokens]


@instead_of("write", Ring, seen="huggingface/transformers #37574")
def ring_rolled_too_early(self, *tokens):
    """The ring is rolled when it is just full: the oldest token leaves too early, an empty slot is seen."""
    if self.tokens and self.tokens[0].shape[-2] == self.window - 1:
        key, value, where = (x[..., -1:, :] for x in self.tokens)
        if tokens[0].shape[-2] == 1:
            Ring.write(self, 0 * key, 0 * value, where)
    Ring.write(self, *tokens)


def of_chunks(size):
    """Enter a ring into which the padding of a last chunk goes with the tokens."""

    def attend(self, *tokens):
        made, n = Ring.attend(self, *tokens), tokens[0].shape[-2]
        if n > 1 and self.window < FAR:
            late = ((0, 0), (0, 0), (0, -n % size), (0, 0))
            self.tokens = [np.pad(x, late, constant_values=-9) for x in self.tokens]
            self.evict()
        return made

    attend.__name__ = f"padding_of_a_chunk_of_{size}_kept"
    attend.__doc__ = (
        "The padding of a prompt's last chunk stays in the ring, and pushes tokens out."
    )
    instead_of("attend", Ring, seen="cactus-compute/cactus #688")(attend)


for size in (4, 8, 128):
    of_chunks(size)


@instead_of("write", Ring)
def pushed_out_too_early(self, *tokens):
    """Several tokens enter a ring at once, and push out what the first of them should still see."""
    Cache.write(self, *tokens)
    self.evict()


@instead_of("trim", Ring, seen="ml-explore/mlx-swift-lm #584")
def wrapped_ring_trimmed_by_counters(self, n):
    """A ring that has wrapped is trimmed by its counters only: old tokens stay in its middle and are seen."""
    if self.tokens[0].shape[-2] < self.window:
        return Ring.trim(self, n)
    self.tokens = [np.roll(x, n, axis=-2) for x in self.tokens]
    self.tokens[2][..., :n, :] = self.tokens[2][..., -1:, :]


@instead_of("shift")
def shifted_keys_not_rotated(self, n):
    """Positions move with a shift, and stored keys keep their old angles: they should be rotated again."""
    before = self.tokens[2]
    Cache.shift(self, n)
    if self.rotate:
        self.tokens[0] = rotate(self.tokens[0], (before - self.tokens[2])[..., 0])


@instead_of("shift")
def first_tokens_shifted(self, n):
    """A shift forgets the first tokens, which were to be kept."""
    keep, self.keep = self.keep, 0
    Cache.shift(self, n)
    self.keep = keep


@instead_of("attend")
def positions_by_count(self, query, key, value, positions):
    """Positions are the numbers of the tokens in the cache: gaps are not seen in them."""
    real, before = positions >= 0, 0
    if self.tokens is not None:
        before = np.sum(self.tokens[2] >= 0, axis=(1, 2, 3))[:, None]
    counted = before + np.cumsum(real, axis=-1) - 1
    return Cache.attend(self, query, key, value, np.where(real, counted, -1))


@instead_of("seen")
def mask_from_the_top_left(self, queries, keys):
    """The causal mask counts queries from 0 in each call, so it begins in the top left corner."""
    corner = np.tri(queries.shape[-2], keys.shape[-1], dtype=bool)
    return Cache.seen(self, queries, keys) & corner


# fmt: off
LINES = (  # a method, a name, the wrong method, and a sentence
    ("reach", "window_ignored", lambda self, alone: (FAR, self.keep), "The window is ignored."),
    ("reach", "window_not_in_decoding", lambda self, alone: (FAR if alone else self.window, self.keep),
     "The window is ignored where there is one query: decoding has a program of its own."),
    ("reach", "window_one_too_large", lambda self, alone: (self.window + 1, self.keep),
     "The window is one too large: it holds so many tokens before the query's own."),
    ("reach", "window_one_too_small", lambda self, alone: (self.window - 1, self.keep),
     "The window is one too small: the query's own token is one of those that it holds."),
    ("reach", "first_tokens_evicted", lambda self, alone: (self.window, 0),
     "The first tokens leave with the others: those to keep are seen from everywhere."),
    ("reach", "first_tokens_in_the_window", lambda self, alone: (self.window - self.keep, self.keep),
     "The first tokens take room of the window: it holds as many besides them."),
    ("trim", "trimmed_one_too_many", lambda self, n: Cache.trim(self, n + 1),
     "Rollback forgets one token too many."),
    ("trim", "trimmed_one_too_few", lambda self, n: Cache.trim(self, n - 1),
     "Rollback leaves one token too many."),
    ("trim", "trim_ignored", lambda self, n: None,
     "Rollback forgets nothing: tokens that were rejected are seen later."),
    ("reorder", "reorder_ignored", lambda self, rows: None,
     "The rows of the batch are not reordered: a beam goes on with the tokens of another."),
    ("places", "queries_from_zero", lambda self, queries, keys: (queries - queries[..., :1], keys),
     "Each call rotates its queries as if the first of them stood at position 0."),
    ("places", "keys_rotated_twice", lambda self, queries, keys: (queries, 2 * keys),
     "Keys are rotated before they are stored, and once more where they are read."),
    ("places", "positions_of_slots", lambda self, *where: [x % self.window for x in where],
     "Positions begin anew when the ring wraps: they are the slots of the tokens."),
)
# fmt: on
for method, name, wrong, sentence in LINES:
    wrong.__name__, wrong.__doc__ = name, sentence
    instead_of(method)(wrong)


def of_padding(name, shown, rotated):
    """Enter a cache whose mask and rotation know padding at the left by positions of its own."""

    def at(place, keys):
        before = np.arange(keys.shape[-1]) - np.sum(keys == -1, axis=-1, keepdims=True)
        return np.where(keys == -1, before if place == "its_slot" else place, keys)

    def seen(self, queries, keys):
        where, (window, _) = at(shown, keys), self.reach(False)
        near = (keys == -1) & (where <= queries) & (where > queries - window)
        return Cache.seen(self, queries, keys) | near

    seen.__name__ = name
    seen.__doc__ = (
        "The padding at the left is seen: its keys should be hidden from every query."
    )
    kind = type("Padded", (Cache,), {"places": lambda self, i, j: (i, at(rotated, j))})
    instead_of("seen", kind)(seen)


for shown in ("its_slot", -1, 0):
    for rotated in ("its_slot", -1, 0, 1):
        of_padding(f"padding_seen_at_{shown}_rotated_at_{rotated}", shown, rotated)


@instead_of("write")
def one_token_per_position(self, *tokens):
    """Slots are positions: a token at a position that comes again replaces the one that was there."""
    if self.tokens:
        stay = ~np.isin(
            self.tokens[2][0, 0, :, 0], [p for p in tokens[2][0].flat if p >= 0]
        )
        self.tokens = [x[..., stay, :] for x in self.tokens]
    Cache.write(self, *tokens)


@instead_of("write")
def empty_slots_seen(self, key, value, where):
    """Slots are positions, and those that a gap leaves empty are seen: their zeros get weight."""
    gap = np.min(where[..., :1, :] - self.tokens[2][..., -1:, :]) - 1 if self.tokens else 0
    if gap > 0:
        empty = np.zeros((*key.shape[:-2], gap, key.shape[-1]))
        Cache.write(self, empty, empty, where[..., :1, :] + np.arange(-gap, 0)[:, None])
    Cache.write(self, key, value, where)


@instead_of("reach", seen="karpathy/nanochat #456")
def window_one_too_large_in_decoding(self, alone):
    """The window is one too large where there is one query: decoding has a program of its own."""
    return self.window + alone, self.keep


@instead_of("reorder")
def values_not_reordered(self, rows):
    """Keys are reordered with the rows of the batch, and values stay behind."""
    self.tokens = [self.tokens[0][rows], self.tokens[1], self.tokens[2][rows]]


@instead_of("trim", Ring)
def wrapped_ring_trimmed(self, n):
    """A ring that has wrapped is trimmed: what the forgotten tokens pushed out is gone. It must refuse."""
    Ring.trim(self, n)


@instead_of("write", Ring)
def values_stay_in_their_slots(self, key, value, where):
    """Where a ring wraps, a key takes the slot of the oldest one, whose value stays there."""
    if self.tokens and key.shape[-2] == 1 and self.tokens[0].shape[-2] >= self.window:
        value = self.tokens[1][..., :1, :]
    Ring.write(self, key, value, where)
