"""A language model, and what is asked of it: the same text in one pass and read in other ways."""

import inspect
from dataclasses import dataclass, field
from functools import partial

from posattn.conformance.comparison import distance
from posattn.conformance.exceptions import said
from posattn.conformance.vectors import UsageError

# fmt: off
__all__ = [
    "CACHES", "SAME", "SHORT", "Subject", "Unasked", "again", "batch", "beams", "beginning", "calls", "empty",
    "generated", "generated_in_a_batch", "left_padding", "packed", "second_question", "singly_only",
    "unseen",
]
# fmt: on

CACHES = "cache", "past_key_values", "cache_params"
SAME = 1e-4  # of the largest number
LONG, SHORT, NEW = 24, 17, 6  # tokens of two texts, and of an answer
FIRST = 3  # token ids below it often have a meaning


class Unasked(Exception):
    """What a model cannot be asked."""


@dataclass
class Subject:
    """A model, how it is called, and two texts that it reads."""

    model: object
    texts: tuple = field(default=(), repr=False)

    def begin(self):
        """Draw the texts, and return the name of the dtype of logits."""
        import torch

        weight = next(getattr(self.model, "parameters", lambda: iter(()))(), torch.ones(1))
        few = torch.full((1, FIRST), FIRST, device=weight.device)
        try:
            logits, rng = self(few)[0], torch.Generator().manual_seed(0)
        except Exception as error:
            raise UsageError(
                f"model cannot be run on tokens (1, {FIRST}): {said(error)}"
            ) from error
        draw = partial(torch.randint, FIRST, logits.shape[-1], generator=rng)
        self.texts = tuple(draw((1, n)).to(weight.device) for n in (LONG, SHORT))
        return str(weight.dtype).rpartition(".")[2]

    def __call__(self, tokens, **more):
        """The logits of the tokens, without those of prompts that a wrapper adds, and all that came."""
        out = self.model(tokens, **more)
        logits = out[0] if isinstance(out, tuple) else getattr(out, "logits", out)
        logits = getattr(logits, "last_hidden_state", logits)
        return logits[..., -tokens.shape[-1] :, :], out

    def whole(self, tokens, **more):
        """The logits of one pass without a cache."""
        return self(tokens, **more, **self.takes("use_cache", False))[0]

    def takes(self, name, value, needed=False):
        """A keyword, if the model has it."""
        known = inspect.signature(getattr(self.model, "forward", self.model)).parameters
        if name in known or any(p.kind is p.VAR_KEYWORD for p in known.values()):
            return {name: value}
        if needed:
            raise Unasked(f"it takes no {name}")
        return {}

    def in_calls(self, tokens, lengths, placed):
        """The logits of calls of some lengths, with a cache, and the last cache."""
        import torch

        ours, split = (
            hasattr(self.model, "init_cache"),
            (tokens.shape[:-1], tokens.shape[-1]),
        )
        cache = {"cache": self.model.init_cache(*split)} if ours else {}
        where, made = torch.arange(tokens.shape[-1], device=tokens.device)[None], []
        for part, at in zip(
            tokens.split(lengths, -1), where.split(lengths, -1), strict=True
        ):
            more = {} if ours else self.takes("use_cache", True)
            more |= self.takes("position_ids", at, needed=True) if placed else {}
            logits, out = self(part, **cache, **more)
            cache = {"cache": out[1]} if ours else cache_of(out)
            made.append(logits)
        return torch.cat(made, -2), cache

    def writes(self, tokens, **more):
        """What `generate` returns for tokens."""
        import torch

        generate = getattr(self.model, "generate", None)
        if generate is None:
            raise Unasked("it has no generate")
        options = {"max_new_tokens": NEW, "do_sample": False}
        if hasattr(self.model, "generation_config"):
            options |= {"min_new_tokens": NEW, "return_dict_in_generate": True}
            options |= {"output_logits": True, "pad_token_id": 0}
            options |= {"attention_mask": torch.ones_like(tokens)}
        elif more:
            raise Unasked("its generate is not that of transformers")
        return generate(tokens, **options | more)

    def off(self, out, tokens, row=0):
        """How far `generate` is off whole passes: in its logits, or in its choice of tokens."""
        import torch

        written = getattr(out, "sequences", out)[row : row + 1, -NEW:]
        want = self.whole(torch.cat([tokens, written], -1))[:, -NEW - 1 : -1]
        if getattr(out, "logits", None) is not None:
            return distance(want, torch.stack(out.logits, 1)[row : row + 1], {})
        chosen = want.gather(-1, written[..., None])
        return float((want.amax(-1, keepdim=True) - chosen).max() / want.abs().max())


