"""Which layer of a PyTorch model does something else than its configuration says, and what that may be."""

import os
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np

from posattn.configs.reading import ATTENTION
from posattn.conformance import inputs
from posattn.conformance.comparison import (
    bounds,
    distance,
    elsewhere,
    len_of,
    of_the_first,
    run,
    windows,
)
from posattn.conformance.misreadings import misreadings
from posattn.conformance.modules import (
    by_steps,
    joined,
    module_of,
    reads_by_steps,
    state_of,
    watched,
)
from posattn.conformance.neighbors import keys_of, nearby
from posattn.conformance.slips import forgotten, planted
from posattn.conformance.survival import Row, survives
from posattn.conformance.vectors import UsageError

__all__ = ["Diagnosis", "Finding", "diagnose"]

FIRST = 64  # which a reading must explain before all are tried
TRIED = 2  # wrong layers of a kind that all near numbers are tried on
LATER = "In one call it agrees: look at what a later call takes from its cache, and at its positions."
SHOWN = 3  # causes that the inputs do not tell apart


@dataclass
class Finding:
    """What was found of one layer.

    Args:
        layer: its number.
        error: the worst entry of its output, relative to the largest that was expected; None if it was not
            compared.
        agrees: whether that is within rounding.
        causes: for a layer that differs, each reading of the configuration that gives what the module gave.
        keys: of the configuration, which these readings are about.
        why: for a layer that was not compared, why not.
        pairs: whether it is an attention of pairs, which could be compared.
    """

    layer: int
    error: float | None = None
    agrees: bool = False
    causes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    why: str = ""
    pairs: bool = True

    def __str__(self):
        if self.error is None:
            return f"layer {self.layer}: not compared, {self.why}"
        if self.agrees:
            return f"layer {self.layer}: agrees, up to {self.error:.1e}"
        told = " Or: ".join(self.causes[:SHOWN]) or "No known misreading explains this."
        more = len(self.causes) - SHOWN
        told += f" Or one of {more} more." * (more > 0)
        look = f" See {', '.join(self.keys)}." if self.keys else ""
        return f"layer {self.layer}: differs by {percent(self.error)}. {told}{look}"


@dataclass
class Diagnosis:
    """What `diagnose` found; prints as a line for each layer.

    Args:
        model_type: of the configuration.
        findings: one for each layer.
        notes: what the inputs could not show.
        length: up to which position the inputs went.
        calls: in how many calls they were read once more, with a cache; 0 if they were not.
        rows: what the model survives of what was asked: packed rows.
    """

    model_type: str
    findings: list[Finding]
    notes: list[str]
    length: int
    calls: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def first(self):
        """The number of the first layer that differs; None if none does."""
        wrong = (found.layer for found in self.findings if found.error is not None)
        return next((i for i in wrong if not self.findings[i].agrees), None)

    @property
    def agrees(self):
        """Whether each attention was compared and agrees; what could not be compared is no success."""
        asked = [found.agrees for found in self.findings if found.pairs]
        asked += [row.survives for row in self.rows if row.error is not None]
        return bool(asked) and all(asked)

    def to_dict(self):
        """The same as plain data."""
        return asdict(self) | {"first": self.first, "agrees": self.agrees}

    def __str__(self):
        right = sum(found.agrees for found in self.findings)
        left = sum(found.error is None for found in self.findings)
        title = f"{self.model_type}: {right} of {len(self.findings)} layers do what the configuration says"
        if left:
            title += f", {left} not compared"
        if self.first is not None:
            title += f", the first that does not is layer {self.first}"
        again = f", and in {self.calls} with one" if self.calls else ""
        seen = f"Seen are {self.length} positions in one call without a cache{again}: nothing beyond them."
        return "\n".join(
            [title, *map(str, [*self.findings, *self.rows]), *self.notes, seen]
        )


