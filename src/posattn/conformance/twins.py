"""A small model, and twins that each read one setting otherwise: whose logits are an engine's?"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import combinations
from pathlib import Path

import numpy as np

from posattn.configs.decoders import DECODERS, decoder
from posattn.configs.defaults import defaults_of
from posattn.configs.reading import opened
from posattn.configs.shrunk import VOCABULARY, shrunk
from posattn.conformance.drawn import drawn
from posattn.conformance.misreadings import LENGTHS, misreadings
from posattn.conformance.vectors import UsageError

__all__ = ["TOKENS", "TOLERANCE", "Twin", "Verdict", "judge", "twins", "write"]

TOKENS = 1024  # four trained lengths, 21 windows, and more than an engine reads at once
TOLERANCE = 1e-3  # of the largest logit, which float32 keeps and no twin does
FIRST = 96  # tokens, two windows, on which several changes are tried before the whole text
# how twins end that lack a setting
TAKEN = "_ignored", "of_the_width", "of_the_share", "of_the_class"
WIDTHS = {"dim", "num_heads", "num_kv_heads", "head_dim"}  # which weights have
TOLD = "rope_theta", "sliding_window"  # by twins of their own
FEW = 8  # of which all sets are tried
NUMBERS = "factor_of_", *(f"original_length_of_{n}" for n in LENGTHS)  # of large models
NOTHING = {  # what counts as not reading a setting around the attention
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "logit_cap": None,
}
EXPERTS = {"normalized": False, "scale": 1.0, "limit": None}
ROUNDED = {  # the dtype, and what is rounded to it
    "weights_float16": ("float16", "Weights are rounded to float16."),
    "weights_bfloat16": ("bfloat16", "Weights are rounded to bfloat16."),
    "gelu_float16": ("float16", "GELU is rounded to float16, as is its input."),
}
FILES = "config.json", "tokens.npy", "logits.npy", "twins.npz"
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "WordLevel",
        "vocab": {str(number): number for number in range(VOCABULARY)},
        "unk_token": "0",
    },
}
SPECIAL = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    **{"unk_token": "0", "pad_token": "0", "bos_token": "1", "eos_token": "2"},
}


@dataclass(frozen=True, eq=False)
class Twin:
    """The model with something read otherwise.

    Args:
        name: in one word.
        what: a sentence.
        changes: from the number of a layer, or None for the model, and the name of a field to its value.
    """

    name: str
    what: str
    changes: Mapping

    def __add__(self, other):
        name, what = f"{self.name}+{other.name}", f"{self.what} {other.what}"
        return Twin(name, what, {**self.changes, **other.changes})


def twins(config, tokens):
    """The twins of a model: each differs in one thing from what the configuration says.

    Args:
        config: what `posattn.configs.plan` reads, of a family that `Decoder` knows.
        tokens: how long the text is, which dynamic scaling and LongRoPE look at.

    Returns:
        A list of `Twin`.
    """
    model, short, found = decoder(config, length=tokens), decoder(config), {}
    for layer, within in zip(model.plan.layers, short.plan.layers, strict=True):
        what = "The text counts as within the trained length."
        extra = "length_ignored", what, within
        for name, what, other in (*misreadings(layer, model.plan), *more(layer), extra):
            changes = {(layer.index, key): new for key, new in changed(layer, other)}
            if name != "future_seen" and not name.startswith(NUMBERS) and changes:
                found.setdefault(name, (what, {}))[1].update(changes)
    for name, new in changed(model, replace(model, **NOTHING)):
        found[f"{name}_ignored"] = f"{name} is ignored.", {(None, name): new}
    bits = np.float32(model.embedding_scale).view(np.uint32) + np.uint32(1 << 15)
    rounded = float((bits & np.uint32(0xFFFF0000)).view(np.float32))
    if not math.isclose(rounded, model.embedding_scale):
        what = f"embedding_scale is rounded to bfloat16, {rounded:g}."
        found["embedding_scale_rounded"] = what, {(None, "embedding_scale"): rounded}
    if model.mixture is not None:
        for name, new in changed(model.mixture, replace(model.mixture, **EXPERTS)):
            mixture = replace(model.mixture, **{name: new})
            what = f"{name}, of the experts, is ignored."
            found[f"experts_{name}_ignored"] = what, {(None, "mixture"): mixture}
    found |= of_the_class(config, model, tokens)
    for name, (dtype, what) in ROUNDED.items():
        if not name.startswith("gelu") or "gelu" in model.activation:
            found[name] = what, {(None, name): dtype}
    return [Twin(name, *rest) for name, rest in found.items()]


def of_the_class(config, model, tokens):
    """What a reader does that takes a key of the file from the family's class."""
    keys, found = opened(config, known=DECODERS), {}
    for key, usual in defaults_of(keys.family)[1].items():
        if key in TOLD or keys.values.get(key, usual) in (usual, None):
            continue
        try:
            other = decoder(keys.values | {key: usual}, length=tokens)
        except (TypeError, ValueError):
            continue
        pairs = list(zip(model.plan.layers, other.plan.layers, strict=False))
        each = [(a.index, *x) for a, b in pairs for x in changed(a, b)]
        each += [(None, *x) for x in changed(model, other) if x[0] in NOTHING]
        if each and not {name for _, name, _ in each} & WIDTHS:
            what = f"{key} is {usual}, the default of its class."
            found[f"{key}_of_the_class"] = what, {(i, name): new for i, name, new in each}
    return found


