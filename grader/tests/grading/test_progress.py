"""What a graded run shows while it runs."""

import io

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
