"""Compare the licences of what users install with those that pyproject.toml allows.

Users install the library with its extras, and all that these need. Not looked at are the ports'
frameworks, which stand in environments of their own, and NVIDIA's libraries, under its own licence.
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
    command = [sys.executable, "-m", "piplicenses", "--from", "mixed", "--packages"]
    answer = subprocess.run([*command, *needed("posattn[torch,jax,figures]")], check=False)
    sys.exit(answer.returncode)
