"""Choose the one thing to do next, as a sentence for the page."""

from __future__ import annotations

from grader.course.spec import Verdict, lab_word
from grader.report.terminal import path_of, readme_of, word
from grader.results import points
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.system.text import one_line

UNFINISHED = (
    Verdict.SLOW,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_STARTED,
    Verdict.NOT_GRADED,
    Verdict.GRADER_FAULT,
)
AGAIN = "No case is wrong; grade again"


def next_step(results: Results) -> str:
    """Return the next step: first what failed, then an open TODO, then what is slow or was not graded."""
    items = list(results.every_item())
    for lab, exercise, item in items:
        if item.verdict is not Verdict.PASS and item.verdict not in UNFINISHED:
            return _mend(lab, exercise, item)
    for lab, exercise, item in items:
        if item.verdict is Verdict.NOT_STARTED:
            return _begin(lab, exercise, item)
    slow = [one for one in items if one[2].verdict is Verdict.SLOW]
    if slow:
        lab, exercise, item = min(slow, key=lambda one: _percent(one[2]))
        timing = item.timing
        percent = f"{timing.percent_of_baseline:.0f} % of {timing.baseline}" if timing else "slow"
        return f"Make {exercise.name} faster at {item.name}, now {percent}: {_hint(lab, item)}"
    verdicts = {item.verdict for _, _, item in items}
    if Verdict.GRADER_FAULT in verdicts:
        repeated = "if that happens again, send results.json to the course staff"
        return f"{AGAIN}, because the grader or the machine failed; {repeated}."
    if any(one.verdict is Verdict.INCONCLUSIVE and one.points < one.max_points for _, _, one in items):
        return f"{AGAIN} while nothing else uses the GPU: a timing was too noisy to decide."
    if results.not_graded_points:
        first = next(item for _, _, item in items if item.verdict is Verdict.NOT_GRADED and item.max_points)
        place = "Grade on a machine with a GPU" if first.needs_gpu else "Have the rest graded"
        still_open = points.score_of(results.items).not_graded
        return f"{place}: {still_open} points are not graded yet ({first.where})."
    return "Nothing is left to fix; make bench shows the speed of your kernels over all sizes."


def _percent(item: ItemResult) -> float:
    return item.timing.percent_of_baseline if item.timing else 0.0


def _mend(lab: LabResult, exercise: ExerciseResult, item: ItemResult) -> str:
    said = f"Begin with {exercise.name} at {item.name}, which is {word(item)}"
    advice = _hint(lab, item)
    if advice:
        return f"{said}: {advice}"
    if item.frames:
        return f"{said}: look at line {item.frames[0].line} of {exercise.file}."
    return f"{said}: {one_line(item.where) or 'see its entry on this page'}."


def _begin(lab: LabResult, exercise: ExerciseResult, item: ItemResult) -> str:
    where = path_of(lab.folder, exercise.file)
    for todo in item.open_todos[:1]:
        return f"Write TODO {todo.number} in {where}, line {todo.line}: {todo.text}."
    return f"Write {exercise.name} in {where} ({lab_word(lab.folder, lab.number)})."


def _hint(lab: LabResult, item: ItemResult) -> str:
    read = f"read hint {item.hint} in {readme_of(lab.folder)}" if item.hint else ""
    parts = "; ".join(filter(None, [item.cause, read]))
    return f"{parts}." if parts else ""