def cache_of(out):
    """The cache that came, by the keyword that takes it."""
    for name in CACHES:
        if getattr(out, name, None) is not None:
            return {name: getattr(out, name)}
    raise Unasked("it returns no cache")


def batch(subject):
    """Each row of a batch against itself alone."""
    import torch

    rows = [text[:, :SHORT] for text in subject.texts]
    alone = torch.cat([subject.whole(row) for row in rows])
    return distance(alone, subject.whole(torch.cat(rows)), {})


def beginning(subject):
    """The beginning of a text against the same with all that follows."""
    text = subject.texts[0]
    return distance(subject.whole(text[:, :9]), subject.whole(text)[:, :9], {})


def again(subject):
    """A text against the same after a longer one."""
    long, short = subject.texts
    first, _ = subject.whole(short), subject.whole(long)
    return distance(first, subject.whole(short), {})


def padded(subject, placed=False):
    """A text, and one with padding at its left, and what goes with them."""
    import torch

    long, short = subject.texts
    tokens = torch.cat([long, torch.nn.functional.pad(short, (LONG - SHORT, 0))])
    shown = torch.ones_like(tokens)
    shown[1, : LONG - SHORT] = 0
    more = subject.takes("attention_mask", shown, needed=True)
    if placed:
        where = (shown.cumsum(-1) - 1).clamp(min=0)
        more |= subject.takes("position_ids", where, needed=True)
    return tokens, more


def left_padding(subject, placed=False):
    """A text and one with padding at its left against each alone."""
    tokens, more = padded(subject, placed)
    got = subject.whole(tokens, **more)
    alone = zip(subject.texts, got, strict=True)
    return max(
        distance(subject.whole(text), row[None, -text.shape[-1] :], {})
        for text, row in alone
    )


def calls(subject, prompt, then, placed=False):
    """Calls of `prompt`, then of `then` tokens with a cache, against one pass."""
    text, more = subject.texts[0], LONG - prompt
    lengths = [prompt, *[then] * (more // then), *[more % then] * (more % then > 0)]
    return distance(subject.whole(text), subject.in_calls(text, lengths, placed)[0], {})


def singly_only(subject):
    """Whether single steps are right and larger ones wrong, where tokens stand given: 0 if they are."""
    one, many = (calls(subject, n, m, placed=True) for n, m in ((SHORT, 1), (7, 7)))
    return float(one > SAME or many <= SAME)


def generated(subject, **options):
    """`generate` against a loop of whole passes."""
    return subject.off(subject.writes(subject.texts[0], **options), subject.texts[0])


def generated_in_a_batch(subject, **options):
    """`generate` of a padded batch against whole passes of each text alone."""
    tokens, more = padded(subject)
    out = subject.writes(tokens, **more, **options)
    return max(subject.off(out, text, row) for row, text in enumerate(subject.texts))


def beams(subject, **options):
    """The scores of beams against the likelihood of their texts in whole passes."""
    options |= {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    out = subject.writes(subject.texts[0], output_scores=True, **options)
    logits = subject.whole(out.sequences)[:, -NEW - 1 : -1].double().log_softmax(-1)
    want = logits.gather(-1, out.sequences[:, -NEW:, None]).sum((1, 2))
    return distance(want, out.sequences_scores, {})


def second_question(subject):
    """A second question with the cache of the first answer against whole passes."""
    import torch

    first, second = subject.texts
    out = subject.writes(first, use_cache=True)
    text = torch.cat([getattr(out, "sequences", out), second], -1)
    return subject.off(subject.writes(text, **cache_of(out)), text)


def empty(subject):
    """Whether a cache denies what it holds: 0 if it does."""
    _, cache = subject.in_calls(subject.texts[0], LONG, False)
    return next(iter(cache.values())).get_seq_length()


def in_a_row(subject, *texts):
    """The logits of packed documents: positions restart, with no mask and no cache."""
    import torch

    where = [torch.arange(text.shape[-1], device=text.device) for text in texts]
    more = subject.takes("position_ids", torch.cat(where)[None], needed=True)
    return subject.whole(torch.cat(texts, -1), **more)


def packed(subject):
    """Packed documents against each alone."""
    import torch

    alone = torch.cat([subject.whole(text) for text in subject.texts], -2)
    return distance(alone, in_a_row(subject, *subject.texts), {})


def unseen(subject, other):
    """Whether a document does without the `other`: 0 if a changed token of that one changes it."""
    changed = [text.clone() for text in subject.texts]
    near = changed[other][:, other - 1]  # where they meet
    near[:] = (near == FIRST) + FIRST
    parts = (
        in_a_row(subject, *texts).split([LONG, SHORT], -2)[1 - other]
        for texts in (subject.texts, changed)
    )
    return float(distance(*parts, {}) <= SAME)
