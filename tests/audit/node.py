"""Our scripts for Node, run beside the packages of npm that they import."""

import json
import shutil
import subprocess
from pathlib import Path

from docs._ext import mathematics, npm

HERE = Path(__file__).parent / "node"


def lines(script, *arguments):
    """Run one of our scripts and yield what it prints, line by line."""
    shutil.copy(HERE / script, npm.HOME)  # a module finds packages beside itself only
    command = [mathematics.NODE, npm.HOME / script, *arguments]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield from map(json.loads, process.stdout)
        errors = process.stderr.read()
    if process.returncode:
        raise SystemExit(f"{script} failed: {errors.strip()}")
