"""Triage."""

import re

from posattn.__main__ import parser


def test_every_symptom_leads_somewhere(page):
    table = page.text.partition("| What you see |")[2].partition("\n## ")[0]
    rows = table.strip().splitlines()[2:]
    assert len(rows) > 15
    assert all("{ref}`" in row or "{doc}`" in row for row in rows)


def test_the_command_is_understood(page):
    (command,) = re.findall(r"^\$ python -m posattn (.*)$", page.text, re.M)
    assert parser().parse_args(command.split()).model == "mine.py:model"
