"""Read what LaTeX says about a book, and refuse a page that a reader could not read.

`python .ci/proofread.py posattn.log` fails on text that leaves its line, on signs that no font
has and on references to nothing.
"""

import re
import sys
from pathlib import Path

MOST = 5.0  # points by which a line may leave the page: less than the width of two letters
OVERFULL = re.compile(r"Overfull \\hbox \(([\d.]+)pt too wide\).*")
FAULTS = re.compile(
    r"Missing character: .*|LaTeX Warning: (?:Reference|Hyper reference|Citation) .* undefined.*"
    r"|LaTeX Warning: Label .* multiply defined.*"
)


def faults(log):
    """Yield what is wrong, in the words of LaTeX."""
    for line in OVERFULL.finditer(log):
        if float(line[1]) > MOST:
            yield line[0]
    for line in FAULTS.finditer(log):
        yield line[0]


def main(log):
    """Print the faults and return the exit code."""
    found = list(
        dict.fromkeys(faults(Path(log).read_text(encoding="utf-8", errors="replace")))
    )
    print(*found, sep="\n", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
