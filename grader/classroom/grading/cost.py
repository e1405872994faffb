"""Measure what grading a class costs: time per submission and grading, and agreement between runs.

The input is finished run folders, each made by one uninterrupted command. A resumed run is refused, because
the time between two commands is not a cost of grading.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import ClassVar

from grader.classroom import records
from grader.classroom.grading import agreement as drift
from grader.classroom.records import ExerciseDrift, RunRecord, SelfTest, State, TaskRecord
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.report import markdown
from grader.results import reading
from grader.results.machine import Machine
from grader.results.records import Model, Record

IDLE_S = 90.0  # longest time without a grading within a run; starting the engine takes less


class CostError(Exception):
    """The cost of a run folder cannot be determined; the message is the reason."""


class UnitCost(Model):
    """Number and duration of the gradings of one unit."""

    gradings: int
    median_s: float
    least_s: float
    most_s: float


class RunCost(Model):
    """Cost of one run; `seconds` is wall-clock time from collecting the submissions to the last receipt."""

    date: str
    tier: str
    keyword: str | None
    students: int
    gradings: int  # including second, blind gradings
    states: dict[str, int]
    lost: int  # gradings that failed because of the machine and were tried again
    seconds: float
    self_test_s: float  # part of `seconds`: collecting the submissions and the self-test
    grading_s: float  # sum over all gradings, without the self-test's
    accelerators: int  # number of GPUs used; 0 on the CPU tier
    units: dict[str, UnitCost]
    machines: list[Machine]

    @property
    def at_once(self) -> float:
        """Average number of gradings that ran at once, after the self-test."""
        return self.grading_s / (self.seconds - self.self_test_s)

    @property
    def rate(self) -> float:
        """Gradings per minute, after the self-test."""
        return 60 * self.gradings / (self.seconds - self.self_test_s)


class CostRecord(Record):
    """A record of `python -m grader class-cost`."""

    made_by: ClassVar[str] = "python -m grader class-cost"

    runs: list[RunCost]
    agreement: list[ExerciseDrift]  # differences between the first run and later runs of the same files


def measure(roots: Sequence[Path]) -> CostRecord:
    """Measure each run folder and compare results of the same files. Raises CostError."""
    folders = [RunFolder(root) for root in roots]
    return CostRecord(runs=[_run(folder) for folder in folders], agreement=_agreement(folders))


def cost_table(path: Path) -> str:
    """Return the Markdown tables for the record at `path`."""
    return render(CostRecord.read(path))


def render(record: CostRecord) -> str:
    """Return Markdown: a table with one row per run, and one of differences between runs."""
    heads = (
        "submissions", "tier", "gradings", "at once", "minutes", "gradings per minute", "s per submission",
        "s per grading: median, min, max",
    )  # fmt: skip
    parts = [markdown.table(heads, map(_run_row, record.runs), "rlrrrrrl")]
    if record.agreement:
        heads = ("graded in several of these runs", "students", "verdicts changed", "points", "percent")
        parts.append(markdown.table(heads, map(_agreement_row, record.agreement), "lr"))
    run = record.runs[-1]
    words = dict.fromkeys(f"{one.words}, {one.platform}, Python {one.python}" for one in run.machines)
    return markdown.page([*parts, f"{'; '.join(words)}; {run.date[:10]}."])


def _run_row(run: RunCost) -> tuple:
    where = f"{run.accelerators} x GPU" if run.accelerators else run.tier
    times = (f"{run.at_once:.2f}", f"{run.seconds / 60:.1f}", f"{run.rate:.2f}")
    units = "; ".join(
        f"{unit.split('_')[0]} {one.median_s:.1f}, {one.least_s:.1f}, {one.most_s:.1f}"
        for unit, one in run.units.items()
    )
    return (run.students, where, run.gradings, *times, f"{run.seconds / run.students:.1f}", units)


def _agreement_row(one: ExerciseDrift) -> tuple:
    percent = "-" if one.most_percent is None else f"{one.most_percent:.2f}"
    return (one.exercise, one.compared, len(one.verdicts_changed), f"{one.most_points:.2f}", percent)


def _run(folder: RunFolder) -> RunCost:
    try:
        run = records.read(folder.run, RunRecord)
    except (OSError, ValueError) as error:
        raise CostError(f"{folder.root}: {error}") from None
    if run.finished is None:
        raise CostError(f"{folder.root}: the run is not finished")
    began, finished = _date(run.began), _date(run.finished)
    by_unit: dict[str, list[float]] = defaultdict(list)
    states: Counter[str] = Counter()
    spans, accelerators, lost = [], set(), 0
    for place, record in _tasks(folder, run):
        states[record.state.value] += 1
        lost += len(record.lost)
        if not place.results.exists():
            continue
        end = _date(reading.read(place.results).date)
        spans.append((end - record.seconds, end))
        by_unit[record.unit].append(record.seconds)
        accelerators |= {record.accelerator} - {""}
    if not spans:
        raise CostError(f"{folder.root}: nothing was graded in this run")
    self_test_s = 0.0
    if folder.selftest.exists():
        self_test_s = max(0.0, _date(records.read(folder.selftest, SelfTest).date) - began)
    idle = _idle([(began, began + self_test_s), *spans, (finished, finished)])
    if idle > IDLE_S:
        reason = "the run was resumed or waited for a GPU, so its duration is not its cost"
        raise CostError(f"{folder.root}: nothing was graded for {idle:.0f} s in the middle: {reason}")
    return RunCost(
        date=run.began,
        tier=run.tier,
        keyword=run.keyword,
        students=len(run.students),
        gradings=len(spans),
        states=dict(sorted(states.items())),
        lost=lost,
        seconds=finished - began,
        self_test_s=self_test_s,
        grading_s=round(sum(map(sum, by_unit.values())), 1),
        accelerators=len(accelerators),
        units={
            unit: UnitCost(gradings=len(every), median_s=median(every), least_s=min(every), most_s=max(every))
            for unit, every in sorted(by_unit.items())
        },
        machines=run.machines,
    )


def _tasks(folder: RunFolder, run: RunRecord) -> Iterator[tuple[UnitFolder, TaskRecord]]:
    """Yield every grading of a run that has a record, including second, blind gradings."""
    for student in run.students:
        for unit in run.units:
            for again in (False, True):
                place = folder.student(student).unit(unit.name, again)
                if place.task.exists():
                    record = records.read(place.task, TaskRecord)
                    if not again or record.state is State.GRADED:
                        yield place, record


def _idle(spans: list[tuple[float, float]]) -> float:
    """Return the longest gap in seconds between consecutive spans."""
    spans = sorted(spans)
    reached = accumulate((end for _, end in spans), max)
    return max((start - end for end, (start, _) in zip(reached, spans[1:], strict=False)), default=0.0)


def _agreement(folders: Sequence[RunFolder]) -> list[ExerciseDrift]:
    """Compare units that the first run and a later run graded from the same files."""
    first, *others = folders
    found = []
    for other in others:
        for path in sorted(first.students.glob("*/*/results.json")):
            twin = other.root / path.relative_to(first.root)
            if twin.exists() and _files(path) == _files(twin):
                found.append((path.parts[-3], path.parts[-2], path, twin))
    try:
        return drift.between(found)
    except ValueError as error:
        raise CostError(str(error)) from None


def _files(results: Path) -> dict[str, str | None]:
    """Return the hash of the graded file by exercise."""
    graded = reading.read(results)
    return {one.name: one.file_sha256 for lab in graded.labs for one in lab.exercises}


def _date(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
