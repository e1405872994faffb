"""The static screen: POLICY for a submission that uses what a lab file may not use. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from grader.course.parts import Part
from grader.course.spec import Exercise, Lab, Verdict
from grader.course.submission import Submission
from grader.results.outcome import Outcome
from grader.screen import includes, policy
from grader.system.text import one_line


def screen(
    submission: Submission, lab: Lab, exercise: Exercise, parts: Sequence[Part] = ()
) -> Outcome | None:
    """POLICY with the first line that is not permitted, or None; `submission` has passed the file check.

    `parts` are the student's other files that it imports.
    """
    if not exercise.native:
        return policy.screen(submission, lab, exercise, parts)
    given = [*lab.headers, *(f"../{name}" for name in lab.headers)]
    for line, words in includes.unwanted(submission.text, given):
        return Outcome(Verdict.POLICY, where=f"line {line}: {one_line(words)}")
    return None
