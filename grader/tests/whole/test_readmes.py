"""What the labs' READMEs say before their tasks."""

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
