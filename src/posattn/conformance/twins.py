"""A small model for engines, beside twins that each read one setting otherwise; whose logits are an engine's?"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import combinations
from pathlib import Path

import numpy as np

from posattn.configs.decoders import decoder, sources
from posattn.configs.shrunk import VOCABULARY, shrunk
from posattn.configs.weights import NAMES, arrays
from posattn.conformance.misreadings import LENGTHS, misreadings
from posattn.conformance.vectors import UsageError

__all__ = ["TOKENS", "Twin", "Verdict", "judge", "twins", "write"]

TOKENS = 1024  # four times the trained length, 21 windows, and more than an engine reads at once
SHARP = 3.0  # the standard deviation of scores, about 64 times that of fresh weights
TOLERANCE = 1e-3  # of the largest logit, which float32 keeps and no twin does
FIRST = 2 * 48  # tokens on which several changes at once are tried before the whole text
FEW = 8  # of which all sets are tried
OTHERWISE = {  # what stands around attention, and what counts as not reading it
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "logit_cap": None,
}
NUMBERS = "factor_of_", *(f"original_length_of_{length}" for length in LENGTHS)  # of large models
EXPERTS = {"normalized": False, "scale": 1.0, "limit": None}
FILES = "config.json", "tokens.npy", "logits.npy", "twins.npz"


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
        both = {"name": f"{self.name}+{other.name}", "what": f"{self.what} {other.what}"}
        return Twin(**both, changes={**self.changes, **other.changes})

    @property
    def taken(self):
        """Whether something is left out, and not read as another value."""
        return self.name.endswith(("_ignored", "of_the_width", "of_the_share"))


@dataclass(frozen=True)
class Pieces:
    """A mask of keys in the query's piece of a text and the piece before it."""

    size: int

    def __call__(self, query_positions, key_positions):
        queries, keys = query_positions[..., :, None], key_positions[..., None, :]
        return keys // self.size >= queries // self.size - 1


def twins(config, tokens):
    """The twins of a model: each differs from what its configuration says in one thing.

    Args:
        config: what `posattn.configs.plan` reads, of a family that `Decoder` knows.
        tokens: how long the text is, which dynamic scaling and LongRoPE look at.

    Returns:
        A list of `Twin`.

    Raises:
        ValueError: if the configuration is not clear, or its family is not one of a `Decoder`.
    """
    model, found = decoder(config, length=tokens), {}
    for layer in model.plan.layers:
        for name, what, other in (*misreadings(layer, model.plan), *_more(layer)):
            if name != "future_seen" and not name.startswith(NUMBERS):
                changes = found.setdefault(name, (what, {}))[1]
                changes |= {(layer.index, key): new for key, new in _changed(layer, other)}
    for name, value in OTHERWISE.items():
        changes = {(None, name): value} if getattr(model, name) != value else {}
        found[f"{name}_ignored"] = f"{name} is ignored.", changes
    for name, value in EXPERTS.items() if model.mixture is not None else ():
        mixture = replace(model.mixture, **{name: value})
        changes = {(None, "mixture"): mixture} if mixture != model.mixture else {}
        found[f"experts_{name}_ignored"] = f"The experts' {name} is ignored.", changes
    short = decoder(config).plan.layers
    changes = {
        (layer.index, "rope"): other.rope
        for layer, other in zip(model.plan.layers, short, strict=True)
        if layer.rope != other.rope
    }
    found["length_ignored"] = "The text counts as within the trained length.", changes
    return [Twin(name, *rest) for name, rest in found.items() if rest[1]]


def _more(layer):
    """Changes of a layer that are not misreadings of one layer's own configuration, or that engines make."""
    if layer.window is not None:
        double = replace(layer, window=2 * layer.window)
        yield "window_doubled", "The window is twice as large.", double
        what = "A prompt is read in pieces of the window, and a token sees all of the piece before."
        yield "window_of_pieces", what, replace(layer, window=Pieces(layer.window))
    share = layer.dim / layer.num_heads
    if not math.isclose(layer.scale, share**-0.5):
        what = f"The scale is one over the square root of {share:g}, the share of a head in the width: it should be {layer.scale:g}."
        yield "scale_of_the_share", what, replace(layer, scale=share**-0.5)
    norms = {"query_norm": None, "key_norm": None}
    yield "norms_ignored", "Queries and keys are not normalised.", replace(layer, **norms)
    offsets = {"use_bias": (False,) * 3, "use_output_bias": False}
    yield "offsets_ignored", "The projections have no offsets.", replace(layer, **offsets)


