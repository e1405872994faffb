"""What the page shows of a graded run, sorted and counted: the templates only lay it out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from grader.error_map import ErrorMap
from grader.report import FAULT_ADVICE, KINDS, SHOWN_FRAMES, SHOWN_LINES, WAITS, alike, label_of
from grader.results import ExerciseResult, ItemResult, LabResult, Results
from grader.spec import Verdict, lab_word

MOST_MAPS = 120  # pictures on one page: a run in which everything is wrong must not weigh megabytes
MOST_LINE = 400  # characters of a line that a student's code wrote
MOST_PRINTED = 40  # lines of it
SHAPES = {
    Verdict.PASS: "pass",
    Verdict.SLOW: "slow",
    Verdict.INCONCLUSIVE: "slow",
    Verdict.NOT_STARTED: "todo",
    Verdict.NOT_GRADED: "open",
    Verdict.GRADER_FAULT: "fault",
}
UNGRADED = (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)
_VALUES = re.compile(r"(.*?) {3}yours (.*?) {3}expected (.*)")


@dataclass(frozen=True)
class Failure:
    """One item that failed, with its place and values apart where it has any."""

    item: ItemResult
    label: str
    place: str
    yours: str
    expected: str
    text: list[str]  # further lines of an error
    frames: list[dict]
    printed: list[str]
    advice: tuple[str, ...]
    error_map: ErrorMap | None
    map_left_out: bool


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
    todos: list[tuple[str, dict]]  # path of the file, and its open TODO
    exercises: list[Exercise]


def labs_of(results: Results) -> list[Lab]:
    """Every lab of a run, in its order."""
    mapped = (
        item.id
        for lab in results.labs
        for exercise in lab.exercises
        for item in exercise.items
        if item.error_map
    )
    drawn = set(islice(mapped, MOST_MAPS))
    return [_lab(lab, drawn) for lab in results.labs]


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


def _lab(lab: LabResult, drawn: set[str]) -> Lab:
    todos = {
        (f"{lab.folder}/{exercise.file}", todo.get("line")): todo
        for exercise in lab.exercises
        for item in exercise.items
        for todo in item.figures.get("todos", ())
    }
    return Lab(
        folder=lab.folder,
        word=lab_word(lab.folder, lab.number),
        result=lab,
        tally=tally([item for exercise in lab.exercises for item in exercise.items]),
        todos=[(path, todo) for (path, _), todo in todos.items()],
        exercises=[_exercise(lab, exercise, drawn) for exercise in lab.exercises],
    )


def _exercise(lab: LabResult, exercise: ExerciseResult, drawn: set[str]) -> Exercise:
    kinds = [kind for kind in KINDS if any(item.kind == kind for item in exercise.items)]
    return Exercise(
        name=exercise.name,
        file=exercise.file,
        points=sum(item.points for item in exercise.items),
        max_points=sum(item.max_points for item in exercise.items),
        open_points=sum(item.max_points for item in exercise.items if item.verdict in UNGRADED),
        sections=[_section(lab, exercise, kind, drawn) for kind in kinds],
    )


def _section(lab: LabResult, exercise: ExerciseResult, kind: str, drawn: set[str]) -> Section:
    items = [item for item in exercise.items if item.kind == kind]
    quiet = (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED)
    bad = [item for item in items if item.verdict not in quiet]
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
        failures=[
            [_failure(item, drawn) for item in group]
            for group in alike(bad, lab.folder, f"{lab.folder}/{exercise.file}")
        ],
        waits=waits,
        not_graded=_not_graded(items),
    )


def _not_graded(items: Sequence[ItemResult]) -> list[Open]:
    found = [item for item in items if item.verdict is Verdict.NOT_GRADED]
    reasons = dict.fromkeys(item.where for item in found)
    same = {why: [item for item in found if item.where == why] for why in reasons}
    return [Open(why, len(group), sum(i.max_points for i in group)) for why, group in same.items()]


def _failure(item: ItemResult, drawn: set[str]) -> Failure:
    first, *rest = item.where.splitlines() or [""]
    values = _VALUES.fullmatch(first)
    return Failure(
        item=item,
        label=label_of(item),
        place=short(values[1] if values else first),
        yours=values[2] if values else "",
        expected=values[3] if values else "",
        # Triton quotes the kernel first and gives its reason last.
        text=[short(line) for line in rest[-SHOWN_LINES:]],
        frames=item.frames[:SHOWN_FRAMES],
        printed=[short(line) for line in item.printed.strip().splitlines()[:MOST_PRINTED]],
        advice=FAULT_ADVICE if item.verdict is Verdict.GRADER_FAULT else (),
        error_map=item.error_map if item.id in drawn else None,
        map_left_out=item.error_map is not None and item.id not in drawn,
    )


def short(line: str) -> str:
    """A line cut where no reader would follow it."""
    return line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]} ... {len(line) - MOST_LINE:,} more"
