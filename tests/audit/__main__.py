"""Look at the built site as its readers do: `nox -s audit`, or `nox -s audit -- position/sinusoidal`.

With `--changed`, as in CI, it looks at the longest page of each folder, whose pages are made alike, and
at those whose source changed in the day before the last commit. Each night it looks at all.

Prints a table of pages and checks, then every fault, and fails if there is one.
Lighthouse looks at the longest page of each folder, or at all that are named, and so does axe at the pages
of the reference, which one template makes. Speed is a measurement of this machine too, so a page below FAST
is named and isn't a fault. A page that is too heavy is one.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import zip_longest
from pathlib import Path

from . import browser, chromium, links, node, npm, search, site

FAST = 97
SCORES = (
    "performance",
    "accessibility",
    "best-practices",
    "seo",
)  # all but speed must be 100
CHECKS = (
    "html",
    "links",
    "policy",
    "weight",
    "keyboard",
    *browser.ASKED,
    "axe",
    "no script",
)


def look(address, thorough):
    """Look at one page in a browser of its own, for what needs no quiet machine."""
    with chromium.started() as started:
        return browser.faults(started, address, thorough)


def counted(check, results, count):
    """Pass results on, say how far the check has come, and at the end how long it took."""
    start = time.monotonic()
    for number, (name, result) in enumerate(results, 1):
        print(f"{check} {number}/{count} {name}", flush=True)
        yield name, result
    seconds = time.monotonic() - start
    print(f"{check} took {seconds:.0f} s, {seconds / count:.1f} s for a page", flush=True)


def looked(addresses, chosen):
    """What the browser finds, page by page, on two processors."""
    with ProcessPoolExecutor(2) as pool:
        jobs = {}
        for address, name in addresses.items():
            thorough = name in chosen or not name.startswith("api/")
            jobs[pool.submit(look, address, thorough)] = name
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def measured(addresses):
    """Lighthouse's numbers, two pages at a time."""
    measure = partial(node.lines, "lighthouse.mjs", chromium.program(), ",".join(SCORES))
    halves = [measure(*half) for half in (addresses[::2], addresses[1::2]) if half]
    for lines in zip_longest(*halves):
        yield from filter(None, lines)


def audit(folder, wanted, named):
    """Run all checks, and Lighthouse on what is named; give scores, weights and faults of each page."""
    pages = site.pages(folder, wanted)
    scores, weights, faults = {}, {}, {}
    for name, path in pages.items():
        faults[name] = dict.fromkeys(SCORES, ()) | {"links": links.faults(folder, path)}
    # viewcode marks definitions with blocks inside of preformatted text
    names = {str(path): n for n, path in pages.items() if not n.startswith("_modules/")}
    found = ((names[line["file"]], line) for line in node.lines("validate.mjs", *names))
    for name, line in counted("html", found, len(names)):
        faults[name]["html"] = line["faults"]
    with site.served(folder) as home:
        addresses = {f"{home}/{name}.html": name for name in pages}
        chosen = [*named] or site.longest(pages)
        for name, found in counted("browser", looked(addresses, chosen), len(pages)):
            weights[name] = found.pop("kib")
            faults[name] |= found
        if "search" in pages:
            with chromium.started() as started:
                faults["search"]["answers"] = search.faults(started, home)
        found = measured([f"{home}/{name}.html" for name in chosen])
        found = ((addresses[line["url"]], line) for line in found)
        for name, line in counted("lighthouse", found, len(chosen)):
            scores[name] = line["scores"]
            faults[name] |= low(name, line)
    return scores, weights, faults


def low(name, line):
    """Which scores of a page are too low, and why, unless nobody should find the page."""
    return {
        check: [f"{line['scores'][check]}, not 100: {'; '.join(line['reasons'][check])}"]
        for check in SCORES[1:]
        if line["scores"][check] < 100 and not site.hidden(name)
    }


def table(scores, weights, faults):
    """A row for each page: its scores and weight, and how many faults each check that looked has found."""
    checks = [check for check in CHECKS if check != "weight"]
    rows = [["page", *SCORES, "KiB", *checks]]
    for name, found in faults.items():
        known = scores.get(name, {})  # Lighthouse looks at some pages only
        numbers = [str(known.get(check, "")) for check in SCORES] + [str(weights[name])]
        counts = {check: f"{len(said)} ✗" if said else "✓" for check, said in found.items()}
        rows.append([name, *numbers, *(counts.get(check, "") for check in checks)])
    line = "  ".join(f"{{:{max(map(len, column))}}}" for column in zip(*rows, strict=True))
    return "\n".join(line.format(*row).rstrip() for row in rows)


def main():
    """Read the arguments, audit, print, and fail if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "pages", nargs="*", metavar="page", help="such as position/sinusoidal"
    )
    parser.add_argument(
        "--changed", action="store_true", help="what is new, and one of each"
    )
    parser.add_argument("--site", type=Path, default=Path("build", "html"))
    arguments = parser.parse_args()
    if not arguments.site.is_dir():
        sys.exit(f"{arguments.site} is missing: run nox -s docs")
    if chromium.program() is None:
        sys.exit(chromium.MISSING)
    if not npm.HOME.is_dir():
        sys.exit(npm.MISSING)
    folder, wanted = arguments.site.resolve(), arguments.pages
    if arguments.changed:
        found = site.pages(folder)
        wanted = sorted({*wanted, "search", *site.longest(found), *site.changed(found)})
    scores, weights, faults = audit(folder, wanted, arguments.pages)
    print("", table(scores, weights, faults), "", sep="\n")
    slow = [name for name, found in scores.items() if found["performance"] < FAST]
    print(f"slower than {FAST} in this run: {', '.join(slow) or 'none'}", "", sep="\n")
    wrong = [
        f"{name}: {check}: {fault}"
        for name, found in faults.items()
        for check, said in found.items()
        for fault in said
    ]
    print(*wrong, sep="\n")
    sys.exit(f"{len(wrong)} faults" if wrong else 0)


if __name__ == "__main__":
    main()
