"""What the book's chapters show of a released model: a few sentences through its heads and layers."""

from itertools import product

import numpy as np
import torch

from tests.nightly.real import faults, heads, played, released

SENTENCE, VERB = "The dog near the house bites the man.", " bites"
NAMED = {"subject": (13, 8), "previous": (16, 0), "first": (18, 8)}  # layer and head
FRAMES = (
    "The {0} near the {1} {2} the {3}.",
    "Near the {1} the {0} {2} the {3}.",
    "In the house of the {1} the {0} {2} the {3}.",
    "The {0} that likes the {1} {2} the {3}.",
)
WORDS = "dog cat bites man, king queen sees child, teacher doctor helps girl"
WORDS += ", farmer horse follows boy, child king calls nurse, doctor farmer thanks teacher"
ANSWERS = {
    "One, two, three, four,": " five",
    "A, B, C, D, E, F,": " G",
    "Monday, Tuesday, Wednesday,": " Thursday",
    "The capital of Italy is": " Rome",
}
TEXT, READ, FROM, PADS, DRAWS = "Python", 512, 256, 3, 8


def pieces(text):
    """The tokens of a text, `(1, n)`, and what each spells."""
    ids = released.tokenizer().encode(text).ids
    return torch.tensor([ids]), [released.tokenizer().decode([each]) for each in ids]


@torch.inference_mode()
def through(decoder, tokens, causal=True, mask=None):
    """The attention weights of each layer, `(layers, batch, h, n, n)`, and what comes out, `(..., n, d)`."""
    x, found, options = decoder.embedding(tokens), [], {"causal": causal, "mask": mask}
    for block in decoder.blocks:
        read = block.attention_norm(x)
        found.append([block.attention.attention_weights(read, **options)])
        x = x + block.attention(read, **options)
        x = x + block.feed_forward(block.feed_forward_norm(x))
        found[-1].append(x)
    return [torch.stack(each) for each in zip(*found, strict=True)]


def sentence():
    """Where each head looks from the verb, and all weights of three heads."""
    tokens, words = pieces(SENTENCE)
    found, at = through(released.decoder(), tokens)[0][:, 0], words.index(VERB)
    named = {name: rounded(found[place]) for name, place in NAMED.items()}
    return {"words": words, "row": rounded(found[:, :, at, : at + 1]), **named}


def subjects():
    """The verb's weights on its subject and on another noun, and the subject's lead by pair."""
    found = []
    for frame, said in product(FRAMES, WORDS.split(", ")):
        tokens, words = pieces(frame.format(*said.split()))
        subject, other, verb = (words.index(f" {word}") for word in said.split()[:3])

        def looked(weights, q, k, verb=verb, nouns=(subject, other)):
            lead = k[0, :, nouns[0]] - k[0, :, 1 : verb + 1].mean(1)
            parts = (q[0, :, verb] * lead / 8).unflatten(-1, (2, -1)).sum(-2)
            return torch.cat([weights[0, :, verb, nouns], parts], -1)

        found += heads.by_layer(released.decoder(), tokens, looked)
    found = torch.stack(found)  # sentences, layers, heads
    named = found[:, *NAMED["subject"]]
    both = {"subject": found[..., 0].mean(0), "other": found[..., 1].mean(0)}
    both |= {"each": named[:, :2], "leads": named[:, 2:].mean(0)}
    return {name: rounded(each) for name, each in both.items()}


def scores():
    """Largest weights and lengths of the gradient by a query, of scores divided by 8 and not divided.

    Medians by layer, means, and the share below 0.01, `(2, 2)` each: for both ways, weight and length.
    The values are numbers drawn anew, as on the chapter's page.
    """
    value = torch.randn(READ, 1, generator=torch.Generator().manual_seed(0))
    future = torch.ones(READ, READ).triu(1).bool()

    def measured(weights, q, k):
        found = []
        for scale in (0.125, 1.0):
            a = (scale * q @ k.mT).masked_fill(future, -torch.inf).softmax(-1)
            length = (scale * (a * (value.mT - a @ value)) @ k).norm(dim=-1)
            found.append(torch.stack([a.amax(-1), length])[..., FROM:].flatten(1))
        return torch.stack(found)

    tokens = released.read(TEXT, READ)[None]
    (found,) = heads.by_layer(released.decoder(), tokens, measured)
    whole = found.movedim(0, -1).flatten(2)
    made = {"by layer": found.median(-1)[0], "median": whole.median(-1)[0]}
    made |= {"mean": whole.mean(-1), "small": (whole < 0.01).double().mean(-1)}
    return {name: rounded(each) for name, each in made.items()}