def more(layer):
    """What engines do with a layer that is no misreading of one layer by itself."""
    if layer.window is not None:
        double = replace(layer, window=2 * layer.window)
        yield "window_doubled", "The window is twice as large.", double
    share = layer.dim / layer.num_heads
    if not math.isclose(layer.scale, share**-0.5):
        what = f"The scale is one over the square root of {share:g}, of the width by the heads: "
        what += f"it should be {layer.scale:g}."
        yield "scale_of_the_share", what, replace(layer, scale=share**-0.5)
    norms = {"query_norm": None, "key_norm": None}
    yield "norms_ignored", "Queries and keys are not normalised.", replace(layer, **norms)
    offsets = {"use_bias": (False,) * 3, "use_output_bias": False}
    yield "offsets_ignored", "The projections have no offsets.", replace(layer, **offsets)


def changed(value, other):
    """The fields that another value of the same class has otherwise."""
    both = [(f.name, getattr(value, f.name), getattr(other, f.name)) for f in fields(value)]
    return [(name, new) for name, old, new in both if new != old]


def write(config, folder, tokens=TOKENS):
    """Write a small random model with sharp attention, what it says of a text, and what its twins say.

    The folder then has `config.json` and `model.safetensors` as transformers and converters read them, and a
    `tokenizer.json` whose words are the numbers from 0 to 63; `tokens.npy`, int64, `(n)`; `logits.npy`,
    float64, `(n, 64)`; and `twins.npz`, float32, with such an array for each twin that differs enough to be
    told. Weights are float32 and computed with in float64.

    Args:
        config: what `posattn.configs.plan` reads, of a family that `Decoder` knows.
        folder: where the files go; it is made if it is not there.
        tokens: the length n of the text, a multiple of 4, at least 256.

    Returns:
        The names of the twins in `twins.npz`.

    Raises:
        ImportError: if PyTorch or safetensors is not installed.
        TypeError: if a value of the configuration is not of its kind.
        ValueError: if the configuration is not clear, its family is not one of a `Decoder`, or `tokens` is
            out of range.
    """
    from safetensors.numpy import save_file

    if tokens < 256 or tokens % 4:
        raise UsageError(f"tokens must be a multiple of 4, at least 256, got {tokens}")
    folder, small, rng = Path(folder), shrunk(config, tokens), np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"config": small, "tokenizer": TOKENIZER, "tokenizer_config": SPECIAL}
    for name, told in texts.items():
        (folder / f"{name}.json").write_text(json.dumps(told, indent=2), encoding="utf-8")
    weights = drawn(decoder(small, length=tokens), rng)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    text = rng.integers(4, VOCABULARY, tokens)  # the first ones mean something to engines
    compute, found = Computer(folder, text), {}
    logits = compute()
    for twin in twins(small, tokens):
        other = compute(twin)
        if gap(other, logits) > (1 if twin.name in ROUNDED else 2) * TOLERANCE:
            found[twin.name] = other.astype(np.float32)
    np.save(folder / "tokens.npy", text)
    np.save(folder / "logits.npy", logits)
    np.savez(folder / "twins.npz", **found)
    return list(found)


class Computer:
    """Computes in float64 what the model in a folder says of a text, or one of its twins."""

    def __init__(self, folder, text):
        import torch

        from posattn.torch import Decoder

        options = {"length": len(text), "dtype": torch.float64}
        self.model = decoder(folder, length=len(text))
        self.own = Decoder.from_config(folder, weights=folder, **options)
        self.text = torch.from_numpy(text)

    def __call__(self, twin=None, count=None):
        """The logits of the first `count` tokens."""
        import torch

        made = self.own if twin is None else self.made(twin.changes)
        with torch.no_grad():
            return made(self.text[:count]).numpy()

    def made(self, changes):
        """A decoder with the same weights."""
        from posattn.torch import Decoder
        from posattn.torch.models.decoder_plan import empty

        each = {layer.index: {} for layer in self.model.plan.layers} | {None: {}}
        for (index, name), value in changes.items():
            each[index][name] = value
        layers = tuple(replace(x, **each[x.index]) for x in self.model.plan.layers)
        plan = replace(self.model.plan, layers=layers)
        rounded = {name: each[None].pop(name) for name in ROUNDED if name in each[None]}
        model = replace(self.model, plan=plan, **each[None])
        made = empty(Decoder, model, None, dtype=self.own.embedding.weight.dtype)
        made.load_state_dict(self.own.state_dict(), strict=False)
        for name, dtype in rounded.items():
            round_off(made, name.partition("_")[0], dtype)
        return made


