"""What the page shows of a graded run, sorted and counted: the templates only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grader.page.failures import Failure, failures_of
from grader.report import KINDS, WAITS, alike
from grader.results import ExerciseResult, ItemResult, LabResult, Results
from grader.spec import Verdict, lab_word

SHAPES = {
    Verdict.PASS: "pass",
    Verdict.SLOW: "slow",
    Verdict.INCONCLUSIVE: "slow",
    Verdict.NOT_STARTED: "todo",
    Verdict.NOT_GRADED: "open",
    Verdict.GRADER_FAULT: "fault",
}
QUIET = (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED)
UNGRADED = (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)


@dataclass(frozen=True)
class Open:
    """Items that were not graded, for one reason."""

    why: str
    count: int
    points: float


@dataclass(frozen=True)
class Section:
    """The items of one kind: correctness, generated code, speed or documents."""

    kind: str
    title: str
    items: list[ItemResult]
    tally: list[tuple[Verdict, int]]
    points: float
    graded_points: float
    failures: list[list[Failure]]  # each group has one verdict and one cause
    waits: str
    not_graded: list[Open]

    @property
    def kernels(self) -> list[dict]:
        """What the compiler made of the launches, where that is known."""
        return next((item.figures["kernels"] for item in self.items if item.figures.get("kernels")), [])

    @property
    def timed(self) -> list[ItemResult]:
        """The items with a measured percentage."""
        return [item for item in self.items if "percent" in item.figures]


@dataclass(frozen=True)
class Exercise:
    """One graded function and its sections."""

    name: str
    file: str
    points: float
    max_points: float
    open_points: float
    sections: list[Section]


@dataclass(frozen=True)
class Lab:
    """One lab as the page shows it."""

    folder: str
    word: str
    result: LabResult
    tally: list[tuple[Verdict, int]]
    waiting: int  # items that are looked at once every case is right
    todos: list[tuple[str, dict]]  # path of the file, and its open TODO
    exercises: list[Exercise]


def labs_of(results: Results) -> list[Lab]:
    """Every lab of a run, in its order."""
    items = [item for lab in results.labs for exercise in lab.exercises for item in exercise.items]
    failures = failures_of([item for item in items if item.verdict not in QUIET])
    return [_lab(lab, failures) for lab in results.labs]


def files_of(results: Results) -> list[tuple[str, str]]:
    """Path and sha256 of each graded file."""
    files = {
        f"{lab.folder}/{exercise.file}": exercise.file_sha256 or "missing"
        for lab in results.labs
        for exercise in lab.exercises
    }
    return list(files.items())


def tally(items: Sequence[ItemResult]) -> list[tuple[Verdict, int]]:
    """How many items have each verdict, in the order of their meanings."""
    counted = Counter(item.verdict for item in items)
    return [(verdict, counted[verdict]) for verdict in Verdict if counted[verdict]]


def shape_of(verdict: Verdict) -> str:
    """The mark beside a verdict's word, which tells verdicts apart without colour."""
    return SHAPES.get(verdict, "fail")


def _lab(lab: LabResult, failures: dict[str, Failure]) -> Lab:
    todos = {
        (f"{lab.folder}/{exercise.file}", todo.get("line")): todo
        for exercise in lab.exercises
        for item in exercise.items
        for todo in item.figures.get("todos", ())
    }
    items = [item for exercise in lab.exercises for item in exercise.items]
    looked_at = [item for item in items if not item.where.startswith(WAITS)]
    return Lab(
        folder=lab.folder,
        word=lab_word(lab.folder, lab.number),
        result=lab,
        tally=tally(looked_at),
        waiting=len(items) - len(looked_at),
        todos=[(path, todo) for (path, _), todo in todos.items()],
        exercises=[_exercise(lab, exercise, failures) for exercise in lab.exercises],
    )


def _exercise(lab: LabResult, exercise: ExerciseResult, failures: dict[str, Failure]) -> Exercise:
    kinds = [kind for kind in KINDS if any(item.kind == kind for item in exercise.items)]
    return Exercise(
        name=exercise.name,
        file=exercise.file,
        points=sum(item.points for item in exercise.items),
        max_points=sum(item.max_points for item in exercise.items),
        open_points=sum(item.max_points for item in exercise.items if item.verdict in UNGRADED),
        sections=[_section(lab, exercise, kind, failures) for kind in kinds],
    )


def _section(lab: LabResult, exercise: ExerciseResult, kind: str, failures: dict[str, Failure]) -> Section:
    items = [item for item in exercise.items if item.kind == kind]
    bad = [item for item in items if item.verdict not in QUIET]
    waits = next((item.where for item in bad if item.where.startswith(WAITS)), "")
    bad = [item for item in bad if not item.where.startswith(WAITS)]
    graded = [item for item in items if item.verdict not in UNGRADED]
    return Section(
        kind=kind,
        title=KINDS[kind],
        items=items,
        tally=tally(items),
        points=sum(item.points for item in graded),
        graded_points=sum(item.max_points for item in graded),
        failures=[[failures[item.id] for item in group] for group in alike(bad, lab.folder, exercise.file)],
        waits=waits,
        not_graded=_not_graded(items),
    )


def _not_graded(items: Sequence[ItemResult]) -> list[Open]:
    found = [item for item in items if item.verdict is Verdict.NOT_GRADED]
    reasons = dict.fromkeys(item.where for item in found)
    same = {why: [item for item in found if item.where == why] for why in reasons}
    return [Open(why, len(group), sum(i.max_points for i in group)) for why, group in same.items()]


def spaced(name: str) -> str:
    """The name of a case with places where a line may break."""
    return name.replace(",", ", ")
