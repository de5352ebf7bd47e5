"""What a released model writes after a longer and longer text: as trained, with YaRN, without positions."""

import torch

from tests.nightly.real import faults, released
from tests.nightly.real.methods import METHODS

TEXT, CHUNK, WRITTEN = "Python", 1024, 12  # whose topics stand before each prompt
LENGTHS = (0, 1024, 2048, 4096, 6144, 8192, *range(9216, 14337, 1024))
PROMPTS = (
    "One, two, three, four,",
    "The capital of Italy is",
    "A, B, C, D, E, F,",
    "The man bites the dog. The dog cries because the",
)
WAYS = {"as trained": METHODS["nothing"], "YaRN": METHODS["YaRN"], "positions off": None}


def grown(decoder, cache, length):
    """A cache with room for so many tokens, and what was kept in a smaller one."""
    made = decoder.init_cache((1,), length + 64)
    for new, old in zip(made, cache or (), strict=bool(cache)):
        slots = old.positions.shape[-1] - 1
        for name in ("key", "value"):
            getattr(new, name)[..., :slots, :] = getattr(old, name)[..., :slots, :]
        new.positions[..., :slots] = old.positions[..., :slots]
    return made


@torch.inference_mode()
def continued(way, tokens, encode, lengths=LENGTHS):
    """The tokens that follow each prompt after so much of a text, `(lengths, prompts, 12)`."""
    made, cache, read, written = faults.copied(released.decoder()), None, 0, []
    faults.rotate(made, lambda _: WAYS[way])
    for length in lengths:
        cache = grown(made, cache, length)
        for some in filter(len, tokens[read:length].split(CHUNK)):
            _, cache = made._stream(some[None], None, None, cache)
        read, kept = length, [layer.positions.clone() for layer in cache]
        written.append([])
        for prompt in PROMPTS:
            said, asked = [], torch.tensor([encode("\n" * (length > 0) + prompt)])
            for _ in range(WRITTEN):
                logits, cache = made(asked, cache=cache)
                asked = logits[:, -1:].argmax(-1)
                said.append(asked.item())
            for layer, before in zip(cache, kept, strict=True):  # forget it
                layer.positions.copy_(before)
            written[-1].append(said)
    return written


def played(way):
    """What the page's instrument shows."""
    tokenizer = released.tokenizer()
    tokens = released.read(TEXT, LENGTHS[-1])
    written = continued(way, tokens, lambda text: tokenizer.encode(text).ids)
    texts = [
        [tokenizer.decode(each, skip_special_tokens=False) for each in row]
        for row in written
    ]
    return {"lengths": LENGTHS, "prompts": PROMPTS, "writes": texts}
