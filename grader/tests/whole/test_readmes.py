"""What a lab's README says before its task."""

from grader.tests.helpers.course import ROOT

MOST_WORDS = 600  # before the task, code blocks and tables included


def test_the_task_of_the_longest_lab_comes_soon():
    text = (ROOT / "labs" / "lab4_production_slice" / "README.md").read_text("utf-8")
    before, task, _ = text.partition("\n## The task\n")
    assert task, "no section of this name"
    assert len(before.split()) <= MOST_WORDS
