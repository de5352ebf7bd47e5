"""The machine that is measured: its name, its size, and the versions of what runs on it."""

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("torch", "jax", "numpy", "transformers", "flax", "equinox")
PACKAGES += ("x-transformers", "rotary-embedding-torch")


def device():
    """`"cuda"` or `"cpu"`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def describe():
    """What a reader must know of this machine to compare it with another."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        cores = os.cpu_count()
    return {
        "name": torch.cuda.get_device_name() if device() == "cuda" else processor(),
        "cores": cores,
        "memory": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
    }


def processor():
    """The name of the processor, as its maker writes it."""
    facts = Path("/proc/cpuinfo")
    if facts.is_file() and (
        named := re.search(r"model name\s*: (.+)", facts.read_text(encoding="utf-8"))
    ):
        return re.sub(r"\((?:R|TM)\)", "", named[1]).strip()
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
    return platform.processor() or platform.machine()


def installed(name):
    """The version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def kind(about):
    """The name of the machine's file."""
    words = re.findall(r"[a-z0-9]+", about["name"].lower())
    return "-".join([*words, str(about["cores"]), "cores"])
