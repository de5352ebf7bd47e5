"""Train one decoder in PyTorch."""

import math

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from posattn.torch import Decoder
from tests.nightly.studies.schemes import HEADS, WIDTH, Column


def fresh(scheme, vocab_size, layers, seed):
    """A decoder with numbers of its own; the entries of an embedding have variance 1."""
    rng = torch.Generator().manual_seed(seed)
    options = scheme(Column("torch", rng))
    made = Decoder(vocab_size, WIDTH, layers, HEADS, rng=rng, **options)
    torch.nn.init.normal_(made.embedding.weight, std=WIDTH**-0.5, generator=rng)
    made.embedding_scale = WIDTH**0.5
    return made


def rate(step, settings):
    """The learning rate of a step."""
    warm = min(1.0, (step + 1) / settings.warm_up)
    return settings.rate * warm * (1 + math.cos(math.pi * step / settings.steps)) / 2


def loss_of(decoder, tokens, targets):
    """The mean loss of the targets; where one is -1, nothing is asked."""
    logits = decoder(tokens[:, :-1])
    return cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=-1)


def train(decoder, batches, settings, watch=None):
    """Train on the batches; return the loss of each step. `watch(step)` is called before each."""
    optimizer = torch.optim.AdamW(
        decoder.parameters(), betas=settings.betas, weight_decay=settings.decay
    )
    losses = []
    for step, arrays in enumerate(batches):
        if watch is not None:
            watch(step)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, settings)
        loss = loss_of(decoder, *map(torch.from_numpy, arrays))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), settings.norm)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def logits_of(decoder, size=32):
    """A function from tokens `(n_texts, n)` to the logits of each next token, a few texts at a time."""

    @torch.inference_mode()
    def logits(tokens):
        parts = torch.from_numpy(tokens[:, :-1]).split(size)
        return np.concatenate([decoder(part).numpy() for part in parts])

    return logits
