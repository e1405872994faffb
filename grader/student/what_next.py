"""The last lines of a graded run: how far each lab is, what stands, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grader.course import catalog
from grader.course.items import CORRECTNESS
from grader.course.spec import Verdict, lab_word
from grader.report.next_step import Kind, Step, choose
from grader.report.terminal import LABS, path_of, readme_of
from grader.results import points
from grader.results.models import ItemResult, LabResult, Results
from grader.system.files import sha256

CELLS = 3  # of a lab's bar
_LINE = re.compile(r"\bline (\d+)")
RIGHT = (Verdict.PASS, Verdict.NOT_GRADED)


def lines(
    results: Results, kept: Mapping[str, Results], keyword: str, here: Path = catalog.ROOT
) -> list[str]:
    """Return the last lines after a run; `kept` has the last whole run of each lab, by its folder's name.

    `here` is the top of the checkout. A run of another tree than labs/ has no next lab.
    """
    if not any(results.every_item()):
        return []
    step = choose(results)
    ours = results.source == LABS
    bar = [_bar(kept, here)] if ours else []
    if keyword:
        return [*bar, *_selection(results, step, keyword)]
    if step.kind in (Kind.NOTHING, Kind.ELSEWHERE):
        ran = _names([lab for lab in results.labs if lab.was_run])
        idle = [name for name in _names(results.labs) if name not in ran]
        if idle:
            return [*bar, f"No case of {_listed(idle)} was run here: {step.item.where}."]
        stands = _right(results)
        return [*bar, f"{stands} {_next_lab(results, kept, here)}" if ours else stands]
    return [*bar, f"Next: {_words(step, results.source)}"]


def _selection(results: Results, step: Step, keyword: str) -> Iterator[str]:
    if not any(lab.was_run for lab in results.labs):
        yield f"A selection, K={keyword!r}: no case of it was run here: {step.item.where}."
    elif step.kind in (Kind.NOTHING, Kind.ELSEWHERE):
        graded = [item for item in results.items if item.verdict is not Verdict.NOT_GRADED]
        right = "its only item is" if len(graded) == 1 else f"its {len(graded)} items are"
        whole = ", ".join(dict.fromkeys(f"`{_make('grade', lab)}`" for lab in results.labs))
        yield f"A selection, K={keyword!r}: {right} right. Next: {whole} grades the whole lab."
    else:
        yield f"A selection, K={keyword!r}. Next: {_words(step, results.source)}"


def _right(results: Results) -> str:
    names = _names(results.labs)
    words = _listed(names)
    score = points.score_of(results.items)
    here = " that can be graded here" if score.not_graded else ""
    verb = "are" if len(names) > 1 else "is"
    return f"{words[0].upper()}{words[1:]} {verb} right: all {score.graded} points{here}."


def _names(labs: Sequence[LabResult]) -> list[str]:
    """Return the name of each lab once: every part of the capstone has the same."""
    return list(dict.fromkeys(lab_word(lab.folder, lab.number) for lab in labs))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _next_lab(results: Results, kept: Mapping[str, Results], here: Path) -> str:
    """Return what comes after labs that are right: the first one behind them that is not, or before them."""
    labs = catalog.folders(here / LABS)
    last = max((lab.number for lab in results.labs), default=0)
    in_turn = [*(one for one in labs if one[0] > last), *(one for one in labs if one[0] <= last)]
    for number, folder in in_turn:
        if folder not in kept or not _is_right(kept[folder].labs[0]) or _changed(kept[folder], here):
            return f"Next: {readme_of(folder)}, `make watch LAB={number}`"
    return f"Every lab is right. Next: {catalog.CAPSTONE}/README.md"


def _words(step: Step, source: str) -> str:
    """Return the next step with the file and line that it is about, and the command that helps."""
    lab, exercise, item = step.lab, step.exercise, step.item
    path = path_of(lab.folder, exercise.file, source)
    hint = f"`{_make('hint', lab)}` gives a hint"
    if step.kind is Kind.MEND:
        line = line_of(item)
        place = f"{exercise.name} in {path}{f':{line}' if line else ''}"
        shows = lab.folder.startswith("lab") and item.kind == CORRECTNESS
        return f"{place}; {hint}" + (f", `{_make('show', lab)}` shows it at work" if shows else "")
    if step.kind is Kind.WRITE:
        for todo in item.open_todos[:1]:
            path = f"TODO {todo.number} in {path}:{todo.line}"
        return f"{path}, by {readme_of(lab.folder)}; `{_make('watch', lab)}` grades at each save"
    if step.kind is Kind.FASTER:
        timing = item.timing
        now = f", now {timing.percent_of_baseline:.0f} % of {timing.baseline}" if timing else ""
        return f"make {exercise.name} faster at {item.name}{now}; {hint}"
    if step.kind is Kind.QUIET:
        return "grade again while nothing else uses the GPU: a timing was too noisy to decide"
    return "grade again: the grader or the machine failed, and took no points off"


def line_of(item: ItemResult) -> int | None:
    """Return the line of the student's file that a failure's cause names, or where it failed."""
    named = _LINE.search(item.cause) or _LINE.search(item.where)
    return int(named[1]) if named else item.frames[0].line if item.frames else None


def _make(command: str, lab: LabResult) -> str:
    return f"make {command} LAB={lab.number if lab.folder.startswith('lab') else 'capstone'}"


def _bar(kept: Mapping[str, Results], here: Path) -> str:
    """Return how far each lab is: right, a bar of the points that could be graded, or not begun."""
    labs = catalog.folders(here / LABS)
    return "  ".join(f"lab {number} {_state(kept.get(folder), here)}" for number, folder in labs)


def _state(results: Results | None, here: Path) -> str:
    if results is None or not results.labs[0].is_begun:
        return "-"
    since = " (changed since)" if _changed(results, here) else ""
    (lab,) = results.labs
    if _is_right(lab):
        return f"✓{since}"
    share = lab.points / lab.graded_points if lab.graded_points else 0.0
    full = min(int(CELLS * share), CELLS - 1)
    return "▓" * full + "░" * (CELLS - full) + since


def _is_right(lab: LabResult) -> bool:
    return lab.was_run and lab.is_begun and all(item.verdict in RIGHT for item in lab.items)


def _changed(results: Results, here: Path) -> bool:
    """Return whether a file of the lab has changed since the run."""
    return any(
        sha256(here / path_of(lab.folder, exercise.file)) != exercise.file_sha256
        for lab in results.labs
        for exercise in lab.exercises
    )
