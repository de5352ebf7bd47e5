"""A page for each released model, written from its plan before Sphinx reads, where git ignores it.

Their files stand in `docs/_records/configs`, what engines made of them in `twins.json`, and in `notes.json`
what to know of a model that has a trait, with the faults whose threads tell of it.
`{models} 2025` lists a card for each model of some years, the newest first, which leads to its page.
"""

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from jinja2 import Template
from sphinx.util.docutils import SphinxDirective

from posattn.configs import Plan, plan
from posattn.configs.traits import SETTINGS, TRAITS, strip
from posattn.conformance.engines import ENGINES, NOTHING, reading
from posattn.conformance.faults import FAULTS

from . import kept
from .api import write_derived
from .scope.answer import group

HOME = "models"
TEMPLATE = Path(__file__).parents[2] / "_templates" / "model.md.jinja"
TEXT = 32768  # tokens of the text whose cache is counted
KINDS = {  # of layers, by their letter
    "F": "see everything",
    "N": "see everything and have no position",
    "W": "see a window or a chunk",
    "S": "see keys that were chosen or condensed",
    "L": "keep a state, or are a convolution",
    "C": "attend to an image",
    "-": "have no attention",
}
THREAD = re.compile(r"([\w.-]+/[\w.-]+) (#\d+(?:, #\d+)*)")
RECORD = re.compile(r" \((?:twins|world)/.*?\)")
ABOUT = re.compile(r"^\w*(?:rope|rotary|window|index)")  # keys that people look for


class Model(NamedTuple):
    """A released file, its plan, and which traits the plan has."""

    record: dict
    plan: Plan
    traits: set

    @property
    def name(self):
        """What people call it."""
        return self.record["_family"]


class Cards(SphinxDirective):
    """List the models of some years."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Write a card for each."""
        years, lines = self.arguments[0].split(), []
        models = released(self.env.srcdir)
        order = {file: (m.record["_year"], m.name) for file, m in models.items()}
        for file in sorted(order, key=order.get, reverse=True):
            model, year = models[file], order[file][0]
            if year[:4] in years:
                has = (f".has-{n}" for n, what in enumerate(TRAITS) if what in model.traits)
                title = f"{{doc}}`{model.name} </{HOME}/{file}>`"
                lines.append(f"- **{title}** [{year}]{{.when {' '.join(has)}}}")
                lines += [f"  {line}" for line in (drawn(model), *told(model))]
        cards = self.parse_text_to_nodes("\n\n".join(lines))
        return [nodes.container("", *cards, classes=["models"])]


