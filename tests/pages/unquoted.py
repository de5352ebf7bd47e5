"""Say how many sentences that count or compare are quoted by no test: `python -m tests.pages.unquoted`.

It is advice, and fails nothing; with the name of a page it lists that page's sentences.
"""

import re
import sys

from tests.pages.prose import sentences
from tests.pages.reading import PAGES, Page, bare, functions_of, quotes

COUNTS = re.compile(
    r"""\d | \b(?:
    two|three|four|five|six|seven|eight|nine|ten|twice|times|half|double
    |more|most|less|least|fewer|better|best|worse|worst|(?:larg|small|great|long|short|fast|slow)(?:er|est)
    |all|every|always|never|none|nothing|only|exactly|same|equal|identical
    |grows?|falls?|rises?|shrinks?|increases?|decreases?)\b""",
    re.VERBOSE | re.IGNORECASE,
)
WORDS = 3  # a quote of fewer does not hold a sentence


def unquoted(path):
    """The sentences of a page that count or compare, and of which no test quotes a part."""
    lines = Page(path).text.splitlines()
    held = [
        bare(q) for f in functions_of(path.stem) for q in quotes(f) if q.count(" ") >= WORDS
    ]
    for number, words in sentences(Page(path).text):
        sentence = lines[number - 1]
        said = bare(sentence)
        if COUNTS.search(words) and not any(
            quote in said or said in quote for quote in held
        ):
            yield f"{path.stem}:{number}: {sentence.strip()}"


def main(*names):
    """Print the number, or the sentences of the pages that are named."""
    found = {path.stem: list(unquoted(path)) for path in PAGES}
    for name in names:
        print(*found[name], sep="\n")
    count = sum(map(len, found.values()))
    print(f"{count} sentences that count or compare are quoted by no test")


if __name__ == "__main__":
    main(*sys.argv[1:])
