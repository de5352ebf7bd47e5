"""Runs where a library is installed: `python -m tests.nightly.conformance.inside NAME` prints checks."""

import importlib
import json
import sys

from tests.nightly.conformance.adapting import adapters_of, examine

if __name__ == "__main__":
    module = importlib.import_module(f"tests.nightly.conformance.{sys.argv[1]}")
    checks = [examine(adapter) for adapter in adapters_of(module)]
    sys.stdout.write("\n" + json.dumps(checks))  # a last line, after what a library says
