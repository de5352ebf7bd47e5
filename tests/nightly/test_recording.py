"""The loop of what is measured: it keeps what it has, goes on from there, and says what broke."""

from types import SimpleNamespace

from tests.nightly import recording


def looped(names, known, breaks=None):
    """The exit code, what was said, and what was run."""
    said, ran = [], []

    def run(cell):
        ran.append(cell.name)
        if cell.name == "broken":
            raise breaks
        return cell.name.upper()

    def save(cell, entry):
        known[cell.name] = entry
        return "kept"

    cells = [SimpleNamespace(name=name) for name in names]
    code = recording.resume(cells, lambda c: c.name in known, run, save, say=said.append)
    return code, said, ran


def test_what_is_recorded_is_not_run_and_what_fails_stops_no_other():
    known = {"one": "ONE"}
    code, said, ran = looped(["one", "broken", "two"], known, ValueError("too\nlong"))
    assert (code, ran) == (1, ["broken", "two"])
    assert said[0] == "1 of 3 are recorded"
    assert said[1].startswith("[ 1/2] broken: FAILED, ValueError: too (")
    assert said[2].startswith("[ 2/2] two: kept (")
    assert known == {"one": "ONE", "two": "TWO"}


def test_a_run_that_was_stopped_goes_on_where_it_was():
    known = {}
    code, said, _ = looped(["one", "broken", "two"], known, KeyboardInterrupt())
    assert code == 130
    assert said[-1].startswith("stopped; what was measured is kept")
    assert looped(["one", "two"], known)[::2] == (0, ["two"])
