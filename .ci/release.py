"""Build a release from the last commit, and check it: `python .ci/release.py build/release`.

The folder gets wheel, sdist, the changelog with the version's section, and the archive's metadata.
Nothing is uploaded, and the same commit gives the same files.
"""

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import yaml

NEWEST = re.compile(r"^## \[(.+?)\]", re.MULTILINE)
TO_COME = re.compile(r"^This will be (\d\S*?\w)[,.]\s[^\n]*\n*", re.MULTILINE)


def git(*arguments):
    """What git answers."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def versions():
    """The version that each file names: the library, the citation, and the changelog's newest section."""
    library = re.search(
        r'__version__ = "(.+?)"', Path("src/posattn/__init__.py").read_text("utf-8")
    )
    changelog = Path("CHANGELOG.md").read_text("utf-8")
    newest, to_come = NEWEST.findall(changelog), TO_COME.search(changelog)
    if newest[:1] == ["Unreleased"]:
        newest[:1] = [to_come[1]] if to_come else []
    return {
        "src/posattn/__init__.py": library[1],
        "CITATION.cff": citation()["version"],
        "CHANGELOG.md": newest[0] if newest else None,
    }


def citation():
    """CITATION.cff."""
    return yaml.safe_load(Path("CITATION.cff").read_text("utf-8"))


def released(changelog, version, day):
    """The changelog in which what was to come is the version's section."""
    to_come = TO_COME.search(changelog)
    if not to_come:
        return changelog
    section = f"## [Unreleased]\n\n## [{version}] - {day}\n\n"
    return re.sub(r"^## \[Unreleased\]\n+", section, TO_COME.sub("", changelog), flags=re.M)


def archived(version, day):
    """What an archive such as Zenodo wants to know, of which it reads not all in CITATION.cff."""
    known = citation()
    return {
        "upload_type": "software",
        "title": known["title"],
        "description": known["abstract"],
        "creators": [{"name": author["name"]} for author in known["authors"]],
        "keywords": known["keywords"],
        "license": known["license"][0],
        "notes": "Code: MIT. Text and figures of the book: CC BY 4.0.",
        "version": version,
        "publication_date": day,
    }


def build(target, epoch):
    """Build the sdist, and the wheel out of it."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return sorted(path.name for path in target.iterdir())


def main(target):
    """Refuse, or release."""
    if changes := git("status", "--porcelain"):
        return f"the working tree must be clean, got\n{changes.rstrip()}"
    named = versions()
    version = named["src/posattn/__init__.py"]
    if set(named.values()) != {version}:
        said = ", ".join(f"{file} has {number}" for file, number in named.items())
        return f"all files must name one version: {said}"
    epoch = git("log", "-1", "--format=%ct").strip()
    day = datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = build(target, epoch)
    with tempfile.TemporaryDirectory() as again:
        build(Path(again), epoch)
        _, differ, missing = filecmp.cmpfiles(target, again, files, shallow=False)
        if differ or missing:
            return f"two builds must give the same files, but {', '.join(differ + missing)} differ"
    check = [
        sys.executable,
        "-m",
        "twine",
        "check",
        "--strict",
        *(target / f for f in files),
    ]
    if subprocess.run(check, check=False).returncode:
        return "twine must accept what is built"
    changelog = released(Path("CHANGELOG.md").read_text("utf-8"), version, day)
    (target / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    archive = json.dumps(archived(version, day), indent=2, ensure_ascii=False)
    (target / ".zenodo.json").write_text(archive + "\n", encoding="utf-8")
    print(f"{target}: {', '.join(files)}, CHANGELOG.md, .zenodo.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