def offsets():
    """The mean weight of each layer by how far back a key stands, and that of the first token."""

    def by_offset(weights, q, k):
        late = [weights.diagonal(-back, -2, -1)[..., FROM - back :] for back in range(FROM)]
        first = weights[..., FROM:, 0].mean()
        return torch.stack([first, *(each.mean() for each in late)])

    tokens = released.read(TEXT, READ)[None]
    (found,) = heads.by_layer(released.decoder(), tokens, by_offset)
    return {"first": rounded(found[:, 0]), "weights": rounded(found[:, 1:])}


def padded():
    """The verb's row with padding in front, masked and not, and without a causal mask; how likely Rome is."""
    decoder, rome, found = released.decoder(), pieces(" Rome")[0].item(), {}
    for name in ("masked", "padding seen", "future seen"):
        for text in (SENTENCE, "The capital of Italy is"):
            tokens, words = pieces(text)
            tokens = torch.cat([torch.full((1, PADS), faults.PADDING), tokens], 1)
            shown = (tokens != faults.PADDING) | (name == "padding seen")
            shown = shown.expand(tokens.shape[1], -1)
            weights, x = through(decoder, tokens, name != "future seen", shown)
            if VERB in words:
                row = weights[:, 0, :, PADS + words.index(VERB)].mean((0, 1))
                found[name] = {"row": rounded(row)}
            else:
                likely = decoder._logits(x[-1, 0, -1]).softmax(-1)[rome]
                found[name]["Rome"] = rounded(likely)
    return found


def order():
    """How far shuffles of all but first and last token move the last, by layer, and what should follow it."""
    on, rng = released.decoder(), torch.Generator().manual_seed(0)
    off, moved, likely = faults.planted("not rotated", on, 0), [], {}
    for text, answer in {SENTENCE: "", **ANSWERS}.items():
        tokens = pieces(text)[0]
        between = torch.rand(DRAWS, tokens.shape[1] - 2, generator=rng).argsort(-1) + 1
        ends = torch.zeros(DRAWS, 1).long()
        texts = torch.cat([tokens, tokens[0, torch.cat([ends, between, ends - 1], 1)]])
        for decoder, causal in ((on, True), (off, True), (off, False)):
            x = through(decoder, texts, causal)[1][:, :, -1]
            moved.append((x[:, 1:] - x[:, :1]).norm(dim=-1) / x[:, :1].norm(dim=-1))
            if answer and causal:
                chance = decoder._logits(x[-1]).softmax(-1)[:, pieces(answer)[0].item()]
                both = torch.stack([chance[0], chance[1:].mean()])
                likely.setdefault(text, []).append(rounded(both))
    moved = torch.stack(moved).unflatten(0, (-1, 3))  # texts, ways, layers, draws
    return {
        "moved": rounded(moved.movedim(0, -1).flatten(2).median(-1)[0]),
        "likely": likely,
    }


def unplaced():
    """What `played` writes after short texts without positions: it fails from the start."""
    tokenizer, lengths = released.tokenizer(), played.LENGTHS[:3]
    tokens = released.read(played.TEXT, lengths[-1])
    written = played.continued(
        "positions off", tokens, lambda text: tokenizer.encode(text).ids, lengths
    )
    return {"writes": [[tokenizer.decode(each) for each in row] for row in written]}


def rounded(x):
    """Three digits of each number, as lists."""
    return np.vectorize(lambda number: float(f"{number:.3g}"))(x.double().numpy()).tolist()


MEASURES = (sentence, subjects, scores, offsets, padded, order, unplaced)
MEASURES = {each.__name__: each for each in MEASURES}
