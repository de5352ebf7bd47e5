"""Hold the budgets of `[tool.posattn]` in pyproject.toml, and print where they stand: `nox -s lint` runs it.

A change that goes over one removes something first. Lower a limit when you have removed something.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.pages.prose import sentences


def tracked(*patterns):
    """The texts of the files that git knows."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run([*command, *patterns], capture_output=True, text=True, check=True)
    paths = (Path(name) for name in filter(None, done.stdout.split("\0")))
    return [path.read_text(encoding="utf-8") for path in paths if path.is_file()]


def counts():
    """Lines and words as they are."""
    pages = tracked("docs/*.md")
    core = tracked("docs/attention/*.md", "docs/position/*.md")
    return {
        "test-lines": sum(len(text.splitlines()) for text in tracked("tests/*.py")),
        "source-lines": sum(len(text.splitlines()) for text in tracked("src/*.py")),
        "core-words": words(core),
        "book-words": words(pages),
    }


def words(pages):
    """How many words of prose some pages have."""
    return sum(len(line.split()) for text in pages for _, line in sentences(text))


def main():
    """Compare and print; return the exit code."""
    limits = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]["posattn"]
    over = 0
    for name, count in counts().items():
        print(f"{name}: {count:,} of {limits[name]:,}")
        if count > limits[name]:
            over += 1
            print(
                f"{name} is {count:,}, over the limit of {limits[name]:,} in pyproject.toml: remove "
                f"{count - limits[name]:,} first",
                file=sys.stderr,
            )
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
