"""A report in words for one of its cases."""

from posattn.conformance.report import wrapped

__all__ = ["story"]


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
