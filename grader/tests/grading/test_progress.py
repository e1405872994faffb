"""What a graded run shows while it runs."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from grader.grading.progress import Follower, ProgressPlugin


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_cause_is_shown_on_a_terminal_as_soon_as_it_is_found(is_terminal):
    shown = io.StringIO()
    follower = Follower(Console(file=shown, force_terminal=is_terminal, width=120))
    plugin = ProgressPlugin(follower)
    follower.begin(2)
    plugin.pytest_grader_explaining("softmax_forward")
    plugin.pytest_grader_explained("softmax_forward", ["line 3: `n` is wrong"])
    plugin.pytest_grader_explained("softmax_forward", ["line 3: `n` is wrong", "line 5 as well"])
    plugin.pytest_sessionfinish()
    # Where nobody waits, the report says it once.
    assert shown.getvalue().count("  softmax_forward: line 3: `n` is wrong\n") == is_terminal
    assert ("  softmax_forward: line 5 as well\n" in shown.getvalue()) is is_terminal
    assert "looking for what is wrong in softmax_forward" in shown.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_facts_of_a_first_failure_are_shown_at_once_and_its_cause_later(is_terminal):
    shown = io.StringIO()
    follower = Follower(Console(file=shown, force_terminal=is_terminal, width=120), announces=False)
    plugin = ProgressPlugin(follower)
    follower.begin(3)
    entry = SimpleNamespace(folder=Path("lab2_online_softmax"), number=2)
    asked = SimpleNamespace(
        entry=entry, exercise=SimpleNamespace(name="softmax"), kind="correctness", name="a"
    )
    plugin.pytest_grader_failed(asked, ["WRONG/MISMATCH  rows=3", "    first wrong   out[0, 0]"])
    plugin.pytest_grader_failed(asked, ["WRONG/MISMATCH  rows=4"])
    plugin.pytest_sessionfinish()
    text = shown.getvalue()
    assert (
        "  lab 2  softmax  WRONG/MISMATCH  rows=3\n      first wrong   out[0, 0]\n" in text
    ) is is_terminal
    assert "rows=4" not in text
    assert is_terminal or not text