def round_off(made, what, dtype):
    """Let the weights of a decoder, or its GELU, have no more digits than a dtype."""
    import torch

    half = getattr(torch, dtype)
    if what == "weights":
        made.to(half).double()
        return
    for block in made.modules():
        if function := getattr(block, "activation", None):
            block.activation = lambda x, f=function: (
                f(x.to(half).double()).to(half).double()
            )


@dataclass(frozen=True)
class Verdict:
    """What an engine's logits are equal to.

    Args:
        twins: what is read otherwise, in sentences of which one or several apply; empty if nothing is known.
        error: the largest difference from the logits of that twin, or of the model, relative to the
            largest of these.
        own: the same of the model itself.
        first: the number of the first token of which the model says something else; None if it agrees.
        tokens: of how many tokens logits were compared.
    """

    twins: tuple[str, ...]
    error: float
    own: float
    first: int | None
    tokens: int

    @property
    def agrees(self):
        """Whether the logits are those of the model."""
        return self.first is None

    def __str__(self):
        on = f"on {self.tokens} tokens"
        if self.agrees:
            return f"It equals the model, to {self.own:.1e} {on}."
        differs = f"The model itself differs by {self.own:.2g}, from token {self.first} on."
        if not self.twins:
            return f"It equals no twin {on}. {differs}"
        told = " Or: ".join(self.twins)
        return f"It equals a twin of the model, to {self.error:.1e} {on}. {told}\n{differs}"


def judge(folder, logits, tolerance=TOLERANCE):
    """Say which twin of a model an engine has computed.

    Where it equals none, several changes at once are tried: any two, and all sets of settings left out.

    Args:
        folder: what `write` made.
        logits: the engine's, `(n, v)` or `(1, n, v)`, with v at least 64, or logarithms of probabilities.
            What an engine adds to the vocabulary is left out, and so are rows of NaN, which stand for
            tokens it has not computed.
        tolerance: how far off they may be, relative to the largest logit. The default is for float32.

    Returns:
        A `Verdict`.

    Raises:
        UsageError: if the folder lacks a file, or the logits have another shape or are not finite.
    """
    folder = Path(folder)
    for name in FILES:
        if not (folder / name).is_file():
            told = f"folder must be one that `write` made, {str(folder)!r} has no {name}"
            raise UsageError(told)
    text, want = (np.load(folder / name) for name in FILES[1:3])
    got, rows = computed(logits, want.shape)
    want = want[rows]
    own = gap(got, want)
    wrong = rows[apart(got, want) > tolerance]
    if not len(wrong):
        return Verdict((), own, own, None, len(rows))
    known = {twin.name: twin for twin in twins(folder, len(text))}
    with np.load(folder / "twins.npz") as stored:
        others = {known[k]: stored[k][rows] for k in stored.files if k in known}
    gaps = {twin.what: gap(got, other) for twin, other in others.items()}
    near = min(tolerance, own / 2)  # where the model itself is not far off
    equal = {what: error for what, error in gaps.items() if error <= near}
    equal = equal or several(Computer(folder, text), list(others), got, rows, near)
    error = min(equal.values(), default=own)
    return Verdict(tuple(equal), error, own, int(wrong[0]), len(rows))


def computed(logits, shape):
    """The rows of logits that an engine has computed, and their numbers."""
    got = np.asarray(logits)
    got = got[0] if got.ndim == 3 and len(got) == 1 else got
    if got.ndim != 2 or len(got) != shape[0] or got.shape[1] < shape[1]:
        raise UsageError(f"logits must have shape {shape}, got {np.shape(logits)}")
    if got.dtype.kind != "f":
        raise UsageError(f"logits must be floating-point numbers, got {got.dtype}")
    got = got[:, : shape[1]].astype(np.float64)
    rows = np.flatnonzero(~np.isnan(got).all(axis=1))
    finite = np.isfinite(got[rows]).all(axis=1)
    if not len(rows) or not finite.all():
        where = f"those of token {rows[~finite][0]} are not" if len(rows) else "all are NaN"
        raise UsageError(f"logits must be finite, {where}")
    return got[rows], rows


def several(compute, known, got, rows, tolerance):
    """Several changes at once that give what an engine gives, in words, and how far off that is."""
    taken = [twin for twin in known if twin.name.endswith(TAKEN)][:FEW]
    sets = [some for k in range(2, len(taken) + 1) for some in combinations(taken, k)]
    pairs = [some for some in combinations(known, 2) if some not in sets]
    few = rows[rows < FIRST]
    for some in sets + pairs if len(few) else sets:
        twin = reduce(Twin.__add__, some)
        if len(twin.changes) < sum(len(one.changes) for one in some):
            continue  # two of them change the same
        for part in (few, rows) if len(few) else (rows,):
            error = gap(got[: len(part)], compute(twin, part[-1] + 1)[part])
            if error > tolerance:
                break
        else:
            return {twin.what: error}
    return {}


def gap(got, want):
    """The largest difference, relative to the largest number that was expected."""
    return float(apart(got, want).max())


def apart(got, want):
    """The largest difference in each row, where what is added to a whole row says nothing."""
    got, want = (x - x.mean(axis=1, keepdims=True) for x in (got, want))
    return abs(got - want).max(axis=1) / abs(want).max()
