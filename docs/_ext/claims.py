"""Each claim of a page stands in a list beside it, with what checks it.

A claim is a sentence that counts, compares or orders (`sentences.py` says by which words). The list of
`sinusoidal.md` is `sinusoidal.claims`, in the page's order, with the checks of each claim below it:

    3fa2b1c9 All numbers are 0 or 1, in every text the same, but the …
        assert set(np.unique(bits)) == {0, 1}

A check is code of a cell, white space aside, of this page or of another (`position/rotary: assert …`); a test
(`tests/test_x.py::test_name`); a label that has a check of its own (of an equation, a figure that was looked
at, a theorem with its proof); a source that the paragraph cites (`@key`); `reasoned`, if it follows from the
sentences or the code around it, as the reader sees; or `defined`, if it sets a name, a task or a wish, or
advises, and cannot be false. The digits are a fingerprint of the sentence. A claim without a line, a line
without its sentence, and a check that is not there fail the build.

`python docs/_ext/claims.py` tells the same in a second. It adds what is missing with the check `?`, which
fails until it is replaced; a sentence that changed keeps its check, behind a `?`.
"""

import ast
import re
import sys
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from checks import CELL, EQUATION, FENCE, fingerprint
from sentences import HOLDS_PROSE, figure, is_claim, paragraphs, sentences
from sphinx.util import logging

TESTS = Path(__file__).parents[2] / "tests"
CITED = re.compile(r"\{cite:\w+\}`([^`]+)`")
LABEL = re.compile(r"\{prf:\w+\}.*\n:label: (\S+)")
NO_CODE = re.compile(r"\A`{3,}.*\n(?:---\n(?:.*\n)*?---\n|(?::.*\n)*)")
ELSEWHERE = re.compile(r"([\w/]+): (.+)")

logger = logging.getLogger(__name__)


@dataclass
class Claim:
    """A sentence by its fingerprint and its beginning, and its checks."""

    digits: str
    start: str
    checks: list[str]

    def __str__(self):
        first = f"{self.digits} {self.start}"
        return "\n    ".join([first, *(self.checks or ["?"])]) + "\n"


def claims(text):
    """The claims of a page, each with the keys that its paragraph cites."""
    found = {}
    for paragraph in paragraphs(text):
        keys = {key.strip() for role in CITED.findall(paragraph) for key in role.split(",")}
        for sentence in sentences(paragraph):
            if is_claim(sentence):
                digits = fingerprint(sentence)
                claim = Claim(digits, shortened(sentence), [])
                found.setdefault(digits, (claim, set()))[1].update(keys)
    return list(found.values())


def shortened(sentence):
    """The beginning of a sentence, by which a person finds it."""
    return sentence if len(sentence) <= 72 else sentence[:70].rstrip() + " …"


def parse(path):
    """The claims of a list, by fingerprint; there may be no list yet."""
    read, claim = {}, None
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in filter(str.strip, text.splitlines()):
        if line.startswith(" "):
            claim.checks.append(line.strip())
        else:
            digits, _, start = line.partition(" ")
            claim = read.setdefault(digits, Claim(digits, start, []))
    return read


def merge(now, known):
    """The list of what a page claims now: no check is lost, and what changed asks for its check again."""
    there, merged = [claim.digits for claim in now], []
    for _, i, j, k, m in SequenceMatcher(None, [*known], there, False).get_opcodes():
        gone = [known[digits] for digits in [*known][i:j] if digits not in there]
        gone = [claim for claim in gone if claim.checks != ["?"]]
        for claim in now[k:m]:
            if claim.digits in known:
                claim.checks = known[claim.digits].checks
            elif gone:
                claim.checks = [f"? {check.lstrip('? ')}" for check in gone.pop(0).checks]
            merged.append(claim)
        merged += gone  # until somebody takes them away
    return merged


class Book:
    """The pages, and all that can check a claim: code by page, and labels."""

    def __init__(self, folder):
        self.folder, self.texts, self.code, self.labels = folder, {}, {}, set()
        for path in sorted(folder.rglob("*.md")):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if not name.startswith(("_", "build/")):
                text = self.texts[name] = path.read_text(encoding="utf-8")
                code = (fence[0] for fence in FENCE.finditer(text))
                code = (NO_CODE.sub("", x) for x in code if not HOLDS_PROSE.match(x))
                self.code[name] = "\n".join(map(squeezed, code))
                self.labels |= {label for _, label in EQUATION.findall(text)}
                self.labels |= {figure(cell).get("name") for cell in CELL.findall(text)}
                self.labels |= set(LABEL.findall(text))

    def wanted(self):
        """The pages that claim something, or have a list."""
        for name, text in self.texts.items():
            if self.list_of(name).is_file() or claims(text):
                yield name

    def list_of(self, name):
        """Where the claims of a page stand."""
        return self.folder / f"{name}.claims"

    def faults(self, name):
        """What is wrong with the claims of a page and their list."""
        found, known = claims(self.texts[name]), parse(self.list_of(name))
        for digits in known.keys() - {claim.digits for claim, _ in found}:
            yield f"the page does not say any more: {known[digits].start}"
        for claim, keys in found:
            for check in known.get(claim.digits, claim).checks or ["?"]:
                if fault := self.fault(check, name, keys):
                    yield f"{fault}: {claim.start}"

    def fault(self, check, name, keys):
        """What is wrong with a check, if anything."""
        if check.startswith("?"):
            return "nobody has said what checks the claim"
        if check in {"reasoned", "defined"} | self.labels | {f"@{key}" for key in keys}:
            return None
        if check.startswith("tests/"):
            path, _, test = check.partition("::")
            return None if test in tests(path) else f"there is no test {check}"
        if (there := ELSEWHERE.fullmatch(check)) and there[1] in self.code:
            name, check = there.groups()
        code = squeezed(check)
        if len(code) < 10 or code not in self.code[name]:
            return f"{name} has no code '{check}', nor the book a label, nor the paragraph a source"
        return None


def squeezed(code):
    """Code without white space."""
    return "".join(code.split())


@cache
def tests(path):
    """The names of the tests of a file."""
    path = TESTS.parent / path
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def main(pages):
    """Bring the lists of these pages, or of all, up to date; say what is left to do."""
    book = Book(Path("docs"))
    names = [Path(page).relative_to("docs").with_suffix("").as_posix() for page in pages]
    for name in names or book.wanted():
        path, now = book.list_of(name), [claim for claim, _ in claims(book.texts[name])]
        path.write_text("".join(map(str, merge(now, parse(path)))), encoding="utf-8")
        for fault in book.faults(name):
            yield f"{path}: {fault}"


def compare(app, env):
    """Warn, and so fail the build, about all faults."""
    book = Book(Path(app.srcdir))
    for name in book.wanted():
        for fault in book.faults(name):
            logger.warning("%s", fault, location=name)


def setup(app):
    """Register with Sphinx."""
    app.connect("env-updated", compare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    sys.exit("\n".join(main(sys.argv[1:])) or 0)
