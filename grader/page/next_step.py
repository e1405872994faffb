"""The one thing to do next, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from grader.outcome import one_line
from grader.report import path_of, readme_of, word
from grader.results import ExerciseResult, ItemResult, LabResult, Results
from grader.spec import Verdict, lab_word

UNFINISHED = (
    Verdict.SLOW,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_STARTED,
    Verdict.NOT_GRADED,
    Verdict.GRADER_FAULT,
)
AGAIN = "No case is wrong; run it again"


def next_step(results: Results) -> str:
    """What failed comes before what is open, and that before what is slow or was not graded."""
    items = list(_all(results))
    for lab, exercise, item in items:
        if item.verdict is not Verdict.PASS and item.verdict not in UNFINISHED:
            return _mend(lab, exercise, item)
    for lab, exercise, item in items:
        if item.verdict is Verdict.NOT_STARTED:
            return _begin(lab, exercise, item)
    slow = [one for one in items if one[2].verdict is Verdict.SLOW]
    if slow:
        lab, exercise, item = min(slow, key=lambda one: one[2].figures.get("percent", 0.0))
        percent = f"{item.figures['percent']:.0f} % of {item.figures['baseline']}" if item.figures else "slow"
        return f"Make {exercise.name} faster at {item.name}, now {percent}: {_hint(lab, item)}"
    verdicts = {item.verdict for _, _, item in items}
    if Verdict.GRADER_FAULT in verdicts:
        words = "as the grader or the machine failed; if that repeats, send results.json to the course staff"
        return f"{AGAIN}, {words}."
    if any(one.verdict is Verdict.INCONCLUSIVE and one.points < one.max_points for _, _, one in items):
        return f"{AGAIN} while nothing else uses the GPU: a timing was too noisy to decide."
    if results.not_graded_points:
        why = next(
            item.where for _, _, item in items if item.verdict is Verdict.NOT_GRADED and item.max_points
        )
        place = "Grade on a machine with a GPU" if "GPU" in why else "Have the rest graded"
        return f"{place}: {results.not_graded_points:.1f} points are open ({why})."
    return "Nothing is left to mend; make bench shows how your kernels do over all sizes."


def _all(results: Results) -> Iterator[tuple[LabResult, ExerciseResult, ItemResult]]:
    for lab in results.labs:
        for exercise in lab.exercises:
            for item in exercise.items:
                yield lab, exercise, item


def _mend(lab: LabResult, exercise: ExerciseResult, item: ItemResult) -> str:
    said = f"Begin with {exercise.name} at {item.name}, which is {word(item)}"
    advice = _hint(lab, item)
    if advice:
        return f"{said}: {advice}"
    if item.frames:
        return f"{said}: look at line {item.frames[0].get('line', '?')} of {exercise.file}."
    return f"{said}: {one_line(item.where) or 'read what is said there'}."


def _begin(lab: LabResult, exercise: ExerciseResult, item: ItemResult) -> str:
    todos = item.figures.get("todos") or []
    where = path_of(lab.folder, exercise.file)
    if todos:
        return f"Write TODO {todos[0]['number']} in {where}, line {todos[0]['line']}: {todos[0]['text']}."
    return f"Write {exercise.name} in {where} ({lab_word(lab.folder, lab.number)})."


def _hint(lab: LabResult, item: ItemResult) -> str:
    read = f"read hint {item.hint} in {readme_of(lab.folder)}" if item.hint else ""
    parts = "; ".join(filter(None, [item.cause, read]))
    return f"{parts}." if parts else ""
