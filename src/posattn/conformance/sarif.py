"""A report as SARIF 2.1.0, which code scanning shows beside the function."""

import os
from pathlib import Path

from posattn import __version__
from posattn.conformance.testing import story

__all__ = ["as_sarif"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
UNEXPLAINED = {
    **{"name": "no_known_fault", "seen": "", "cases": ()},
    "sentence": "A case fails, and no known fault explains it.",
}
UNEXPECTED = {
    **{"name": "passes_unexpectedly", "seen": "", "cases": ()},
    "sentence": "A case passes that is expected to fail.",
}


def as_sarif(report):
    """Make SARIF of `Report.to_dict()`: one result for each likely cause, and for each other case.

    Args:
        report: the data; `file` and `line`, where the function stands, are added to them if known.

    Returns:
        A dict that JSON can hold.
    """
    left = {case["name"]: case for case in report["cases"] if case["outcome"] == "failed"}
    rules, results = {}, []
    for cause in report["causes"]:
        names = [name for name in cause["cases"] if left.pop(name, None)]
        if names:
            text = f"{cause['sentence']} In {'; '.join(names)}"
            results.append(result(report, cause, text, rules))
    for name, case in left.items():
        results.append(result(report, UNEXPLAINED, f"{name}: {story(report, case)}", rules))
    for case in report["cases"]:
        if case["outcome"] == "xpassed":
            results.append(result(report, UNEXPECTED, case["name"], rules, "note"))
    driver = {"name": "posattn", "version": __version__, "rules": [*rules.values()]}
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def result(report, cause, text, rules, level="error"):
    """What is told at the line of the function; its rule is entered."""
    rule = {"id": cause["name"], "shortDescription": {"text": cause["sentence"]}}
    seen = {"help": {"text": f"Seen in {cause['seen']}."}} if cause["seen"] else {}
    rules[cause["name"]] = {**rule, **seen}
    made = {"ruleId": cause["name"], "level": level}
    made["message"] = {"text": f"{report['title']}: {text}"}
    if "file" in report:
        path, root = Path(report["file"]).resolve(), Path(os.getcwd()).resolve()
        inside = root in path.parents
        uri = path.relative_to(root).as_posix() if inside else path.as_uri()
        where = {"artifactLocation": {"uri": uri}}
        where["region"] = {"startLine": report.get("line", 1)}
        made["locations"] = [{"physicalLocation": where}]
    return made
