"""Compare the licences of what users install with those that pyproject.toml allows.

Users install the library with its extras, and all that these need, which is looked at here, or all that
the Python of a port has, which is named: `python .ci/licences.py .nox/ports-mlx/bin/python`. Not looked
at are MXNet, whose Python is too old, and NVIDIA's libraries, under its own licence.
"""

import subprocess
import sys
from importlib.metadata import requires

from packaging.requirements import Requirement


def needed(requirement):
    """The names of all that a requirement needs here, and of those that it asks for."""
    found, waiting = set(), [Requirement(requirement)]
    while waiting:
        wanted = waiting.pop()
        if (wanted.name, *sorted(wanted.extras)) in found:
            continue
        found.add((wanted.name, *sorted(wanted.extras)))
        for needs in map(Requirement, requires(wanted.name) or []):
            if needs.name.startswith(("nvidia-", "cuda-")):  # with torch's build for GPUs
                continue
            extras = ["", *wanted.extras]
            if not needs.marker or any(needs.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needs)
    return sorted({name for name, *_ in found})


if __name__ == "__main__":
    command = [sys.executable, "-m", "piplicenses", "--from", "mixed"]
    if port := sys.argv[1:]:
        # pip itself has the former (MPL 2.0); the metadata of the latter do not say it (Apache-2.0)
        command += ["--python", *port, "--ignore-packages", "certifi", "namex"]
    else:
        command += ["--packages", *needed("posattn[torch,jax,figures]")]
    sys.exit(subprocess.run(command, check=False).returncode)
