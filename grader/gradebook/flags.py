"""What stands beside a grade: notes, and things that a person should look at before it is published."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grader.batch.models import Intake, State, TaskRecord
from grader.gradebook.late import LatePolicy
from grader.results import Results
from grader.spec import Verdict

SUSPECT = (Verdict.POLICY, Verdict.IMPOSSIBLE)
ENOUGH = "L2"  # assurance below it is noted
SHOWN = 3


def of_state(task: TaskRecord) -> tuple[str, ...]:
    """What to look at in a unit without points of its own."""
    if task.state in (State.TIMEOUT, State.REFUSED):
        return (f"{task.state.value}: {task.what}" if task.what else task.state.value,)
    return ()


def of_results(results: Results) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes, and what to look at."""
    items = [item for lab in results.labs for exercise in lab.exercises for item in exercise.items]
    notes, looks = [], []
    level = results.assurance.partition(";")[0]
    if level < ENOUGH:
        notes.append(f"assurance {level}")
    for verdict in (Verdict.GRADER_FAULT, Verdict.INCONCLUSIVE):
        found = sum(item.verdict is verdict for item in items)
        if found:
            notes.append(f"{found} {verdict.value.replace('_', ' ')}")
    if any(item.figures.get("timing_mismatch") for item in items):
        looks.append("timing mismatch")
    for verdict in SUSPECT:
        names = dict.fromkeys(item.id.partition("/")[0] for item in items if item.verdict is verdict)
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            looks.append(f"{verdict.value}: {', '.join([*names][:SHOWN])}{more}")
    return tuple(notes), tuple(looks)


def of_student(
    intake: Intake | None,
    unknown: Collection[str],
    gone: Collection[str],
    policy: LatePolicy | None,
    moment,
    days: Sequence[int],
) -> tuple[str, ...]:
    """What to look at in how and when it was handed in."""
    if intake is None:
        return ()
    looks = []
    if intake.problem:
        looks.append(f"hand-in: {intake.problem}")
    if intake.id in unknown and not intake.on_roster:
        looks.append("not on the roster")
    if intake.id in gone:
        looks.append("its submission is gone; these grades are of an earlier run")
    if any(one.unit for one in intake.left_out):
        looks.append("a collected file was left out")
    if policy and policy.due and intake.files and moment is None:
        looks.append("no time of hand-in: counted as in time")
    if policy and policy.due and intake.marked_late and not any(days):
        looks.append("marked late by the platform, in time by the policy")
    return tuple(looks)