def _changed(layer, other):
    """The fields of a layer that another has otherwise."""
    names = (field.name for field in fields(layer))
    both = ((name, getattr(layer, name), getattr(other, name)) for name in names)
    return [(name, new) for name, old, new in both if new != old]


def write(config, folder, tokens=TOKENS):
    """Write a small random model with sharp attention, what it says of a text, and what its twins say.

    The folder then has `config.json`, `model.safetensors` and a `tokenizer.json` whose words are the numbers
    from 0 to 63, as transformers and converters read them; `tokens.npy`, int64, `(n)`; `logits.npy`, float64,
    `(n, 64)`; and `twins.npz`, float32, with such an array for each twin that can be told from the model.
    Queries and keys are scaled so that scores have standard deviation 3, since with fresh weights attention
    is nearly even and hides all that this should show. Weights are float32, and computed with in float64.

    Args:
        config: what `posattn.configs.plan` reads, of a family that `Decoder` knows.
        folder: where the files go; it is made if it is not there.
        tokens: the length n of the text, a multiple of 4, at least 256.

    Returns:
        The names of the twins in `twins.npz`.

    Raises:
        TypeError: if a value of the configuration is not of its kind.
        ValueError: if the configuration is not clear, or its family is not one of a `Decoder`; a UsageError
            if there are too few tokens.
        ImportError: if PyTorch or safetensors is not installed.
    """
    from safetensors.numpy import save_file

    if tokens < 256 or tokens % 4:
        raise UsageError(f"tokens must be a multiple of 4, at least 256, got {tokens}")
    folder, small = Path(folder), shrunk(config, tokens)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(small, indent=2), encoding="utf-8")
    rng = np.random.default_rng(0)
    weights = _drawn(decoder(small, length=tokens), rng)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    words = {str(number): number for number in range(VOCABULARY)}
    told = {"model": {"type": "WordLevel", "vocab": words, "unk_token": "0"}}
    told |= {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}}
    told |= {"added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None}
    (folder / "tokenizer.json").write_text(json.dumps(told), encoding="utf-8")
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "0"}
    told |= {"pad_token": "0", "bos_token": "1", "eos_token": "2"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    text = rng.integers(4, VOCABULARY, tokens)  # the first have a meaning to engines
    np.save(folder / "tokens.npy", text)
    own = _Computer(folder, text)
    logits = own()
    np.save(folder / "logits.npy", logits)
    found = {}
    for twin in twins(small, tokens):
        other = own(twin)
        if _gap(other, logits) > 2 * TOLERANCE:
            found[twin.name] = other.astype(np.float32)
    np.savez(folder / "twins.npz", **found)
    return list(found)


@dataclass(frozen=True)
class _Anything:
    """A checkpoint that has every array whose name begins in one of some ways."""

    starts: tuple[str, ...]

    def __contains__(self, name):
        return name.startswith(self.starts) and ".language_model" not in name

    def __iter__(self):
        return iter(())


def _drawn(model, rng):
    """Random weights in float32 by the names of transformers, whose scores have deviation `SHARP`."""
    import torch

    from posattn.torch import Decoder
    from posattn.torch.models.decoder_plan import empty

    made = empty(Decoder, model, None, dtype=torch.float32, device="meta")
    own = dict(made.named_parameters()) | dict(made.named_buffers())
    root = next(r for r in NAMES[model.plan.model_type].roots if "language" not in r)
    found = {}
    for ours, source in sources(_Anything((root, *model.family.head)), model).items():
        rows, *rest = tuple(own[ours].shape)
        mean, deviation = _spread(ours, own[ours].shape, model)
        shape = (rows * (1 + (source.half is not None)), *rest)
        shape = shape[::-1] if source.transposed else shape
        shape = shape if source.index is None else (model.mixture.count, *shape)
        found[source.name] = rng.normal(mean - source.plus, deviation, shape)
    for layer in model.plan.layers:
        for name, (shape, transposed, cut) in arrays(model.plan, layer.index, root).items():
            mean, deviation = np.zeros(shape), np.ones(shape)
            for role, rows in cut(np.arange(shape[0])).items():
                mean[rows], deviation[rows] = _spread_of(layer, role, shape)
            array = rng.normal(mean, deviation)
            found[name] = array.T if transposed else array
    return {name: np.ascontiguousarray(x, np.float32) for name, x in found.items()}


def _spread(ours, shape, model):
    """Mean and standard deviation of an array around the attention."""
    *_, part, kind = ours.split(".")
    if "norm" in part:
        return float(kind == "weight"), 0.2
    if part == "embedding":  # as large in the stream as what a layer adds
        return 0.0, model.residual_scale / model.embedding_scale
    return 0.0, 0.2 if len(shape) == 1 or part == "encoding" else shape[-1] ** -0.5


def _spread_of(layer, role, shape):
    """Mean and standard deviation of a role's rows of an array of attention."""
    part, _, kind = role.partition(".")
    sharp = (SHARP / (layer.scale * layer.head_dim**0.5)) ** 0.5
    norm = getattr(layer, part if part.endswith("norm") else f"{part}_norm", None)
    if part.endswith("_norm"):
        sharp = sharp if part in ("query_norm", "key_norm") else 1.0
        mean = sharp * (kind == "weight") - (norm.plus_one and kind == "weight")
        return mean, 0.2 * sharp
    if part not in ("query", "key") or (norm is not None and norm.learned):
        sharp = 1.0
    if part == "sinks":
        return 0.0, 1.0
    return 0.0, sharp * (0.2 if kind == "bias" else shape[-1] ** -0.5)


class _Computer:
    """Computes in float64 what the model in a folder says of a text, or one of its twins."""

    def __init__(self, folder, text):
        import torch

        from posattn.torch import Decoder

        options = {"length": len(text), "dtype": torch.float64}
        self.model = decoder(folder, length=len(text))
        self.text = torch.from_numpy(text)
        self.own = Decoder.from_config(folder, weights=folder, **options)

    def __call__(self, twin=None, count=None):
        import torch

        with torch.no_grad():
            return self.made(twin)(self.text[:count]).numpy()

    def made(self, twin):
        """The model, or another with its weights."""
        import torch

        from posattn.torch import Decoder
        from posattn.torch.models.decoder_plan import empty

        if twin is None:
            return self.own
        changed, masks = {layer.index: {} for layer in self.model.plan.layers} | {None: {}}, {}
        for (index, name), value in twin.changes.items():
            changed[index][name] = None if isinstance(value, Pieces) else value
            masks |= {index: value} if isinstance(value, Pieces) else {}
        layers = tuple(replace(x, **changed[x.index]) for x in self.model.plan.layers)
        plan = replace(self.model.plan, layers=layers)
        model = replace(self.model, plan=plan, **changed[None])
        made = empty(Decoder, model, None, dtype=torch.float64, device="cpu")
        made.load_state_dict(self.own.state_dict(), strict=False)
        for index, mask in masks.items():
            made.blocks[index].attention.mask = mask
        return made


@dataclass(frozen=True)
class Verdict:
    """What an engine's logits are equal to.

    Args:
        twins: what is read otherwise, in sentences of which one or several apply; empty if nothing is known.
        error: the largest difference from the logits of that twin, or of the model, relative to the
            largest of these.
        own: the same of the model itself.
        first: the number of the first token of which the model says something else; None if it agrees.
        nearest: where no twin is equal, the one that agrees for longest, and up to which token.
    """

    twins: tuple[str, ...]
    error: float
    own: float
    first: int | None
    nearest: tuple[str, int] | None = None

    @property
    def agrees(self):
        """Whether the logits are those of the model."""
        return self.first is None

    def __str__(self):
        if self.agrees:
            return f"It equals the model, to {self.own:.1e}."
        differs = f"The model itself differs by {self.own:.2g}, from token {self.first} on."
        if self.twins:
            told = " Or: ".join(self.twins)
            return f"It equals a twin of the model, to {self.error:.1e}: {told}\n{differs}"
        what, until = self.nearest
        near = f"\nThe twin that agrees for longest, up to token {until}: {what}" * (until > self.first)
        return f"It equals no twin. {differs}{near}"


def judge(folder, logits, tolerance=TOLERANCE):
    """Say which twin of a model an engine has computed.

    Where it equals none, several changes at once are tried: any two, and all sets of settings left out.

    Args:
        folder: what `write` made.
        logits: the engine's, `(n, v)` or `(1, n, v)`, or those of the last tokens only. v is at least 64:
            what an engine adds to the vocabulary is left out.
        tolerance: how far off they may be, relative to the largest logit. The default is for float32.

    Returns:
        A `Verdict`.

    Raises:
        UsageError: if the folder lacks a file, or the logits have another shape or are not finite.
    """
    folder = Path(folder)
    for name in FILES:
        if not (folder / name).is_file():
            told = f"folder must be what `posattn twins --output` made, {str(folder)!r} has no {name}"
            raise UsageError(told)
    text, want = (np.load(folder / name) for name in FILES[1:3])
    got = np.asarray(logits)
    got = got[0] if got.ndim == 3 and len(got) == 1 else got
    if got.ndim != 2 or not 0 < len(got) <= len(want) or got.shape[1] < want.shape[1]:
        raise UsageError(f"logits must have shape {want.shape}, got {np.shape(logits)}")
    start, got = len(want) - len(got), got[:, : want.shape[1]].astype(np.float64)
    if not np.isfinite(got).all():
        row = start + np.flatnonzero(~np.isfinite(got).all(1))[0]
        raise UsageError(f"logits must be finite, those of token {row} are not")
    own, first = _gap(got, want), _first(got, want, tolerance)
    if first is None:
        return Verdict((), own, own, None)
    known = {twin.name: twin for twin in twins(folder, len(text))}
    with np.load(folder / "twins.npz") as stored:
        others = {known[name]: stored[name] for name in stored.files if name in known}
    gaps = {twin.what: _gap(got, other) for twin, other in others.items()}
    equal = tuple(what for what, gap in gaps.items() if gap <= tolerance)
    if equal:
        return Verdict(equal, min(gaps.values()), own, first)
    found = _several(_Computer(folder, text), list(others), got, tolerance)
    if found is not None:
        return Verdict((found[0].what,), found[1], own, first)
    until = {twin.what: _first(got, other, tolerance) for twin, other in others.items()}
    nearest = max(until.items(), key=lambda item: item[1], default=("", 0))
    return Verdict((), own, own, first, nearest)


def _several(compute, known, got, tolerance):
    """Several changes at once that give what an engine gives, and how far off they are; or None."""
    taken = [twin for twin in known if twin.taken][:FEW]
    sets = [some for k in range(2, len(taken) + 1) for some in combinations(taken, k)]
    pairs = [some for some in combinations(known, 2) if some not in sets]
    for some in sets + pairs:
        twin = reduce(Twin.__add__, some)
        if len(twin.changes) < sum(len(one.changes) for one in some):
            continue  # two of them change the same
        if len(got) == len(compute.text) and _gap(got[:FIRST], compute(twin, FIRST)) > tolerance:
            continue
        error = _gap(got, compute(twin))
        if error <= tolerance:
            return twin, error
    return None


def _gap(got, want):
    """The largest difference of the last rows, relative to the largest number that was expected."""
    return float(abs(got - want[-len(got) :]).max() / abs(want).max())


def _first(got, want, tolerance):
    """The number of the first row that differs, or None."""
    start = len(want) - len(got)
    rows = np.flatnonzero(abs(got - want[start:]).max(1) > tolerance * abs(want).max())
    return start + int(rows[0]) if len(rows) else None
