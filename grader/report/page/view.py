"""Prepare the data of a graded run for the page, so that the templates only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.course.spec import Verdict, lab_word
from grader.report.page.failures import Failure, failures_of
from grader.report.terminal import KINDS, alike, kinds_of, not_graded
from grader.results import points
from grader.results.findings import Blocked, OpenTodo
from grader.results.kernel_facts import KernelFacts
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.results.points import Score, Shown

SHAPES = {
    Verdict.PASS: "pass",
    Verdict.SLOW: "slow",
    Verdict.INCONCLUSIVE: "slow",
    Verdict.NOT_STARTED: "todo",
    Verdict.NOT_GRADED: "open",
    Verdict.GRADER_FAULT: "fault",
}
QUIET = (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED)


@dataclass(frozen=True)
class Open:
    """Items that were not graded for the same reason."""

    why: str
    count: int
    points: Shown


@dataclass(frozen=True)
class Section:
    """The items of one kind: correctness, generated code, speed or documents."""

    kind: str
    title: str
    items: list[tuple[ItemResult, Score]]
    tally: list[tuple[Verdict, int]]
    score: Score
    failures: list[list[Failure]]  # each group has one verdict and one cause
    blocked: Blocked | None
    not_graded: list[Open]

    @property
    def kernels(self) -> tuple[KernelFacts, ...]:
        """The facts about the compiled kernels, empty if they are not known."""
        return next((item.kernels for item, _ in self.items if item.kernels), ())

    @property
    def timed(self) -> list[ItemResult]:
        """The items with a measured percentage."""
        return [item for item, _ in self.items if item.timing]


@dataclass(frozen=True)
class Exercise:
    """One graded function and its sections."""

    name: str
    file: str
    score: Score
    sections: list[Section]


@dataclass(frozen=True)
class Lab:
    """One lab as the page shows it."""

    folder: str
    word: str
    title: str
    score: Score
    tally: list[tuple[Verdict, int]]
    blocked: int  # items that are checked only once every case passes
    todos: list[tuple[str, OpenTodo]]  # path of the file, and its open TODO
    exercises: list[Exercise]


def labs_of(results: Results, score: Score) -> list[Lab]:
    """Return every lab of a run, in order, with its part of the run's `score`."""
    failures = failures_of([item for item in results.items if item.verdict not in QUIET])
    scores = points.split(score, [lab.items for lab in results.labs])
    return [_lab(lab, own, failures) for lab, own in zip(results.labs, scores, strict=True)]


def files_of(results: Results) -> list[tuple[str, str]]:
    """Return path and sha256 of each graded file."""
    files = {
        f"{lab.folder}/{exercise.file}": exercise.file_sha256 or "missing"
        for lab in results.labs
        for exercise in lab.exercises
    }
    return list(files.items())


def tally(items: Sequence[ItemResult]) -> list[tuple[Verdict, int]]:
    """Count the items of each verdict, in the order of the enumeration."""
    counted = Counter(item.verdict for item in items)
    return [(verdict, counted[verdict]) for verdict in Verdict if counted[verdict]]


def shape_of(verdict: Verdict) -> str:
    """Return the name of the mark beside a verdict, which distinguishes verdicts without colour."""
    return SHAPES.get(verdict, "fail")


def _lab(lab: LabResult, score: Score, failures: Mapping[str, Failure]) -> Lab:
    todos = {
        (f"{lab.folder}/{exercise.file}", todo.line): todo
        for exercise in lab.exercises
        for item in exercise.items
        for todo in item.open_todos
    }
    looked_at = [item for item in lab.items if not item.blocked]
    scores = points.split(score, [exercise.items for exercise in lab.exercises])
    return Lab(
        folder=lab.folder,
        word=lab_word(lab.folder, lab.number),
        title=lab.title,
        score=score,
        tally=tally(looked_at),
        blocked=len(lab.items) - len(looked_at),
        todos=[(path, todo) for (path, _), todo in todos.items()],
        exercises=[
            _exercise(lab, exercise, own, failures)
            for exercise, own in zip(lab.exercises, scores, strict=True)
        ],
    )


def _exercise(
    lab: LabResult, exercise: ExerciseResult, score: Score, failures: Mapping[str, Failure]
) -> Exercise:
    sections = []
    for kind, items, own in kinds_of(exercise, score):
        bad = [item for item in items if item.verdict not in QUIET]
        wrong = alike([item for item in bad if not item.blocked], lab.folder, exercise.file)
        section = Section(
            kind=kind,
            title=KINDS[kind],
            items=list(zip(items, points.split(own, [[item] for item in items]), strict=True)),
            tally=tally(items),
            score=own,
            failures=[[failures[item.id] for item in group] for group in wrong],
            blocked=next((item.blocked for item in bad if item.blocked), None),
            not_graded=[Open(why, len(same), part) for why, same, part in not_graded(items, own)],
        )
        sections.append(section)
    return Exercise(name=exercise.name, file=exercise.file, score=score, sections=sections)


def spaced(name: str) -> str:
    """Return the name of a case with spaces where a line may break."""
    return name.replace(",", ", ")
