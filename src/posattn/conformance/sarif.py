"""A report as SARIF 2.1.0, which code scanning shows beside the function."""

from pathlib import Path

from posattn import __version__
from posattn.conformance.testing import story

__all__ = ["as_sarif"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
OTHERS = {
    "failed": ("no_known_fault", "A case fails, and no known fault explains it.", "error"),
    "xpassed": ("passes_unexpectedly", "A case passes that is expected to fail.", "note"),
}


def as_sarif(report):
    """Make SARIF of `Report.to_dict()`: one result for each likely cause, and for each other case.

    Args:
        report: the data, and where the function stands, `file` and `line`, if that is known.

    Returns:
        A dict that JSON can hold.
    """
    left = {case["name"]: case for case in report["cases"] if case["outcome"] in OTHERS}
    rules, results, where = {}, [], located(report)
    for cause in report["causes"]:
        names = [name for name in cause["cases"] if name in left]
        left = {name: case for name, case in left.items() if name not in names}
        if names:
            text = f"{cause['sentence']} In {'; '.join(names)}"
            results.append((cause["name"], cause["sentence"], "error", text))
    for name, case in left.items():
        text = f"{name}: {story(report, case)}" if case["outcome"] == "failed" else name
        results.append((*OTHERS[case["outcome"]], text))
    made = []
    for rule, sentence, level, text in results:
        rules[rule] = {"id": rule, "shortDescription": {"text": sentence}}
        told = {"text": f"{report['title']}: {text}"}
        made.append({"ruleId": rule, "level": level, "message": told, **where})
    driver = {"name": "posattn", "version": __version__, "rules": [*rules.values()]}
    run = {"tool": {"driver": driver}, "results": made}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def located(report):
    """The place of the function, as a part of a result."""
    if "file" not in report:
        return {}
    path, root = Path(report["file"]).resolve(), Path.cwd()
    inside = root in path.parents
    uri = path.relative_to(root).as_posix() if inside else path.as_uri()
    region = {"startLine": report.get("line", 1)}
    place = {"artifactLocation": {"uri": uri}, "region": region}
    return {"locations": [{"physicalLocation": place}]}
