"""Notes on a grade, and flags that a person should review before it is published."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grader.classroom.gradebook.late import LatePolicy
from grader.classroom.intake.select import NOT_EXPECTED
from grader.classroom.records import Intake, LeftOut, State, TaskRecord
from grader.course.spec import Verdict
from grader.results.models import Results

SUSPECT = (Verdict.POLICY, Verdict.IMPOSSIBLE)
ENOUGH = 2  # lower assurance levels get a note
SHOWN = 3


def of_state(task: TaskRecord) -> tuple[str, ...]:
    """Return the flags of a unit without a results file."""
    if task.state in (State.TIMEOUT, State.REFUSED, State.NOT_COLLECTED):
        return (f"{task.state.value}: {task.what}" if task.what else task.state.value,)
    return ()


def of_results(results: Results) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the notes and the flags of a results file."""
    items, level = results.items, results.assurance_level
    notes, looks = [], []
    if level is not None and level < ENOUGH:
        notes.append(f"assurance L{level}")
    for verdict in (Verdict.GRADER_FAULT, Verdict.INCONCLUSIVE):
        found = sum(item.verdict is verdict and not item.undecided for item in items)
        if found:
            notes.append(f"{found} {verdict.value.replace('_', ' ')}")
    for verdict in SUSPECT:
        names = [
            exercise.name
            for lab in results.labs
            for exercise in lab.exercises
            if any(item.verdict is verdict for item in exercise.items)
        ]
        if names:
            looks.append(f"{verdict.value}: {_some(names)}")
    undecided = [f"{one.name} at {item.name}" for _, one, item in results.every_item() if item.undecided]
    if undecided:
        looks.append(f"decide the points of an INCONCLUSIVE timing: {_some(undecided)}")
    return tuple(notes), tuple(looks)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _left_out(one: LeftOut) -> str:
    return one.found if one.why == NOT_EXPECTED else f"{one.found} ({one.why})"


def of_student(
    intake: Intake | None,
    unknown: Collection[str],
    gone: Collection[str],
    policy: LatePolicy | None,
    moment,
    days: Sequence[int],
) -> tuple[str, ...]:
    """Return the flags of a submission: how and when it was handed in."""
    if intake is None:
        return ()
    looks = []
    if intake.problem:
        looks.append(f"hand-in: {intake.problem}")
    if intake.id in unknown and not intake.on_roster:
        looks.append("not on the roster")
    if intake.id in gone:
        looks.append("the submission is missing now; these grades are from an earlier run")
    if intake.close_match:
        looks.append(f"handed in as {', '.join(intake.sources)}, which is not spelled like the roster's id")
    if intake.doubtful:
        looks.append(f"perhaps theirs, and not collected: {', '.join(intake.doubtful)}")
    left = [_left_out(one) for one in intake.left_out if one.look or one.unit]
    if left:
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        looks.append(f"handed in, not graded: {', '.join(left[:SHOWN])}{more}")
    if policy and policy.due and intake.files and moment is None:
        looks.append("no time of hand-in: counted as in time")
    if policy and policy.due and intake.marked_late and not any(days):
        looks.append("marked late by the platform, in time by the policy")
    return tuple(looks)
