"""Every command of the project. `nox -l` lists them; each sets itself up on its first run."""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / ".ci"))
import builds
from builds import BUILD, alone, publish, remove

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests", "docs"]

WORK = BUILD / "work"
ENVIRONMENT = Path(".nox", "environment").resolve()
BIN = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
PEERS = Path(".nox", "peers", BIN.name).resolve()
LATEX = (
    "latexmk texlive-xetex texlive-latex-extra texlive-fonts-recommended "
    "fonts-texgyre fonts-texgyre-math fonts-inconsolata"
)
PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
# neighbours stay together, and share what they have compiled or built
BESIDE = ["--numprocesses=2", "--dist=worksteal"]
ALL = [*BESIDE, "-m", "slow or not slow"]
os.environ |= builds.settings(os.environ)


def refusable(command: Callable[[nox.Session], None]) -> Callable[[nox.Session], None]:
    """Say in one line what a disk or another command refuses."""

    @functools.wraps(command)
    def told(session: nox.Session) -> None:
        try:
            command(session)
        except (OSError, nox.command.CommandFailed) as failed:
            if builds.full():
                session.error(f"the disk is full, where {BUILD.resolve()} is")
            if isinstance(failed, OSError):
                session.error(builds.line(failed))
            raise

    return told


def tool(command: Callable[[nox.Session], None]) -> Callable[[nox.Session], None]:
    """Run in the environment."""
    session = nox.session(requires=["environment"], venv_backend="none")
    return session(refusable(command))


beside = nox.session(requires=["peers"], venv_backend="none", default=False)


@nox.session(default=False)
@refusable
def environment(session: nox.Session) -> None:
    """Install everything once; again only after what it is made from changed."""
    stamp = ENVIRONMENT / "installed"
    wanted = builds.fingerprint("pyproject.toml", "constraints.txt")
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    alone()
    groups = nox.project.dependency_groups(PROJECT, "docs", "tests", "lint", "release")
    install(session, "--editable", ".[torch,jax,figures]", *groups)
    # its source is read by a page, and nothing that it depends on is needed
    install(session, "--no-deps", "d2l")
    stamp.write_text(wanted)


@tool
def tests(session: nox.Session) -> None:
    """Run the tests and docstring examples; where CI is set, slow ones too."""
    run(session, "pytest", *(session.posargs or BESIDE))


@tool
def coverage(session: nox.Session) -> None:
    """Run all tests and count the branches of the library that they run: all, or it fails."""
    run(session, "pytest", *ALL, "--cov", "--cov-report", "term-missing", *session.posargs)


@nox.session(venv_backend="venv", default=False)
@nox.parametrize(
    ["python", "oldest"],
    [(PYTHONS[0], True), *((python, False) for python in PYTHONS)],
    ids=["oldest", *(f"newest-{python}" for python in PYTHONS)],
)
def matrix(session: nox.Session, oldest: bool) -> None:
    """Test the library alone with the oldest versions that pyproject.toml promises, and with the newest."""
    wanted = builds.promised(PROJECT["project"], "torch", "jax", "figures")
    versions = [text.replace(">=", "==") for text in wanted] if oldest else wanted
    groups = nox.project.dependency_groups(PROJECT, "tests")
    session.install("--upgrade", "--editable", ".", *versions, *groups)
    # what is old may itself use what is deprecated by now
    lenient = ["-W", "ignore::DeprecationWarning"] if oldest else []
    session.run(
        "python",
        "-m",
        "pytest",
        *lenient,
        *(session.posargs or [*ALL, "tests/library", "src"]),
    )


@tool
def fuzz(session: nox.Session) -> None:
    """Call everything public with hostile input: `nox -s fuzz -- --column torch --inputs 5000` for a part."""
    run(session, "tests.nightly.fuzz", *session.posargs)


@tool
def mutants(session: nox.Session) -> None:
    """List small faults that no test notices: `nox -s mutants -- "posattn.jax.*alibi*"` for a part."""
    run(session, "mutmut", "run", *session.posargs)
    run(session, "mutmut", "results")


