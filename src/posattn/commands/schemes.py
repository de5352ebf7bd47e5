"""`posattn schemes`: what can be checked, and how each scheme is called."""

import textwrap

import numpy as np

from posattn.conformance import load, names
from posattn.conformance.report import as_list
from posattn.conformance.steps import HOW

DONE = 0


def add(commands):
    """Say what the command understands."""
    listing = commands.add_parser("schemes", help="list what can be checked")
    listing.add_argument("scheme", nargs="?", help="show how this one is called")
    listing.set_defaults(run=list_schemes)


def list_schemes(chosen):
    """All schemes, or how one is called and what its cases are."""
    if chosen.scheme is None:
        width = max(map(len, names()))
        lines = [f"{name.ljust(width)}  {load(name)['what']}" for name in names()]
        return "\n".join(lines), DONE
    vectors = load(chosen.scheme)
    lines = [textwrap.fill(vectors["what"], 100)]
    steps = vectors["parameters"][0]["name"] == "steps"
    lines += [
        "\n"
        + (
            HOW[vectors["scheme"]]
            if steps
            else f"function({signature(vectors['parameters'])})"
        )
    ]
    lines += [f"\nposattn: {vectors['function']}; source: {vectors['source']}"]
    lines += [f"\n{len(vectors['cases'])} cases:"]
    called = [p["name"] for p in vectors["parameters"]]
    lines += [f"  {case['name']}: {shapes(called, case)}" for case in vectors["cases"]]
    return "\n".join(lines), DONE


def shapes(names, case):
    """The shapes of the arrays of a case, by their names, and of the result."""
    given = {**dict(zip(names, case["arguments"], strict=False)), **case["keywords"]}
    found = [f"{name} {x.shape}" for name, x in given.items() if hasattr(x, "shape")]
    made = " and ".join(str(np.shape(x)) for x in as_list(case["expected"]))
    return f"{', '.join(found)} -> {made}".lstrip().replace(",)", ")")


def signature(parameters):
    """The parameters, as Python writes them."""
    written = [
        f"{p['name']}={p['default']!r}" if "default" in p else p["name"] for p in parameters
    ]
    first = next((k for k, p in enumerate(parameters) if p["keyword"]), None)
    return ", ".join(
        written if first is None else [*written[:first], "*", *written[first:]]
    )
