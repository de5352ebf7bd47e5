"""What each fault sounds like: what the page says of the record, which a new one could break."""

import json
import re
from pathlib import Path

RECORD = Path(__file__).parents[2] / "docs" / "_records" / "studies" / "real.json"
CELLS = json.loads(RECORD.read_text("utf-8"))["cells"]
ROW = re.compile(r"^\| \*\{glue:text\}`(.*?) writes`\* \|", re.MULTILINE)


def test_the_tables_have_each_fault_once_and_diagnose_misses_only_the_norms(page):
    rows = ROW.findall(page.text)
    assert len(rows) == 12
    assert {"none", *rows} == set(page.torch.faults)
    says = {row: CELLS[f"diagnosis: {row}, King James, 128"]["says"] for row in rows}
    assert [row for row, text in says.items() if not text] == ["norm epsilon"]
    assert not any("No known misreading" in text for text in says.values())


LOUD = ("mask from the top left", "query one off", "scale missing", "key heads tiled")
ONE_WORD = ("layout", "not rotated", "positions reset")
SOUND = CELLS["fault: none, King James, 1024"]["writes"]


def writes(fault):
    """What it wrote."""
    return CELLS[f"fault: {fault}, King James, 1024"]["writes"]


def test_four_faults_are_loud_at_once_and_three_after_one_word(page):
    rises = page.torch.rises
    assert all(rises[fault, place][0] > 3.9 for fault in LOUD for place in (128, 1024))
    assert all(writes(fault).startswith(" Rome") for fault in ONE_WORD)
    assert all(rises[fault, 128][0] > rises[fault, 128][1] for fault in ONE_WORD)
    apart = rises["not rotated", 1024][0] - rises["positions reset", 1024][0]
    assert abs(apart) < rises["not rotated", 1024][1]
    assert rises["padding seen", 128][0] > 3 * rises["padding seen", 1024][0]


def test_quiet_faults_are_quiet_and_bfloat16_only_at_first(page):
    rises = page.torch.rises
    assert writes("angles in bfloat16") == SOUND
    assert abs(rises["angles in bfloat16", 128][0]) < 0.005
    for late in ("angles in bfloat16", "base 10000"):
        near, far, end = (rises[late, place] for place in (1024, 4096, 8192))
        assert sum(near) < far[0] - far[1] < sum(far) < end[0] - end[1]
    for fault in ("YaRN not asked for", "norm epsilon"):
        for mean, reach in (rises[fault, 1024], rises[fault, 4096]):
            assert 0 < mean - reach < mean + reach < 0.1
        words, right = writes(fault).split(), SOUND.split()
        assert sum(a == b for a, b in zip(words, right, strict=False)) >= 8