@nox.session(requires=["environment"], venv_backend="venv", default=False)
@nox.parametrize(
    ["python", "port"],
    [("3.11", "tensorflow"), ("3.11", "mlx"), ("3.8", "mxnet")],  # MXNet is retired
    ids=["tensorflow", "mlx", "mxnet"],
)
def ports(session: nox.Session, port: str) -> None:
    """Check the ports, each in its framework, and record what the pages show of them."""
    if port == "mxnet":  # its old pip wants everything listed, each with a hash
        session.install("--quiet", "--no-deps", "--require-hashes", "-r", "constraints.txt")
        package = ["--no-deps", "--ignore-requires-python", "--editable", "."]
        session.install("--no-build-isolation", *package)
    else:
        install(session, "--editable", f".[{port}]", "pytest", "pytest-cov")
        run(session, Path(".ci", "licences.py"), Path(session.bin, "python"))
    carried = Path(session.create_tmp(), "carried.json")
    run(session, "tests.nightly.ports.carry", carried)
    checks = ["--noconftest", "tests/nightly/ports/checks.py", f"src/posattn/ports/{port}.py"]
    coverage = [f"--cov=posattn.ports.{port}", "--cov-branch", "--cov-report=term-missing"]
    coverage += [f"--cov-config={os.devnull}"]
    session.run(
        "pytest",
        "--override-ini=filterwarnings=",
        "--cov-fail-under=97",  # TensorFlow runs copies of some lines, which nobody counts
        *coverage,
        *checks,
        *session.posargs,
        env={"POSATTN_PORT": port, "POSATTN_CARRIED": str(carried)},
    )
    session.run("python", "tests/nightly/ports/record.py", port)


@nox.session(python="3.11", requires=["environment"], default=False)
def peers(session: nox.Session) -> None:
    """Install the libraries that ours is compared with, in an environment of their own."""
    groups = nox.project.dependency_groups(PROJECT, "tests", "oracles")
    install(session, "--editable", ".[torch,jax]", *groups)


@beside
def oracles(session: nox.Session) -> None:
    """Compare the columns with well-known implementations."""
    options = ["--override-ini=addopts=--import-mode=importlib"]
    options += ["--override-ini=filterwarnings="]
    checks = sorted(map(str, Path("tests", "oracles").glob("checks_*.py")))
    run_beside(session, "pytest", *options, *checks, *session.posargs)


@tool
def conformance(session: nox.Session) -> None:
    """Ask other libraries what they make of our vectors, each in its environment: `-- timm` for one."""
    run(session, "tests.nightly.conformance", *session.posargs)


@beside
def bench(session: nox.Session) -> None:
    """Measure our speed beside others', and record it for the book: `nox -s bench -- rotate` for a part."""
    run_beside(session, "tests.nightly.benchmarks", *session.posargs)


@tool
def numerics(session: nox.Session) -> None:
    """Measure our errors beside others' for the book: `nox -s numerics -- rotate` for a part."""
    run(session, "tests.nightly.numerics", *session.posargs)


@tool
def study(session: nox.Session) -> None:
    """Train small decoders with every scheme; a later run goes on: `nox -s study -- rotary` for a part."""
    run(session, "tests.nightly.studies", *session.posargs)


@tool
def docs(session: nox.Session) -> None:
    """Run the doctests, then build the site with its slides: open build/html/index.html."""
    site, stamp = BUILD / "html", WORK / "site"
    sources = "docs src tests/pages conf.py references.bib noxfile.py constraints.txt"
    places = sorted(item for item in os.environ.items() if item[0].startswith("POSATTN_"))
    made_from = f"{builds.fingerprint(*sources.split())} {places}"
    if (
        site.is_dir()
        and stamp.is_file()
        and stamp.read_text() == made_from
        and not session.posargs
    ):
        session.log("nothing changed since the last build")
    else:
        stamp.unlink(missing_ok=True)
        sphinx(session, "doctest")  # which reads the pages
        with ThreadPoolExecutor() as writers:
            site_of = writers.submit(write, session, "html")
            deck = write(session, "revealjs", "docs/slides/index.md") / "slides"
            books = write(session, "notebooks")
        made = site_of.result()
        shutil.rmtree(made / "slides")
        shutil.copytree(deck, made / "slides")
        shutil.rmtree(made / "_notebooks", ignore_errors=True)
        only = shutil.ignore_patterns("_static", "reports")  # which MyST-NB adds
        shutil.copytree(books, made / "_notebooks", ignore=only)
        publish(made, site)
        if not session.posargs:
            stamp.write_text(made_from)
    session.log(f"open {site / 'index.html'}")


