"""Where things come from: pinned versions with hashes, workflows that may do little, licences."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

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


def test_everything_is_installed_with_its_hashes_compared():
    noxfile = (ROOT / "noxfile.py").read_text("utf-8")
    calls = re.findall(r"session\.install\(([^)]*)\)", noxfile)
    assert {call for call in calls if "--require-hashes" not in call} == {
        '"--upgrade", "--editable", ".", *versions, *groups',  # no pin: what a user may have
        '"--no-build-isolation", *package',  # this project, in MXNet's environment
    }
    elsewhere = [ROOT / ".ci" / "run", ROOT / ".readthedocs.yaml", *WORKFLOWS]
    found = [
        line
        for path in elsewhere
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"\bpip install\b", line)
    ]
    assert len(found) >= 5
    assert [line for line in found if "--require-hashes -r .ci/nox.txt" not in line] == []


def test_nothing_is_fetched_but_from_the_package_registries():
    files = [ROOT / "noxfile.py", ROOT / "conf.py", ROOT / ".readthedocs.yaml", *WORKFLOWS]
    files += [path for path in (ROOT / ".ci").iterdir() if path.is_file()]
    for folder in ("docs/_ext", "src", "tests/audit"):
        files += (ROOT / folder).rglob("*.py")
    assert len(files) > 100
    assert [str(path) for path in files if FETCHES.search(path.read_text("utf-8"))] == []


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


def test_the_action_checks_a_function_and_runs_nothing_that_an_input_says(tmp_path):
    text = (ROOT / ".github" / "actions" / "check" / "action.yml").read_text("utf-8")
    install, check = yaml.safe_load(text)["runs"]["steps"]
    assert "inputs." not in install["run"] + check["run"]
    (tmp_path / "mine.py").write_text("from posattn.reference import rotate")
    env = {"FUNCTION": "mine:rotate", "SCHEME": "rotary", "EXPECTED": ""}
    env |= {"OPTIONS": "--only 4 --skip layout", "RUNNER_TEMP": ".", "GITHUB_OUTPUT": "out"}
    env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert set(check["env"]) <= set(env)
    for expected, code in (("$(touch ran)", 2), ("", 0)):
        ran = subprocess.run(
            ["bash", "-ec", check["run"]],
            cwd=tmp_path,
            env={**os.environ, **env, "EXPECTED": expected},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
    assert sorted(x.name for x in tmp_path.glob("*[!_]")) == [
        *("mine.py", "out", "posattn-rotary.sarif"),
    ]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["entry"].split() == ["posattn", "check"]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_licence_that_is_not_allowed_is_named(tmp_path, allowed):
    (tmp_path / "pyproject.toml").write_text('[tool.pip-licenses]\nallow-only = "MIT"\n')
    command, folder = (
        [sys.executable, ROOT / ".ci" / "licences.py"],
        ROOT if allowed else tmp_path,
    )
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    looked_at = {line.split()[0] for line in ran.stdout.splitlines()[1:] if line.strip()}
    assert ran.returncode == (not allowed), ran.stderr
    assert allowed == ({"numpy", "torch", "jax", "matplotlib"} <= looked_at)
    assert "Sphinx" not in looked_at
    assert allowed != ("was found for package" in ran.stderr)
