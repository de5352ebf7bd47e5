"""Triage."""

import re

from posattn.__main__ import parser


def test_every_symptom_leads_somewhere(page):
    table = page.text.partition("| What you see |")[2].partition("\n## ")[0]
    rows = table.strip().splitlines()[2:]
    assert len(rows) > 15
    assert all("{ref}`" in row or "{doc}`" in row for row in rows)


def test_the_commands_are_understood(page):
    commands = re.findall(r"^\$ python -m posattn (.*)$", page.text, re.M)
    *compared, diagnosed = (parser().parse_args(command.split()) for command in commands)
    assert (compared[0].a, compared[0].b) == ("folder", "model.gguf")
    assert diagnosed.model == "mine.py:model"