@nox.session(requires=["docs"], venv_backend="none", default=False)
def notebooks(session: nox.Session) -> None:
    """Run every notebook without the other framework, and compare it with its page."""
    run(session, "tests.build.rerun", BUILD / "html" / "_notebooks")


@nox.session(requires=["docs"], venv_backend="none", default=False)
@refusable
def pdf(session: nox.Session) -> None:
    """Print the book for each framework, the library's reference and the slides, below build/pdf."""
    if not (shutil.which("latexmk") and shutil.which("xelatex")):
        session.error(f"the PDF needs LaTeX. On Debian or Ubuntu: apt-get install {LATEX}")
    alone()
    typeset(session, sphinx(session, "latex"), "posattn", "posattn-api")
    jax = sphinx(session, "latex", settings=["-t", "jax"])
    typeset(session, jax, "posattn-jax")
    slides = WORK / "slides.pdf"
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing = "printing the slides needs Chromium: apt-get install chromium"
        session.error(missing) if os.environ.get("CI") == "true" else session.warn(missing)
        return
    run(session, "tests.audit.chromium", BUILD / "html" / "slides" / "index.html", slides)
    publish(slides, BUILD / "pdf" / slides.name)
    session.log(f"open {BUILD / 'pdf' / 'posattn.pdf'}")


@tool
def epub(session: nox.Session) -> None:
    """Bind the book as build/epub/posattn.epub, and check it where there is Java."""
    book = sphinx(session, "epub") / "posattn.epub"
    if shutil.which("java"):
        run(session, "epubcheck", book)
    elif os.environ.get("CI") == "true":
        session.error("the check needs Java: apt-get install default-jre-headless")
    else:
        session.warn("not checked: epubcheck needs Java")
    publish(book, BUILD / "epub" / book.name)
    session.log(f"open {BUILD / 'epub' / book.name}")


@tool
def audit(session: nox.Session) -> None:
    """Audit build/html in Chromium, all pages or those named: `nox -s audit -- position/sinusoidal`."""
    run(session, "tests.audit.npm")  # which fetches its tools, once
    run(session, "tests.audit", *session.posargs)


@tool
def serve(session: nox.Session) -> None:
    """Show the site at http://127.0.0.1:8000 and rebuild it while you write."""
    alone()
    # what it warns of must come again
    (WORK / "doctrees" / builds.MARK).unlink(missing_ok=True)
    options = ["--watch", "src", "--doctree-dir", WORK / "doctrees", "-c", ".", "-n"]
    run(session, "sphinx_autobuild", *options, "docs", WORK / "html", *session.posargs)


