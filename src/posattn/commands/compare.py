"""`posattn compare`: where two models or engines part, the first token and layer, and the cause by name."""

import json
import re
from dataclasses import replace
from pathlib import Path

from posattn import __version__, configs
from posattn.configs.gguf import is_gguf
from posattn.configs.words import places
from posattn.conformance import UsageError

SHOWN = 3  # causes that are told
FACTORS = 2, 4, 8  # of a scaling
DUMPS = {"choices", "prompt_logprobs"}  # what a server's answer has, and no configuration


def add(commands):
    """Say what the command understands."""
    told = "find the first token and layer in which two engines differ"
    asked = commands.add_parser("compare", help=told)
    side = "a model's folder, config.json or .gguf, or a file of what an engine computed"
    asked.add_argument("a", metavar="A", help=side)
    asked.add_argument("b", metavar="B", help=side)
    asked.add_argument("--length", type=int, metavar="TOKENS", help="of a text, for plans")
    asked.add_argument("--ids", help="as [1, 2] or its file, if a dump has none")
    off = "how far off numbers may be, relative to the largest of their token"
    asked.add_argument("--tolerance", type=float, metavar="NUMBER", help=off)
    asked.set_defaults(run=compare)


def compare(chosen):
    """What differs and a sentence for a report, and 1 if anything does."""
    if chosen.tolerance is not None and not chosen.tolerance > 0:
        raise UsageError(f"--tolerance must be above 0, got {chosen.tolerance:g}")
    try:
        models = [path for path in (chosen.a, chosen.b) if is_model(path)]
        lines, differ = (of_models if len(models) == 2 else of_dumps)(chosen, models)
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    return "\n".join([f"A: {chosen.a}", f"B: {chosen.b}", *lines]), int(differ)


def is_model(path):
    """Whether a path is a model's, and not that of what an engine computed."""
    if Path(path).suffix != ".json":
        return Path(path).is_dir() or is_gguf(path)
    answer = json.loads(Path(path).read_text(encoding="utf-8"))
    return not (isinstance(answer, dict) and DUMPS & set(answer))


def of_models(chosen, models):
    """What the plans and the weights of two models have otherwise, and whether anything is."""
    from posattn.conformance.differences import around, beyond, differences, named, weights

    plans = [configs.plan(path, length=chosen.length) for path in models]
    found = differences(*plans)
    when = ""
    if not found and chosen.length is None and (far := beyond(*models)):
        plans = [configs.plan(path, length=far) for path in models]
        found, when = differences(*plans), f" in a text of {far} tokens"
    told, apart = weights(*models)
    if (more := around(*models)) is None:
        told += " Norms, networks and embeddings were not compared."
    found |= more or {}
    if not found:
        return [f"The plans are equal, {len(plans[0].layers)} layers. {told}"], apart
    lines = [
        f"{f'layers {places(on)}' if on else 'the model'}, from token {first} on{when}: {what}"
        for (what, first), on in found.items()
    ]
    cause = [f"Cause: B is A, misread so: {what}" for what in named(*plans)]
    cause = cause or [f"Cause: A is B, misread so: {what}" for what in named(*plans[::-1])]
    first = min(first for _, first in found)
    whole = "; ".join(what for what, _ in found)
    report = f"A and B differ from token {first} on{when}: {whole}. {told}"
    return [*lines, *cause, f"To report: {report} (posattn {__version__}, plans)"], True


def of_dumps(chosen, models):
    """Where what was computed parts, and whether it does."""
    from posattn.conformance import disagreement as d
    from posattn.conformance.dumps import read

    sides = {path: read(path) for path in (chosen.a, chosen.b) if path not in models}
    if chosen.ids is not None:
        sides = {k: replace(side, ids=ids_of(chosen.ids)) for k, side in sides.items()}
    for folder in models:
        import torch

        from posattn.conformance.twins import Computer

        (dump,) = sides.values()
        if dump.ids is None:
            raise UsageError("--ids must be given, since the dump lacks the token ids")
        compute = Computer(folder, dump.ids, torch.float32)
        sides[folder] = d.states_of(compute.own, dump.ids)
    found = d.disagreement(sides[chosen.a], sides[chosen.b], chosen.tolerance)
    tokens, stages = found.compared
    seen = f"{tokens} tokens at {stages} places, tolerance {found.tolerance:g}"
    if found.stage is None:
        return [f"Equal within rounding, up to {found.error:.1e}: {seen}."], False
    place = {0: "embedding", d.NORM: "final norm", "logits": "logits"}
    place = place.get(found.stage) or f"output of layer {found.stage - 1}"
    part = f"differ {'at the latest ' * found.late}from token {found.token} on, first in the {place}"
    part += f", by up to {100 * found.error:.2g} %. {found.shape}"
    cause = "Cause: not known without a model's folder."
    if models:
        twins = twins_of(folder, len(dump.ids), found)
        causes = d.causes(compute, twins, dump, found) if found.stage else []
        none = f"none of {len(twins)} known misreadings."
        cause = f"Cause: {' Or: '.join(causes[:SHOWN]) or none}"
    if any(side.ids is None for side in sides.values()):
        seen += ", ids not compared"
    report = f"Given the same ids, A and B {part} {cause} ({seen}, posattn {__version__})"
    return [f"They {part}", cause, f"To report: {report}"], True


def twins_of(folder, tokens, found):
    """The twins of the model in a folder, also with what another engine may have added."""
    from posattn.conformance.twins import Twin, twins

    known, layers = twins(folder, tokens), configs.plan(folder, length=tokens).layers
    for name in ("window", "chunk") if found.token > 1 and not found.late else ():
        what = f"All layers have a {name} of {found.token}."
        changes = {(layer.index, name): found.token for layer in layers}
        known.append(Twin(name, what, changes))
    plain = {x.index: x.rope for x in layers if x.rope and x.rope.method == "default"}
    for by in FACTORS if plain else ():
        changes = {(i, "rope"): slowed(rope, by) for i, rope in plain.items()}
        what = f"Positions are divided by {by}, as if scaled linearly."
        known.append(Twin("divided", what, changes))
    return known


def slowed(rope, by):
    """A rotation whose positions are divided."""
    return replace(rope, frequencies=tuple(w / by for w in rope.frequencies))


def ids_of(told):
    """Token ids from a list such as `[1, 2]`, or a file that has it or their bytes."""
    import numpy as np

    if Path(told).suffix == ".bin":
        return np.fromfile(told, "<i4")
    text = Path(told).read_text(encoding="utf-8") if Path(told).is_file() else told
    if not (numbers := re.findall(r"\d+", text)):
        raise UsageError(f"--ids must be a list as [1, 2] or a file of one, got {told!r}")
    return np.array(numbers, int)
