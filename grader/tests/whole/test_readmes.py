"""What the labs' READMEs say before their tasks."""

import re

import pytest

from grader.tests.helpers.course import ROOT

PAGES = sorted((ROOT / "labs").glob("lab*/README.md"))
MOST_WORDS = 600  # before the task, code blocks and tables included


def test_there_are_labs():
    assert len(PAGES) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_task_comes_soon(page):
    before, task, _ = page.read_text("utf-8").partition("\n## The task\n")
    assert task, "no section of this name"
    assert len(before.split()) <= MOST_WORDS


def test_each_statement_on_how_a_submission_runs_names_its_files_and_tests():
    text = (ROOT / ".github" / "SECURITY.md").read_text("utf-8")
    section = text.split("## How a submission is run", 1)[1].split("| level |", 1)[0]
    statements = re.findall(r"^\* (.+?)(?=^\* |^$|\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(statements) > 15
    for statement in statements:
        named = re.findall(r"`([\w/]+\.py)`", statement)
        assert len({name.startswith("tests/") for name in named}) == 2, statement
        assert [name for name in named if not (ROOT / "grader" / name).is_file()] == []
