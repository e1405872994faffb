"""Statistics for the class page; the template only lays them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from grader.classroom.gradebook.book import Book, Cell
from grader.classroom.gradebook.facts import Item
from grader.classroom.records import State, Unit
from grader.course.spec import Verdict
from grader.report.terminal import KINDS

BINS = 10
SHOWN_CASES = 12  # per exercise, those that most students fail
SHOWN_CAUSES = 4  # per case and per exercise
UNJUDGED = (Verdict.NOT_STARTED, Verdict.NOT_GRADED, Verdict.GRADER_FAULT)


@dataclass(frozen=True)
class Spread:
    """Distribution of one lab's points over the class, in percent of the graded points."""

    unit: Unit
    states: list[tuple[str, int]]
    bins: list[int]  # ten percent each; 100 is in the last
    five: tuple[float, float, float, float, float] | None  # minimum, quartiles, maximum
    seconds: float | None  # median duration of a grading

    @property
    def most(self) -> int:
        """Count of the largest bin."""
        return max(self.bins)


@dataclass(frozen=True)
class Failing:
    """A case that some students fail, with the causes."""

    kind: str
    name: str
    failed: int
    judged: int
    causes: list[tuple[str, int]]
    more: int  # causes that are not shown


@dataclass(frozen=True)
class ExerciseView:
    """Results of one exercise over the class."""

    unit: Unit
    name: str
    judged: int  # number of students with a judged submission
    not_started: int
    all_right: int
    causes: list[tuple[str, int]]  # number of students by cause, most common first
    failing: list[Failing]
    more: int  # number of failing cases that are not shown


@dataclass(frozen=True)
class Shape:
    """A timed shape over the class, with the sorted percentages of all students."""

    exercise: str
    name: str
    baseline: str
    percents: list[float]
    passing_at: float | None
    full_at: float | None

    @property
    def quartiles(self) -> tuple[float, float, float, float, float]:
        """Minimum, quartiles and maximum."""
        return five_of(self.percents)


def spreads(book: Book) -> list[Spread]:
    """Return the distribution of points for each lab."""
    return [
        _spread(unit, [cell for row in book.rows for cell in row.cells if cell.unit is unit])
        for unit in book.run.units
    ]


def _spread(unit: Unit, cells: Sequence[Cell]) -> Spread:
    graded = [c for c in cells if c.state == State.GRADED.value and c.most > c.not_graded]
    percents = sorted(100 * c.final / (c.most - c.not_graded) for c in graded)
    bins = [0] * BINS
    for percent in percents:
        bins[min(int(percent * BINS / 100 + 1e-9), BINS - 1)] += 1
    states = Counter(cell.state for cell in cells)
    seconds = [cell.seconds for cell in graded if cell.seconds]
    return Spread(
        unit, sorted(states.items()), bins, five_of(percents) if percents else None,
        median(seconds) if seconds else None,
    )  # fmt: skip


def five_of(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Return minimum, quartiles by linear interpolation, and maximum of sorted values."""

    def at(share: float) -> float:
        place = share * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (values[high] - values[low]) * (place - low)

    return (values[0], at(0.25), at(0.5), at(0.75), values[-1])


def exercises(book: Book) -> list[ExerciseView]:
    """Return each exercise with its failing cases and causes, most failures first."""
    found = []
    for unit in book.run.units:
        cells = [cell for row in book.rows for cell in row.cells if cell.unit is unit]
        for name in dict.fromkeys(e.name for cell in cells for e in cell.exercises):
            of_all = [e for cell in cells for e in cell.exercises if e.name == name]
            found.append(_exercise(unit, name, [e.items for e in of_all]))
    return found


def causes_by_unit(book: Book) -> dict[str, list[tuple[str, int]]]:
    """Return the most frequent causes of each lab over the class: number of students by cause."""
    found = {}
    for unit in book.run.units:
        cells = [cell for row in book.rows for cell in row.cells if cell.unit is unit]
        students = [
            [item for exercise in cell.exercises for item in exercise.items if item.verdict not in UNJUDGED]
            for cell in cells
        ]
        found[unit.name] = _causes([items for items in students if items])
    return found


def _exercise(unit: Unit, name: str, students: Sequence[Sequence[Item]]) -> ExerciseView:
    judged = [[i for i in items if i.verdict not in UNJUDGED] for items in students]
    started = [items for items in judged if items]
    by_case: dict[tuple[str, str], list[Item]] = {}
    for item in (item for items in started for item in items):
        by_case.setdefault((item.kind, item.name), []).append(item)
    failing = [_failing(*case, items) for case, items in by_case.items()]
    failing = sorted((one for one in failing if one.failed), key=lambda one: -one.failed)
    return ExerciseView(
        unit=unit,
        name=name,
        judged=len(started),
        not_started=sum(any(i.verdict is Verdict.NOT_STARTED for i in items) for items in students),
        all_right=sum(all(i.verdict is Verdict.PASS for i in items) for items in started),
        causes=_causes(started),
        failing=failing[:SHOWN_CASES],
        more=max(0, len(failing) - SHOWN_CASES),
    )


def _causes(students: Sequence[Sequence[Item]]) -> list[tuple[str, int]]:
    met = Counter()
    for items in students:
        met.update({item.word for item in items if item.verdict is not Verdict.PASS})
    return sorted(met.items(), key=lambda one: (-one[1], one[0]))[:SHOWN_CAUSES]


def _failing(kind: str, name: str, items: Sequence[Item]) -> Failing:
    words = Counter(item.word for item in items if item.verdict is not Verdict.PASS)
    causes = sorted(words.items(), key=lambda one: (-one[1], one[0]))
    return Failing(
        KINDS[kind], name, sum(words.values()), len(items), causes[:SHOWN_CAUSES], len(causes[SHOWN_CAUSES:])
    )


def shapes(book: Book) -> list[Shape]:
    """Return the percentages of each timed shape, in lab order."""
    timed = [
        (exercise.name, item)
        for unit in book.run.units
        for row in book.rows
        for cell in row.cells
        if cell.unit is unit
        for exercise in cell.exercises
        for item in exercise.items
        if item.percent is not None
    ]
    order = {key: k for k, key in enumerate(dict.fromkeys((name, item.name) for name, item in timed))}
    ordered = sorted(timed, key=lambda one: order[one[0], one[1].name])
    found = []
    for (exercise, name), group in groupby(ordered, key=lambda one: (one[0], one[1].name)):
        items = [item for _, item in group]
        percents = sorted(item.percent for item in items)
        found.append(
            Shape(exercise, name, items[0].baseline, percents, items[0].passing_at, items[0].full_at)
        )
    return found
