"""What grading a class cost: time a submission, how much of it was grading, and whether two runs agree.

Read off finished run folders, each made by one uninterrupted command; a resumed one is refused, because the
time between two commands is nobody's cost.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from grader.batch import drift, models
from grader.batch.layout import RunFolder, UnitFolder
from grader.batch.models import ExerciseDrift, RunRecord, SelfTest, State, TaskRecord
from grader.results import Machine, Results
from grader.timing import median

IDLE_S = 90.0  # with no grading at work, within a run: more than what starting the engine ever takes


class CostError(Exception):
    """A run folder whose cost cannot be said, in words."""


class UnitCost(models.Model):
    """Gradings of one unit."""

    gradings: int
    median_s: float
    least_s: float
    most_s: float


class RunCost(models.Model):
    """One run. Seconds on the clock, from taking in the submissions to the last receipt."""

    date: str
    tier: str
    keyword: str | None
    students: int
    gradings: int  # those graded a second time, blind, counted in
    states: dict[str, int]
    lost: int  # gradings that the machine lost, and that were tried again
    seconds: float
    self_test_s: float  # of `seconds`, until the known files had their verdicts, taking in counted in
    grading_s: float  # of all gradings together, without the self-test's
    accelerators: int  # GPUs that were graded on; 0 on the CPU tier
    units: dict[str, UnitCost]
    machines: list[Machine]

    @property
    def at_once(self) -> float:
        """How many gradings ran at once, on average over the time after the self-test."""
        return self.grading_s / (self.seconds - self.self_test_s)

    @property
    def rate(self) -> float:
        """Gradings a minute, after the self-test."""
        return 60 * self.gradings / (self.seconds - self.self_test_s)


class CostRecord(models.Model):
    """A record of `python -m grader class-cost`."""

    schema_version: int = 1
    runs: list[RunCost]
    agreement: list[ExerciseDrift]  # between the first run and later ones of the same files


def measure(roots: Sequence[Path]) -> CostRecord:
    """The cost of each run folder, and how far the results of the same files lie apart; CostError."""
    folders = [RunFolder(root) for root in roots]
    return CostRecord(runs=[_run(folder) for folder in folders], agreement=_agreement(folders))


def cost_table(path: Path) -> str:
    """What stands in a README for the record at `path`."""
    return render(models.read(path, CostRecord))


def render(record: CostRecord) -> str:
    """What classes cost, a row a run, and how far the gradings of the same files lie apart."""
    lines = [
        "| submissions | tier | gradings | at once | minutes | gradings a minute | s a submission "
        "| s a grading: median, least, most |",
        "|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    for run in record.runs:
        units = "; ".join(
            f"{unit.split('_')[0]} {one.median_s:.1f}, {one.least_s:.1f}, {one.most_s:.1f}"
            for unit, one in run.units.items()
        )
        where = f"{run.accelerators} x GPU" if run.accelerators else run.tier
        lines.append(
            f"| {run.students} | {where} | {run.gradings} | {run.at_once:.2f} | {run.seconds / 60:.1f} "
            f"| {run.rate:.2f} | {run.seconds / run.students:.1f} | {units} |"
        )
    if record.agreement:
        lines += ["", "| graded in several of these runs | students | verdicts changed | points | percent |"]
        lines += ["|---|---:|---:|---:|---:|"]
        for one in record.agreement:
            percent = "-" if one.most_percent is None else f"{one.most_percent:.2f}"
            cells = f"{one.compared} | {len(one.verdicts_changed)} | {one.most_points:.2f} | {percent}"
            lines.append(f"| {one.exercise} | {cells} |")
    run = record.runs[-1]
    words = dict.fromkeys(f"{one.words}, {one.platform}, Python {one.python}" for one in run.machines)
    return "\n".join([*lines, "", f"{'; '.join(words)}; {run.date[:10]}.", ""])


def _run(folder: RunFolder) -> RunCost:
    try:
        run = models.read(folder.run, RunRecord)
    except (OSError, ValueError) as error:
        raise CostError(f"{folder.root}: {error}") from None
    if run.finished is None:
        raise CostError(f"{folder.root}: the run has not come to its end")
    began, finished = _date(run.began), _date(run.finished)
    by_unit: dict[str, list[float]] = defaultdict(list)
    states: Counter[str] = Counter()
    spans, accelerators, lost = [], set(), 0
    for place, record in _tasks(folder, run):
        states[record.state.value] += 1
        lost += len(record.lost)
        if not place.results.exists():
            continue
        end = _date(Results.model_validate_json(place.results.read_bytes()).date)
        spans.append((end - record.seconds, end))
        by_unit[record.unit].append(record.seconds)
        accelerators |= {record.accelerator} - {""}
    if not spans:
        raise CostError(f"{folder.root}: nothing was graded in it")
    self_test_s = 0.0
    if folder.selftest.exists():
        self_test_s = max(0.0, _date(models.read(folder.selftest, SelfTest).date) - began)
    idle = _idle([(began, began + self_test_s), *spans, (finished, finished)])
    if idle > IDLE_S:
        several = "by several commands, or waiting for a GPU, so its time is not its cost"
        raise CostError(f"{folder.root}: nothing was graded for {idle:.0f} s in the middle: {several}")
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
    """Every grading of a run that has a record, second ones too."""
    for student in run.students:
        for unit in run.units:
            for again in (False, True):
                place = folder.student(student).unit(unit.name, again)
                if place.task.exists():
                    record = models.read(place.task, TaskRecord)
                    if not again or record.state is State.GRADED:
                        yield place, record


def _idle(spans: list[tuple[float, float]]) -> float:
    """The longest time, in seconds, between the first and the last span that none covers."""
    spans = sorted(spans)
    reached = accumulate((end for _, end in spans), max)
    return max((start - end for end, (start, _) in zip(reached, spans[1:], strict=False)), default=0.0)


def _agreement(folders: Sequence[RunFolder]) -> list[ExerciseDrift]:
    """Each unit of a student that the first run and a later one graded from the same files."""
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
    """The hashes of the files that were graded, by exercise."""
    graded = Results.model_validate_json(results.read_bytes())
    return {one.name: one.file_sha256 for lab in graded.labs for one in lab.exercises}


def _date(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
