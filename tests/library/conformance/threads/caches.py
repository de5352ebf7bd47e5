"""Threads on caches of keys and values, from their texts."""

import torch

from tests.library.conformance.examples import right, thread


@right("cache", "torch")
class Growing:
    """All tokens stay, and a mask of positions hides those that have left the window: this is right."""

    def __init__(self, window=None):
        self.window, self.kept = window or 2**31, ()

    def attend(self, query, key, value, positions):
        """Put the tokens at the end, and attend."""
        new = key, value, positions[:, None, :, None]
        pairs = zip(self.kept, new, strict=True) if self.kept else [(x,) for x in new]
        self.kept = [torch.cat(pair, dim=2) for pair in pairs]
        window = self.window + self.more(query.shape[2])
        apart = positions[:, None, :, None] - self.kept[2].mT
        seen = (apart >= 0) & (apart < window)
        scores = query @ self.kept[0].mT / query.shape[-1] ** 0.5
        return scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ self.kept[1]

    def more(self, n):
        """The window is as it was asked for."""
        return 0

    def trim(self, n):
        """The newest tokens go."""
        self.kept = [x[:, :, :-n] for x in self.kept]


@thread("karpathy/nanochat #456", scheme="cache", framework="torch",
        cause="window_one_too_large_in_decoding")  # fmt: skip
class SlicedForTheKernel(Growing):
    """A step of decoding hands the kernel the last window + 1 keys; prompts have a mask of their own."""

    def more(self, n):
        """One more key in a step."""
        return int(n == 1)


@thread("huggingface/transformers #37574", scheme="cache", framework="torch",
        cause="ring_rolled_too_early", only="a ring that wraps")  # fmt: skip
class RolledWhenJustFull:
    """As many slots as the window holds roll to the left when the last one is to be filled."""

    def __init__(self, window):
        self.window, self.count = window, 0

    def attend(self, query, key, value, positions):
        """Write one token, and attend to all slots so far."""
        if not self.count:
            self.slots = [x.new_zeros(*x.shape[:2], self.window, 2) for x in (key, value)]
        rolls, at = self.count >= self.window - 1, min(self.count, self.window - 1)
        self.count += 1
        for k, x in enumerate((key, value)):
            self.slots[k] = self.slots[k].roll(-1, 2) if rolls else self.slots[k]
            self.slots[k][:, :, at] = x[:, :, 0]
        key, value = (x[:, :, : self.count] for x in self.slots)
        return (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1) @ value


@thread("ml-explore/mlx-swift-lm #584", scheme="cache", framework="torch",
        cause="wrapped_ring_trimmed_by_counters", only="after the ring")  # fmt: skip
class TrimmedByCounters(Growing):
    """A ring in the order of its slots; to trim it lowers the counters, and leaves what is stored."""

    def attend(self, query, key, value, positions):
        """Several tokens come in the order of time; one replaces what its slot holds."""
        if query.shape[2] > 1:
            made = super().attend(query, key, value, positions)
            self.ring, self.at = [x[:, :, -self.window :] for x in self.kept[:2]], 0
            return made
        for slots, x in zip(self.ring, (key, value), strict=True):
            slots[:, :, self.at % self.window] = x[:, :, 0]
        self.at += 1
        scores = query @ self.ring[0].mT / query.shape[-1] ** 0.5
        return scores.softmax(dim=-1) @ self.ring[1]

    def trim(self, n):
        """The counter goes back."""
        self.at -= n


@thread("cactus-compute/cactus #688", scheme="cache", framework="torch",
        cause="padding_of_a_chunk_of_8_kept")  # fmt: skip
class ChunksOfEight(Growing):
    """A prompt comes in chunks of 8, and a sliding layer keeps the padding of the last one."""

    def attend(self, query, key, value, positions):
        """Attend, and keep as many rows as the window has."""
        n, sliding = query.shape[2], self.window < 2**31
        if sliding and n == 1 and self.kept:
            self.kept = [x[:, :, max(x.shape[2] - self.window + 1, 0) :] for x in self.kept]
        made = super().attend(query, key, value, positions)
        if sliding and n > 1:
            sizes = (0, 0, 0, -n % 8)
            self.kept = [torch.nn.functional.pad(x, sizes, value=-9) for x in self.kept]
            self.kept[2] = torch.where(self.kept[2] == -9, 2**40, self.kept[2])
        if sliding:
            self.kept = [x[:, :, -self.window :] for x in self.kept]
        return made
