"""Ask for known vulnerabilities of every version in constraints.txt."""

import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    """Ask for all at once; what follows the name of this file goes to pip-audit."""
    lines = Path("constraints.txt").read_text("utf-8").splitlines()
    pins = [line.removesuffix(" \\") for line in lines if "==" in line]
    options = ["--strict", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "pins.txt")
        listed.write_text("\n".join(pins), "utf-8")
        command = [sys.executable, "-m", "pip_audit", *options, "--requirement", listed]
        if subprocess.run([*command, *sys.argv[1:]], check=False).returncode:
            sys.exit("a version is vulnerable, or the service of advisories gave no answer")


if __name__ == "__main__":
    main()
