"""What is measured of a decoder: its loss by position, what it writes, and what `diagnose` says of it."""

from dataclasses import replace

import torch
from torch import nn

from posattn.configs import plan
from posattn.conformance.diagnosis import diagnose
from posattn.torch.models.layer_plan import state_of

BLOCK, AT_ONCE = 128, 1024  # positions whose losses are averaged, and whose logits are held
JUDGED = 3  # layers: in all others each fault is the same


@torch.inference_mode()
def losses(decoder, tokens, lead=0):
    """The loss of each next token, in nats, averaged over blocks of positions, as lists.

    Logits of a long text are more than memory holds, so they are made a piece at a time.
    """
    x, positions = decoder.embedding(tokens[:, :-1]), torch.arange(tokens.shape[1] - 1)
    for block in decoder.blocks:
        x, _ = block(x, query_positions=positions)
    given, wanted = x[:, lead:].split(AT_ONCE, 1), tokens[:, lead + 1 :].split(AT_ONCE, 1)
    found = []
    for some, after in zip(given, wanted, strict=True):
        logits = nn.functional.linear(decoder.norm(some), decoder.embedding.weight)
        found.append(nn.functional.cross_entropy(logits.mT, after, reduction="none"))
    blocks = torch.cat(found, 1).unflatten(1, (-1, BLOCK)).mean(-1)
    return blocks.double().numpy().round(4).tolist()


class Called(nn.Module):
    """A decoder that is told its positions, and does not look at `attention_mask`."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder, self.init_cache = decoder, decoder.init_cache

    def forward(self, input_ids, attention_mask=None, cache=None):
        """The logits."""
        n = input_ids.shape[-1]
        positions = torch.arange(n) if cache is None else cache[0].next_positions(n)
        return self.decoder(input_ids, positions=positions, cache=cache)


def diagnosed(decoder, path, tokens, lead):
    """How many of the first layers do what the file says, and what is said of the first that does not."""
    described, state = plan(path), state_of(path)
    layers = described.layers[:JUDGED]
    names = tuple(f"model.layers.{layer.index}.self_attn." for layer in layers)
    shown = torch.ones_like(tokens)
    shown[:, :lead] = 0
    found = diagnose(
        Called(decoder),
        replace(described, layers=layers),
        {"input_ids": tokens, "attention_mask": shown} if lead else tokens,
        attention=lambda model, index: model.decoder.blocks[index].attention,
        weights={name: state[name] for name in state if name.startswith(names)},
    )
    said = "" if found.first is None else str(found.findings[found.first])
    return {"agree": sum(layer.agrees for layer in found.findings), "says": said}
