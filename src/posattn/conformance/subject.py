"""A language model that is asked for the same logits in several ways, whatever wraps it."""

import inspect
from functools import partial

import torch

from posattn.conformance.exceptions import said
from posattn.conformance.vectors import UsageError

__all__ = ["CACHES", "FIRST", "LONG", "NEW", "SHORT", "Subject", "Unasked", "cache_of"]

CACHES = "cache", "past_key_values", "cache_params"
LONG, SHORT, NEW = 24, 17, 6  # tokens of two texts, and of an answer
FIRST = 3  # token ids below it often have a meaning


class Unasked(Exception):
    """What a model cannot be asked."""


class Subject:
    """A model, how it is called, and two texts that it reads."""

    def __init__(self, model):
        self.model = model

    def begin(self):
        """Draw the texts, and return the name of the dtype of the model."""
        weight = next(getattr(self.model, "parameters", lambda: iter(()))(), torch.ones(1))
        try:
            logits, _ = self(torch.full((1, FIRST), FIRST, device=weight.device))
        except Exception as error:
            refused = f"model cannot be run on tokens (1, {FIRST}): {said(error)}"
            raise UsageError(refused) from error
        rng = torch.Generator().manual_seed(0)
        draw = partial(torch.randint, FIRST, logits.shape[-1], generator=rng)
        self.texts = tuple(draw((1, n)).to(weight.device) for n in (LONG, SHORT))
        self.long, self.short = self.texts
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

    def in_calls(self, tokens, lengths, placed=False):
        """The logits of calls of some lengths, with a cache, and the last cache."""
        (*batch, n), made = tokens.shape, []
        ours = hasattr(self.model, "init_cache")
        cache = {"cache": self.model.init_cache(batch, n)} if ours else {}
        where = torch.arange(n, device=tokens.device)[None].split(lengths, -1)
        for part, at in zip(tokens.split(lengths, -1), where, strict=True):
            more = {} if ours else self.takes("use_cache", True)
            more |= self.takes("position_ids", at, needed=True) if placed else {}
            logits, out = self(part, **cache, **more)
            cache = {"cache": out[1]} if ours else cache_of(out)
            made.append(logits)
        return torch.cat(made, -2), cache

    def writes(self, tokens, **more):
        """What `generate` returns for tokens."""
        generate = getattr(self.model, "generate", None)
        if generate is None:
            raise Unasked("it has no generate")
        options = {"max_new_tokens": NEW}
        if not hasattr(self.model, "init_cache"):
            options |= {"do_sample": False}
        if hasattr(self.model, "generation_config"):
            options |= {"min_new_tokens": NEW, "return_dict_in_generate": True}
            options |= {"output_logits": True, "attention_mask": torch.ones_like(tokens)}
            options |= {"pad_token_id": 0}
        elif more:
            raise Unasked("its generate is not that of transformers")
        return generate(tokens, **options | more)

    def beside(self, out, tokens, row=0):
        """What whole passes say of what was written, and what `generate` said: logits, or those chosen."""
        written = getattr(out, "sequences", out)[row : row + 1, -NEW:]
        want = self.whole(torch.cat([tokens, written], -1))[:, -NEW - 1 : -1]
        return chosen(want, out, row)

    def alone(self, out):
        """What each written token but the last says by itself, and what `generate` said of the next one."""
        written = getattr(out, "sequences", out)[:1, -NEW:-1]
        where = LONG + torch.arange(NEW - 1, device=written.device)[:, None]
        made = self.whole(written.mT, **self.takes("position_ids", where))
        return chosen(made.transpose(0, 1), out)


def chosen(want, out, row=0):
    """Wanted logits `(1, n, v)`, and those of the last n tokens of `generate`; or only of what it chose."""
    n = want.shape[-2]
    if getattr(out, "logits", None) is not None:
        return want, torch.stack(out.logits, 1)[row : row + 1, -n:]
    written = getattr(out, "sequences", out)[row : row + 1, -n:]
    return want.amax(-1), want.gather(-1, written[..., None])[..., 0]


def cache_of(out):
    """The cache that came, by the keyword that takes it."""
    for name in CACHES:
        if getattr(out, name, None) is not None:
            return {name: getattr(out, name)}
    raise Unasked("it returns no cache")