def diagnose(
    model, config, tokens=None, *, attention=None, weights=None, decode=None, packed=False
):
    """Run each layer of attention beside what the configuration says of it.

    The model runs once. What goes into each attention and what comes out is kept, a layer is made from the
    configuration with the same weights, and runs on the same input. So each layer is judged by itself,
    also behind one that is wrong. Then a causal model reads the tokens again in several calls, with its
    cache, and each layer that agreed must do the same.

    Args:
        model: a PyTorch module. It is left as it was.
        config: what `posattn.configs.plan` reads, or a plan.
        tokens: `(b, n)`, or a dictionary of what the model is called with, of which `position_ids`,
            `(n)`, `(b, n)` or `(3, b, n)`, say where the tokens stand, and `attention_mask`, `(b, n)`, what
            is no padding. Where positions restart a document begins, which must see no other. A number means
            as many random tokens, and if nothing is given they are 272, or enough to go beyond windows and
            chunks of up to 4,096; M-RoPE sees two pictures among them. What begins later is not seen.
        attention: where the attention of a layer is: a function of model and number that returns the
            module, or a name with `{}` for the number, such as `"blocks.{}.attn"`. As transformers names
            it if not given, or else where its projections have the shapes of the layer's.
        weights: all weights by the names that transformers gives them, or a folder or file that has them;
            if not given, each attention has its own under these names.
        decode: how the model reads the tokens with its cache: a function of model and tokens that calls it
            several times. If not given, a decoder of ours or of transformers, called with nothing but
            tokens, reads the last eight one by one; others are not read with a cache.
        packed: whether random tokens are two documents in a row, whose positions restart. Then a token of one
            is changed, too, and no other may change.

    Returns:
        A `Diagnosis`.

    Raises:
        UsageError: if an argument is not of its kind, the configuration is not clear, or the model cannot
            be run on the inputs.

    Examples:
        >>> from torch import nn
        >>> class Attention(nn.Module):  # of one token each: nothing is rotated or hidden
        ...     def __init__(self):
        ...         super().__init__()
        ...         for name in "qkvo":
        ...             setattr(self, f"{name}_proj", nn.Linear(8, 8, bias=False))
        ...     def forward(self, x):
        ...         return self.o_proj(self.v_proj(x))
        >>> model = nn.Sequential(nn.Embedding(10, 8), Attention())
        >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
        ...     "num_hidden_layers": 1, "rope_theta": 10000.0}
        >>> diagnose(model, config, attention="1").first
        0
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    described = inputs.planned(config, None)
    given = inputs.called_with(model, described, tokens)
    n = len_of(given)
    described = inputs.planned(config, n)
    if isinstance(weights, (str, os.PathLike)):
        weights = inputs.read_from(weights)
    indices = [layer.index for layer in described.layers if layer.kind in ATTENTION]
    if isinstance(attention, str) and "{" not in attention and len(indices) > 1:
        raise UsageError(
            f"attention must hold {{}} for the number of a layer, of which there are {len(indices)}, "
            f"got {attention!r}"
        )
    modules = {i: module_of(model, described, i, attention) for i in indices}
    plain, alone = given, None if isinstance(tokens, dict) else given.get("tokens")
    if packed or isinstance(tokens, (int, type(None))):
        given = inputs.placed(model, described, given, packed)
    named = {name: x for name, x in given.items() if alone is None or name != "tokens"}
    once = partial(model, *([] if alone is None else [given["tokens"]]), **named)
    seen, _ = joined(watched(model, described, modules, once))
    rows = survives(model, "packed") if packed else []
    causal = not packed and all(described.layers[i].causal for i in indices)
    later, starts, notes = {}, [], []
    if decode is not None or (causal and alone is not None and reads_by_steps(model)):
        steps = partial(decode or by_steps, model, plain if alone is None else alone)
        try:
            later, starts = joined(watched(model, described, modules, steps))
            wrong = {x.shape[-2] for at, x in later.items() if x.shape != seen[at].shape}
            if wrong:
                had = f"got {max(wrong)} in all"
                raise UsageError(f"decode must give each attention the {n} tokens, {had}")
        except UsageError as refused:
            if decode is not None:
                raise
            later, starts, notes = {}, [], [f"With a cache, {refused}"]
    findings, wrong = [], Counter()
    for layer in described.layers:
        alike = replace(layer, index=0)
        causes = {cause for found in findings for cause in found.causes}
        known = None if wrong[alike] < TRIED else causes
        own = state_of(modules, described, layer.index)
        state = own if weights is None else weights
        found = matches_of(described, layer, modules, seen, given, state, known=known)
        if found.agrees and (layer.index, "out") in later:
            found = read_again(described, layer, state, later, starts, plain) or found
        wrong[alike] += not (found.error is None or found.agrees)
        findings.append(found)
    findings += beyond(model, described, attention)
    notes += [*inputs.unseen(described, n), *inputs.too_coarse(seen)]
    return Diagnosis(described.model_type, findings, notes, n, len(starts), rows)


def beyond(model, described, attention):
    """A layer of the model that the configuration ends before."""
    index = len(described.layers)
    if callable(attention) or (attention is not None and "{" not in attention):
        return
    try:
        module_of(model, described, index, attention)
    except UsageError:
        return
    yield Finding(index, why=f"the configuration says that there are {index} layers")


def matches_of(described, layer, modules, seen, given, state, *, known):
    """What there is to say of a layer; of near numbers, only `known` causes are tried if given."""
    index = layer.index
    if layer.causal and "decoder_input_ids" in given:  # behind an encoder
        given = {n.removeprefix("decoder_"): x for n, x in given.items() if "decoder_" in n}
    if layer.kind not in ATTENTION:
        return Finding(index, why=f"it is {layer.kind}", pairs=False)
    if (index, "out") not in seen or (index, "in") not in seen:
        return Finding(index, why="its module was not called")
    x, want = seen[index, "in"], seen[index, "out"]
    try:
        exact = run(described, layer, state, x, given)
        error = distance(exact, want, given)
    except (TypeError, ValueError) as refused:
        had = ", ".join(modules[index].state_dict()) or "no weights"
        hint = f" (the module has {had:.120}: say where they are by attention or weights)"
        return Finding(index, why=str(refused) + hint * ("weights lack" in str(refused)))
    sure, bound = bounds(described, layer, state, x, given, exact)
    if error <= sure:
        return Finding(index, error, True)
    if np.isinf(error):
        return Finding(index, error, False, ("Its output is not finite.",))
    place = state, x, want
    for sentence, other in elsewhere(given) if error > bound else ():
        if reproduces(described, layer, *place, other, bound):
            return Finding(index, error, False, (sentence,))
    close = min(bound, error / 2)
    for sentence, change in planted(layer) if error > bound else ():
        if reproduces(described, layer, *place, given, close, change):
            return Finding(index, error, False, (sentence,))
    rounded = error <= bound  # then a mistake must explain it better than rounding
    readings = [misreadings(layer, described)]
    if not rounded:
        near = nearby(layer, described, windows(layer, exact, want, bound))
        readings.append(one for one in near if known is None or one[1] in known)
    for others in readings:
        causes = {
            sentence: changed
            for _, sentence, changed in others
            if reproduces(described, changed, *place, given, close)
        }
        if causes:
            keys = (keys_of(layer, changed) for changed in causes.values())
            named = tuple(dict.fromkeys(chain.from_iterable(keys)))
            return Finding(index, error, False, tuple(causes), named)
    return Finding(index, error, rounded)


def read_again(described, layer, state, later, starts, given):
    """What is wrong in several calls with a cache, of a layer that agrees in one."""
    x, want = later[layer.index, "in"], later[layer.index, "out"]
    exact = run(described, layer, state, x, given)
    error = distance(exact, want, given)
    _, bound = bounds(described, layer, state, x, given, exact)
    if error <= bound:
        return None
    place = state, x, want, given, min(bound, error / 2)
    causes = (
        sentence
        for sentence, change in forgotten(layer, starts)
        if reproduces(described, layer, *place, change)
    )
    return Finding(layer.index, error, False, (next(causes, LATER),))


def percent(share):
    """A share in percent, without an exponent."""
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %"


def reproduces(described, layer, state, x, want, given, bound, change=None):
    """Whether such a layer gives what the module gave: its first tokens, and then all."""
    try:
        if layer.causal and x.shape[-2] > 2 * FIRST:
            parts = (x[:, :FIRST], want[:, :FIRST], of_the_first(FIRST, given))
            if not reproduces(described, layer, state, *parts, 2 * bound, change):
                return False
        got = run(described, layer, state, x, given, change=change)
        return distance(got, want, given) <= bound
    except (TypeError, ValueError):  # the weights fit no such layer
        return False
