"""The one thing to do next, as a sentence for the page."""

from __future__ import annotations

from grader.course.spec import lab_word
from grader.report.next_step import Kind, Step, choose
from grader.report.terminal import path_of, readme_of, word
from grader.results import points
from grader.results.models import Results
from grader.system.text import one_line

AGAIN = "No case is wrong; grade again"
NOTHING = "Nothing is left to fix; make bench shows the speed of your kernels over all sizes."


def next_step(results: Results) -> str:
    """Return the next step: first what failed, then an open TODO, then what is slow or was not graded."""
    if not any(results.every_item()):
        return NOTHING
    step = choose(results)
    item = step.item
    if step.kind is Kind.MEND:
        return _mend(step)
    if step.kind is Kind.WRITE:
        return _begin(step)
    if step.kind is Kind.FASTER:
        timing = item.timing
        percent = f"{timing.percent_of_baseline:.0f} % of {timing.baseline}" if timing else "slow"
        return f"Make {step.exercise.name} faster at {item.name}, now {percent}: {_hint(step)}"
    if step.kind is Kind.AGAIN:
        repeated = "if that happens again, send results.json to the course staff"
        return f"{AGAIN}, because the grader or the machine failed; {repeated}."
    if step.kind is Kind.QUIET:
        return f"{AGAIN} while nothing else uses the GPU: a timing was too noisy to decide."
    if step.kind is Kind.ELSEWHERE:
        place = "Grade on a machine with a GPU" if item.needs_gpu else "Have the rest graded"
        still_open = points.score_of(results.items).not_graded
        return f"{place}: {still_open} points are not graded yet ({item.where})."
    return NOTHING


def _mend(step: Step) -> str:
    said = f"Begin with {step.exercise.name} at {step.item.name}, which is {word(step.item)}"
    advice = _hint(step)
    if advice:
        return f"{said}: {advice}"
    if step.item.frames:
        first = step.item.frames[0]
        return f"{said}: look at line {first.line} of {first.file(step.exercise.file)}."
    return f"{said}: {one_line(step.item.where) or 'see its entry on this page'}."


def _begin(step: Step) -> str:
    where = path_of(step.lab.folder, step.exercise.file)
    for todo in step.item.open_todos[:1]:
        return f"Write TODO {todo.number} in {where}, line {todo.line}: {todo.text}."
    return f"Write {step.exercise.name} in {where} ({lab_word(step.lab.folder, step.lab.number)})."


def _hint(step: Step) -> str:
    read = f"read hint {step.item.hint} in {readme_of(step.lab.folder)}" if step.item.hint else ""
    parts = "; ".join(filter(None, [step.item.cause, read]))
    return f"{parts}." if parts else ""
