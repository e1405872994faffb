"""Compare second, blind gradings with the first ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from grader.classroom.grading.compare import Pair, pairs
from grader.classroom.records import Drift, ExerciseDrift
from grader.classroom.run_folder import RunFolder
from grader.results import reading


def measure(run: RunFolder, regraded: Iterable[tuple[str, str]]) -> Drift:
    """Compare both gradings of each (student, unit) pair, except where one is missing or asked other items.

    The grade of an earlier attempt may count, from before a lab changed.
    """
    both = []
    names = []
    for student, unit in sorted(regraded):
        folder = run.student(student)
        first, second = folder.unit(unit).results, folder.unit(unit, again=True).results
        if first.exists() and second.exists() and _same_items(first, second):
            names.append(f"{student}/{unit}")
            both.append((student, unit, first, second))
    return Drift(regraded=names, exercises=between(both))


def between(both: Iterable[tuple[str, str, Path, Path]]) -> list[ExerciseDrift]:
    """Return the differences by exercise; each input is student, unit, first and second results file."""
    found: dict[tuple[str, str], list[tuple[str, Pair]]] = defaultdict(list)
    for student, unit, *files in both:
        first, second = map(reading.read, files)
        for pair in pairs(first, second):
            found[unit, pair.exercise].append((student, pair))
    return [_exercise(unit, name, compared) for (unit, name), compared in sorted(found.items())]


def _same_items(first: Path, second: Path) -> bool:
    asked = [
        {(lab.folder, item.id) for lab, _, item in reading.read(path).every_item()}
        for path in (first, second)
    ]
    return asked[0] == asked[1]


def _exercise(unit: str, name: str, compared: list[tuple[str, Pair]]) -> ExerciseDrift:
    percents = [pair.percent for _, pair in compared if pair.percent is not None]
    return ExerciseDrift(
        unit=unit,
        exercise=name,
        compared=len({student for student, _ in compared}),
        verdicts_changed=[f"{student}: {pair.changed}" for student, pair in compared if pair.changed],
        most_points=max(pair.points for _, pair in compared),
        most_percent=max(percents) if percents else None,
    )
