"""Build a release from the last commit, and check it: `python .ci/release.py build/release`.

Nothing is uploaded, and the same commit gives the same files.
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

NEWEST = re.compile(r"^## \[(.+?)\]", re.MULTILINE)


def git(*arguments):
    """What git answers."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def versions():
    """The version that each file names."""
    library = Path("src/posattn/__init__.py").read_text("utf-8")
    newest = NEWEST.search(Path("CHANGELOG.md").read_text("utf-8"))
    return {
        "src/posattn/__init__.py": re.search(r'__version__ = "(.+?)"', library)[1],
        "CITATION.cff": yaml.safe_load(Path("CITATION.cff").read_text("utf-8"))["version"],
        "CHANGELOG.md": newest[1] if newest else None,
    }


def build(target):
    """Build the sdist, and the wheel out of it, with the time of the commit."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target)]
    epoch = {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
    subprocess.run(command, env=os.environ | epoch, check=True, stdout=subprocess.DEVNULL)
    return sorted(path.name for path in target.iterdir())


def main(target):
    """Refuse, or release."""
    if changes := git("status", "--porcelain"):
        return f"the working tree must be clean, got\n{changes.rstrip()}"
    named = versions()
    if len(set(named.values())) > 1:
        said = ", ".join(f"{file} has {version}" for file, version in named.items())
        return f"all files must name one version: {said}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = build(target)
    with tempfile.TemporaryDirectory() as again:
        build(Path(again))
        _, differ, missing = filecmp.cmpfiles(target, again, files, shallow=False)
    if differ or missing:
        return (
            f"two builds must give the same files, but {', '.join(differ + missing)} differ"
        )
    check = [sys.executable, "-m", "twine", "check", "--strict"]
    if subprocess.run([*check, *(target / name for name in files)], check=False).returncode:
        return "twine must accept what is built"
    print(f"{target}: {', '.join(files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
