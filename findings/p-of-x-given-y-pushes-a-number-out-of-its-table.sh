#!/usr/bin/env bash
# Versions: MyST-Parser 5.2.0 with Sphinx 9.0.4, mystmd 1.8.3 (the engine of Jupyter Book 2).
# Expected: in a table a formula $p(x|y)$ is a formula, as it is in a paragraph, or the build
#   warns of a row with more cells than the table has columns.
# Seen: the row "A, $p(x|y)$, 0.25" reads "A", "$p(x", "y)$": the bar ends the cell, and the
#   last cell, the 0.25, is on no page. Both engines, exit code 0, no warning (Sphinx: -n -W;
#   mystmd: --strict, here as a JATS file). `a|b` in code fares the same; \mid is right.
# Why: the table rule of markdown-it and markdown-it-py (rules_block/table, escapedSplit) cuts
#   rows at every bar that has no backslash, before formulas and code are looked for, and drops
#   the cells that are too many, as GitHub's dialect says; neither engine reports it.
# Who meets it: tables of losses and likelihoods: p(x|y), |x|, KL(p||q) in one column, numbers
#   in the next. Where the header has room for one more cell, numbers move by one column.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
cd "$T"
python3 -m venv env
env/bin/pip install --quiet myst-parser==5.2.0 sphinx==9.0.4
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund mystmd@1.8.3
mkdir book
cat >book/index.md <<'MD'
# Losses

Here $p(x|y)$ is a formula.

| model | loss | value |
|-------|------|-------|
| A | $-\log p(x|y)$ | 0.25 |
| B | $-\log p(x \mid y)$ | 0.50 |
| C | `a|b` | 0.75 |
MD
cat >book/conf.py <<'PY'
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
PY
printf 'version: 1\nproject: {title: Losses}\n' >book/myst.yml
env/bin/sphinx-build -n -W -q -b text book text
(cd book && npx --prefix .. myst build index.md --xml --strict --ci >../log.txt 2>&1)
env/bin/python - <<'PY'
from pathlib import Path
from xml.etree import ElementTree

sphinx = Path("text/index.txt").read_text()
print("Sphinx:", *(" ".join(x.split()) for x in sphinx.splitlines() if x[:2] == "| "), sep="\n  ")
tree = ElementTree.parse("book/_build/exports/index.xml")
mystmd = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
print("mystmd:", *mystmd, sep="\n  ")
log = Path("log.txt").read_text()
assert "0.50" in sphinx and "0.25" not in sphinx and "0.75" not in sphinx
assert "y)$" in sphinx and r"$-\log p(x" in sphinx
assert mystmd[1] == ["A", r"$-\log p(x", "y)$"] and mystmd[2][2] == "0.50"
assert mystmd[3] == ["C", "`a", "b`"] and "⚠" not in log and "⛔" not in log
PY