@cache
def released(docs):
    """The models by the names of their files."""
    found = {}
    for path in sorted(Path(docs, "_records", "configs").glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        read = plan(record)
        traits = {what for what, has in (TRAITS | SETTINGS).items() if has(read)}
        found[path.stem] = Model(record, read, traits)
    return found


def drawn(model):
    """The layers as blocks, a space after each repetition of the pattern."""
    letters = strip(model.plan)
    size = group(letters)
    groups = (letters[at : at + size] for at in range(0, len(letters), size))
    return " ".join(re.sub(r"(.)\1*", block, group) for group in groups)


def block(run):
    """Equal layers in their color."""
    return f"[{run[0]}]{{.layer .layer-{'x' if run[1] == '-' else run[1].lower()}}}"


def told(model):
    """What equal layers do, a line each, and what the file leaves out."""
    lines = str(model.plan).splitlines()[1:]
    alone = sum(line[0].isdigit() for line in lines) == 1
    for line in lines:
        which, _, what = line.partition("  ") if line[0].isdigit() else ("", "", line)
        what = re.sub(r"(?<= )-(?=\d)", "\N{MINUS SIGN}", " ".join(what.split()))
        which = re.sub(r"(\d)-(\d)", "\\1\N{EN DASH}\\2", which)
        which = which and not alone and f"[layers {which}]{{.which}}\\\n  "
        yield f"{which or ''}{what}"


def intro(model):
    """What a model is, in a sentence or two."""
    letters = strip(model.plan)
    said = f"{model.name} ({model.record['_year']}) has {len(letters)} layers: "
    counts = ((letters.count(letter), what) for letter, what in KINDS.items())
    kinds = (f"{'all' if n == len(letters) else n} {what}" for n, what in counts if n)
    said += f"{', '.join(kinds)}."
    rows = [layer.table[1] for layer in model.plan.layers if layer.table]
    tokens = min([TEXT, *rows])
    try:
        size = model.plan.cache_bytes(tokens) / 2**20
    except ValueError:  # a width is not known
        return said
    return said + f" A cache of {tokens:,} tokens takes {size:,.4g} MiB in bfloat16." * (
        size > 0
    )


def linked(seen):
    """Threads as links."""
    for where, numbers in THREAD.findall(seen):
        for number in numbers.split(", "):
            address = f"https://github.com/{where}/issues/{number[1:]}"
            yield f"[{where} {number}]({address})"


def noted(model, notes):
    """A line for each note that a model has: what to know, and where it went wrong."""
    seen = {fault.name: fault.seen for fault in FAULTS if fault.seen}
    for what, note in notes.items():
        if what in model.traits:
            threads = [
                link for fault in note.get("faults", ()) for link in linked(seen[fault])
            ]
            public = f" In public: {', '.join(dict.fromkeys(threads))}." if threads else ""
            yield note["says"] + public


def keys_of(record):
    """The keys of a file that attention reads, also those of its text model."""
    for key, value in record.items():
        if isinstance(value, dict):
            inner = keys_of(value)
            yield from (
                inner if key.endswith("config") else (f"{key}.{line}" for line in inner)
            )
        elif isinstance(value, list) and len(value) > 8:
            yield f"{key} = a list of {len(value)}"
        elif not key.startswith("_"):
            yield f"{key} = {json.dumps(value)}"


def judged(line):
    """What an engine made of a model."""
    first, *more = line["verdict"].splitlines()
    said = f"{line['setting']} {more[-1]}" if line["setting"] and more else first
    return f"{line['engine']} {line['version']}: {said}"


def engines_of(model, lines):
    """What engines made of a small model with these settings, and what is known of those that had none."""
    yield from map(judged, lines)
    for engine in {*ENGINES} - {line["engine"] for line in lines}:
        first, *said = reading(model.record, engine).splitlines()
        if said != [NOTHING]:
            said = [line.strip("- ") for line in said if not re.match(r" +\d", line)]
            said = [RECORD.sub("", line).rstrip(".") + "." for line in said]
            said = " ".join(line[0].upper() + line[1:] for line in said)
            yield f"{first.partition(',')[0]}: {said}"


def page(model, notes, engines):
    """The page of one model."""
    keys, layers = [*dict.fromkeys(keys_of(model.record))], [*told(model)]
    spoken = (key.partition(" ")[0] for key in keys if ABOUT.search(key))
    words = [model.name, model.record["_name_or_path"], model.plan.model_type, *spoken]
    asked = (note.get("asked") for what, note in notes.items() if what in model.traits)
    first = layers[0].rpartition("\n")[2].strip()
    return Template(TEMPLATE.read_text("utf-8"), trim_blocks=True).render(
        model=model,
        description=f"{model.name}, {len(model.plan.layers)} layers: {first}"[:160],
        words=[*words, *sorted(model.traits), *filter(None, asked)],
        intro=intro(model),
        strip=drawn(model),
        layers=layers,
        notes=[*noted(model, notes)],
        keys=keys,
        engines=sorted(engines_of(model, engines)),
    )


def pages(docs):
    """The pages by the names of their files."""
    models, engines = released(str(docs)), defaultdict(list)
    for line in json.loads((docs / "_records" / "twins.json").read_text("utf-8")):
        engines[line["model"]].append(line)
    notes = json.loads((docs / "_records" / "notes.json").read_text("utf-8"))
    return {
        f"{file}.md": page(model, notes, engines[file]) for file, model in models.items()
    }


def write(app):
    """Write what is not there yet as it should be."""
    docs = Path(app.srcdir)
    if not (docs / "reference" / "models.md").is_file():
        return  # another book, such as those of the tests
    folder, page = docs / HOME, app.config.book_page
    if folder.is_dir() and page and not page.startswith(HOME):
        return  # one other page is built
    stamp, now = (
        folder / "made-from",
        kept.state(*kept.USED, "docs/_ext/book", "docs/_templates"),
    )
    if stamp.is_file() and stamp.read_text("utf-8") == now:
        return
    derived = pages(docs) | {stamp.name: now}
    write_derived(folder, derived)
    for old in {path.name for path in folder.iterdir()} - {*derived}:
        (folder / old).unlink()


def setup(app):
    """Register with Sphinx."""
    app.add_directive("models", Cards)
    app.connect("builder-inited", write)
