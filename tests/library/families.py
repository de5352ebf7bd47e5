"""What a file of each family does that says no more than it must, and which arrays it needs: families.txt.

A row of data that is changed shows here. If it should: `python -m tests.library.families`.
"""

import re
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np

from posattn import configs
from posattn.configs import decoders, weights
from posattn.configs.data import data
from posattn.configs.families import FAMILIES
from posattn.configs.latents import _wanted
from posattn.configs.reading import ATTENTION
from posattn.configs.shrunk import shrunk
from tests.records import FILES

WRITTEN = Path(__file__).with_name("families.txt")
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6}
ROPE = {"num_key_value_heads": 2, "rope_theta": 1e4, "rms_norm_eps": 1e-6}
MORE = ROPE | {"sliding_window": 8}
INDEXED = {"rope_theta": 1e4, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-6}
INDEXED |= {"indexer_n_heads": 2, "indexer_head_dim": 64, "indexer_budget": 64}
INDEXED["indexer_compress_ratio"] = 4
KINDS = {"": {"full_attention": {}, "sliding_attention": {}}}
KINDS |= {
    name: told.get("kinds", KINDS[""])
    for names, told in data("told.json").items()
    for name in names.split()
}

ONLY = {
    name: told["only"]
    for file in ("told.json", "equal.json", "encoders.json")
    for names, told in data(file).items()
    for name in names.split()
    if "only" in told
}


def is_read(plan, given):
    """Whether a configuration of the family is read."""
    try:
        return bool(configs.plan(given | {"model_type": plan.model_type}))
    except (TypeError, ValueError):
        return False


def givens(name):
    """What to try to plan a family by, the shortest first."""
    each = {"layer_types": (6 * [*KINDS.get(name, KINDS[""])])[:6]}
    yield from ({}, SIZES, SIZES | MORE, SIZES | each, SIZES | MORE | each)
    yield from (SIZES | {"num_key_value_heads": few} for few in (2, 4))
    yield SIZES | {"num_key_value_heads": 2} | INDEXED
    for file in FILES.values():
        parts = file, file.get("text_config", {})
        yield from (part for part in parts if part.get("model_type") == name)
    yield SIZES | ROPE


def made(read, name):
    """What is made of each of these that can be read."""
    for given in givens(name):
        try:
            yield given, read(given | {"model_type": name})
        except (TypeError, ValueError):
            continue


def lines():
    """Its name, the first of so many layers of a kind, and their words; or that it needs more."""
    alike = {}
    for name in sorted(FAMILIES):
        plans = [*made(configs.plan, name)]
        if not plans:
            yield f"{name} | needs more"
            continue
        given, plan = plans[0]
        yield from kinds(name, plan)
        for key, *_ in ONLY.get(name, ()):
            tried = True, False, None, "absolute"
            taken = [x for x in tried if is_read(plan, given | {key: x})]
            yield f"{name} | {key} | only {taken}"
        told = (told for _, plan in plans for told in arrays(plan))
        alike.setdefault("; ".join(dict.fromkeys(told)), []).append(name)
    for name in sorted(decoders.DECODERS):
        for what in (dict, lambda given: shrunk(given, 256)):
            read = lambda given, what=what: decoders.decoder(what(given))  # noqa: E731
            for _, model in [*made(read, name)][:1]:
                told = len(model.plan.layers), *astuple(model)[2:]
                yield f"{name} | decoder{' shrunk' * (what is not dict)} | {told}"
                if what is dict:
                    alike.setdefault("; ".join(sources(model)), []).append(name)
    for told, names in alike.items():
        yield f"{' '.join(names)} | {told}"


def arrays(plan):
    """The arrays of attention by role, with the first row of each role where several share one."""
    named = weights.NAMES.get(plan.model_type)
    yield f"in {named and ' or '.join(named.roots)}"
    for layer in plan.layers:
        if layer.latent is not None:
            yield from (f"{name}: {role}" for role, (name, _) in _wanted(layer).items())
        elif named and layer.kind in ATTENTION:
            yield from of_heads(weights.arrays(plan, layer.index, ""))


def of_heads(found):
    """Their names and roles."""
    for theirs, (shape, transposed, cut) in found.items():
        rows = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        told = " ".join(f"{role}@{x.flat[0]}" for role, x in cut(rows).items())
        yield f"{short(theirs)}{' transposed' * transposed}: {told}".replace("@0", "")


class Weights(dict):
    """Weights that have whatever is asked for, but one."""

    def __contains__(self, name):
        return name not in self.values()


def sources(model):
    """Where the other arrays of a decoder come from, and by which other name."""
    few = replace(model.plan, layers=model.plan.layers[:6])
    mixed = model.mixture and replace(model.mixture, count=2)
    model, seen = replace(model, plan=few, mixture=mixed), set()
    for ours, source in decoders.sources(Weights(), model).items():
        told = f"{short(ours)}: {said(source)}"
        if told in seen:
            continue
        seen.add(told)
        try:
            other = decoders.sources(Weights(lacks=source.name), model)[ours]
            yield f"{told} or {said(other)}"
        except ValueError:
            yield told


def said(source):
    """The name of an array, and how its rows are taken if not as they are."""
    options = source.half is not None, *astuple(source)[1:5]
    return short(source.name) + f" {options}" * any(options)


def short(name):
    """A name without the numbers of layers and experts."""
    return re.sub(r"\b\d+\.", "{}.", name.removeprefix("model.language_model."))


def kinds(name, plan):
    """A line for each kind of layer."""
    found = {}
    for layer in plan.layers:
        norms = {
            norm and (norm.kind, norm.axes, norm.eps)
            for norm in (layer.query_norm, layer.key_norm)
        }
        words = f"{str(layer).partition(': ')[2]} of {layer.head_dim}; {layer.latent or ''}"
        words += f"; biases {[*map(int, layer.use_bias)]}"
        found.setdefault((words, *sorted(norms - {None})), []).append(layer.index)
    for (words, *norms), at in found.items():
        by = f"; norms {norms}" * bool(norms)
        yield f"{name} | {at[0]}, {len(at)} of {len(plan.layers)} | {words}{by}"


if __name__ == "__main__":
    WRITTEN.write_text("\n".join(lines()) + "\n", "utf-8")
