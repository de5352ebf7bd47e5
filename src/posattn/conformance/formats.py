"""A report in the formats that a CI reads, made from the plain data of `Report.to_dict`."""

import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from posattn import __version__
from posattn.conformance.report import wrapped

__all__ = ["FORMATS", "story"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
UNEXPLAINED = {
    "id": "no_known_fault",
    "shortDescription": {"text": "The function fails, and no known fault explains it."},
}


def story(report, case):
    """What there is to say of a case that failed: what is wrong, and the likely cause."""
    lines = wrongs(case)
    causes = [cause for cause in report["causes"] if case["name"] in cause["cases"]]
    for cause in causes:
        share = f"{len(cause['cases'])} of {cause['of']} failures"
        lines += [wrapped(f"likely cause ({share}): {cause['sentence']}")]
        lines += [f"  seen in {cause['seen']}"] if cause["seen"] else []
    if "at" in case and not causes:
        lines += ["no known fault explains this"]
    return "\n".join(lines)


def wrongs(case):
    """What is wrong in a case, in lines."""
    lines = []
    if "at" in case:
        error, want, got = (float(case[name]) for name in ("error", "expected", "got"))
        lines += [f"error {error:.2g} at {case['at']}: expected {want:.6g}, got {got:.6g}"]
    if "raised" in case:
        lines += [f"it raises {case['raised']}"]
        lines += [f"  at {case['where']}"] if case["where"] else []
    return lines + [f"it {complaint}" for complaint in case.get("complaints", ())]


def having(report, outcome):
    """The cases that came out so."""
    return [case for case in report["cases"] if case["outcome"] == outcome]


def as_json(report):
    """The data themselves."""
    return json.dumps(report, indent=2, allow_nan=False)


def as_junit(report):
    """JUnit's XML, with a `testcase` for each case."""
    counts = {"failures": len(having(report, "failed")), "errors": 0}
    counts.update(tests=len(report["cases"]), skipped=len(having(report, "skipped")))
    totals = {name: str(count) for name, count in counts.items()}
    whole = ET.Element("testsuites", name="posattn", **totals)
    suite = ET.SubElement(whole, "testsuite", name=legal(report["title"]), **totals)
    for case in report["cases"]:
        name = {"classname": legal(report["title"]), "name": legal(case["name"])}
        entry = ET.SubElement(suite, "testcase", name)
        if case["outcome"] == "skipped":
            ET.SubElement(entry, "skipped", message=legal(case["reason"]))
        if case["outcome"] == "failed":
            told = legal(story(report, case))
            ET.SubElement(entry, "failure", message=told.splitlines()[0]).text = told
    for element in whole.iter():
        element.tail = "\n"
    return ET.tostring(whole, "us-ascii").decode().rstrip()


def legal(text):
    """A text with escapes for the characters that XML cannot hold."""
    cannot = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    return re.sub(cannot, lambda found: repr(found[0])[1:-1], text)


def as_sarif(report):
    """SARIF 2.1.0: a rule and a result for each cause, and one result for what none explains."""
    causes, failed = report["causes"], having(report, "failed")
    explained = {name for cause in causes for name in cause["cases"]}
    others = [case for case in failed if case["name"] not in explained]
    results = [
        result(report, cause["name"], cause["sentence"], cause["cases"]) for cause in causes
    ]
    if others:
        names = [case["name"] for case in others]
        results += [result(report, UNEXPLAINED["id"], grouped(others), names)]
    tool = {"name": "posattn", "version": __version__}
    rules = [*map(rule, causes), *[UNEXPLAINED] * bool(others)]
    tool["rules"] = [*{rule["id"]: rule for rule in rules}.values()]
    run = {"tool": {"driver": tool}, "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def grouped(cases):
    """What is wrong in some cases, each thing once."""
    found = {}
    for case in cases:
        found.setdefault(wrongs(case)[0], []).append(case["name"])
    return "; ".join(
        f"{what} (in {name!r}{f' and {len(others)} more' if others else ''})"
        for what, (name, *others) in found.items()
    )


def rule(cause):
    """A cause, as a rule that a function breaks."""
    told = {"id": cause["name"], "shortDescription": {"text": cause["sentence"]}}
    return (
        {**told, "help": {"text": f"Seen in {cause['seen']}."}} if cause["seen"] else told
    )


def result(report, name, told, cases):
    """What an annotation says, at the line of the function where that is known."""
    run = len(report["cases"]) - len(having(report, "skipped"))
    text = f"{report['title']}, {len(cases)} of {run} cases: {told}"
    made = {"ruleId": name, "level": "error", "message": {"text": text}}
    if "file" not in report:
        return made
    path, root = Path(report["file"]), Path(os.getcwd())
    inside = root in path.parents
    place = path.relative_to(root).as_posix() if inside else path.as_uri()
    where = {"artifactLocation": {"uri": place}, "region": {"startLine": report["line"]}}
    return {**made, "locations": [{"physicalLocation": where}]}


FORMATS = {"json": as_json, "junit": as_junit, "sarif": as_sarif}