@tool
def lint(session: nox.Session) -> None:
    """Check the code, a user's types, and the files that other machines read against their schemas."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy", "--strict", "tests/types")
    run(session, "basedpyright", "--project", ".", "--pythonpath", BIN / "python")
    schemas = {
        "vendor.github-workflows": sorted(Path(".github", "workflows").glob("*.yml")),
        "vendor.dependabot": [Path(".github", "dependabot.yml")],
        "vendor.readthedocs": [Path(".readthedocs.yaml")],
        "vendor.citation-file-format": [Path("CITATION.cff")],
    }
    for schema, files in schemas.items():
        run(session, "check_jsonschema", "--builtin-schema", schema, *files)
    run(session, Path(".ci", "licences.py"))


@tool
def vulnerabilities(session: nox.Session) -> None:
    """Ask for known vulnerabilities of every version in constraints.txt, as CI does each night."""
    run(session, Path(".ci", "vulnerabilities.py"), *session.posargs)


@tool
def constraints(session: nox.Session) -> None:
    """Resolve constraints.txt anew; versions stay, but for `nox -s constraints -- --upgrade`."""
    run(session, Path(".ci", "constraints.py"), *session.posargs)


@nox.session(requires=["environment"], reuse_venv=False, default=False)
def release(session: nox.Session) -> None:
    """Build and check a release in build/release, from a clean tree; nothing is uploaded."""
    target = BUILD / "release"
    run(session, Path(".ci", "release.py"), target)
    (wheel,) = target.glob("*.whl")
    install(session, str(wheel))
    session.run(
        "python", "-m", "posattn", "check", "posattn.reference:rotate", "--scheme", "rotary"
    )
    session.log(f"see CONTRIBUTING.md for what to do with {target}")


@tool
def reproduce(session: nox.Session) -> None:
    """Build all that is published twice, in places that differ, and compare the bytes."""
    run(session, Path(".ci", "reproduce.py"), sys.executable)


def install(session: nox.Session, *wanted: str) -> None:
    """Install in the versions of constraints.txt, and of what has hashes there only what has one of them.

    The pip of the environment does it: that of another environment may be too old to compare hashes
    where something else has none, such as torch and this project.
    """
    pip = [str(BIN / "python"), "-m", "pip", "--python", session.virtualenv.location]
    versions = ["--constraint", "constraints.txt", "--build-constraint", "constraints.txt"]
    command = [*pip, "install", "--no-require-hashes", *versions, *wanted]
    session.run(*command, external=True, silent=True)


def run(session: nox.Session, module: str | Path, *arguments: object) -> None:
    """Run a module or a file in the environment, with its programs first on the path.

    Most of them start two processes, and threads of two that share the cores wait for each other: with
    one thread each, a loop that trains took 4 s in place of 51.
    """
    settings = {
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    session.run(
        str(BIN / "python"),
        *([str(module)] if isinstance(module, Path) else ["-m", module]),
        *map(str, arguments),
        external=True,
        env=settings,
    )


def run_beside(session: nox.Session, module: str, *arguments: str) -> None:
    """Run a module where the peers are; when it is interrupted, it ends by itself."""
    session.run(
        str(PEERS / "python"),
        "-m",
        module,
        *arguments,
        external=True,
        env={"HF_HUB_OFFLINE": "1"},
        interrupt_timeout=None,
    )


def typeset(session: nox.Session, folder: Path, *names: str) -> None:
    """Run LaTeX in the folder, read its log, and put the PDFs where a reader finds them."""
    options = ["-pdfxe", "-interaction=nonstopmode", "-halt-on-error"]
    latexmk = functools.partial(
        session.run, "latexmk", *options, external=True, silent=True
    )
    with session.chdir(folder), ThreadPoolExecutor() as printers:
        list(printers.map(latexmk, [f"{name}.tex" for name in names]))
    for name in names:
        run(session, Path(".ci", "proofread.py"), folder / f"{name}.log")
        publish(folder / f"{name}.pdf", BUILD / "pdf" / f"{name}.pdf")


def sphinx(
    session: nox.Session,
    builder: str,
    *pages: str,
    settings: Sequence[str] = (),
    doctrees: Path = WORK / "doctrees",
) -> Path:
    """Run one builder on the pages, which all builders share once they are executed.

    Unless told which, it writes all of them (`-a`): a page that another builder has read anew does
    not look new to it.
    """
    alone()
    out = WORK / builder
    if not session.posargs:
        remove(out)  # nothing outlives its page
    ended_well = builds.trusted(doctrees)
    processes = min(4, os.cpu_count() or 1)  # each runs a page in both frameworks: 1 GiB
    options = ["-q", "-n", "-W", "--keep-going", "-j", processes, "-c", ".", "-d", doctrees]
    options += ["-b", builder, *settings]
    run(session, "sphinx", *options, "docs", out, *(pages or session.posargs or ["-a"]))
    ended_well.touch()
    return out


def write(session: nox.Session, builder: str, *pages: str) -> Path:
    """Run one builder on pages that are read, beside others: each has a copy of what was read."""
    copy = WORK / f"doctrees-{builder}"
    remove(copy)
    shutil.copytree(WORK / "doctrees", copy)
    return sphinx(session, builder, *pages, doctrees=copy)
