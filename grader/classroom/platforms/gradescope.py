"""Convert results.json for Gradescope: one test per exercise and kind of item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel

from grader.course.items import SPEED
from grader.course.spec import Verdict
from grader.report.terminal import KINDS, alike, details_of, kinds_of, word
from grader.results import points, scoring
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.results.points import Score
from grader.system.text import printable

UNJUDGED = (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)
MOST_OUTPUT = 20_000  # characters of one test: Gradescope shows all of it, collapsed


class TestDetails(BaseModel):
    """Facts of a test that Gradescope has no field for."""

    not_graded_points: float
    verdicts: dict[str, int]


class Test(BaseModel):
    """One test case."""

    name: str
    number: str
    score: float
    max_score: float
    status: Literal["passed", "failed"] | None = None
    output: str = ""
    output_format: str = "text"
    tags: list[str] = []
    visibility: str = "visible"
    extra_data: TestDetails | None = None


class Column(BaseModel):
    """One column of the leaderboard."""

    name: str
    value: float
    order: Literal["asc", "desc"] = "desc"


class RunDetails(BaseModel):
    """Facts of a run that Gradescope has no field for."""

    grader: str
    schema_version: int
    date: str
    tier: str
    seed: int
    assurance: str
    machine: str
    graded_points: float
    not_graded_points: float
    max_points: float
    files: dict[str, str]


class GradescopeResults(BaseModel):
    """The object in /autograder/results/results.json."""

    score: float
    execution_time: int | None = None
    output: str
    output_format: str = "text"
    test_output_format: str = "text"
    test_name_format: str = "text"
    visibility: str = "visible"
    stdout_visibility: str = "hidden"
    tests: list[Test]
    leaderboard: list[Column] | None = None
    extra_data: RunDetails | None = None

    def as_json(self) -> str:
        """Return the text of the file, without unset fields."""
        return self.model_dump_json(indent=1, exclude_none=True) + "\n"


def convert(results: Results) -> GradescopeResults:
    """Return the object for /autograder/results/results.json.

    Gradescope knows only passed and failed. A test that was not graded has no status and a maximum of 0
    points, and its text says how many points are open.
    """
    score = points.score_of(results.items)
    return GradescopeResults(
        score=score.earned / 100,
        execution_time=max(1, round(results.seconds)),
        output=_summary(results, score),
        tests=list(_tests(results, score)),
        leaderboard=_leaderboard(results, score),
        extra_data=RunDetails(
            grader=results.grader,
            schema_version=results.schema_version,
            date=results.date,
            tier=results.tier,
            seed=results.seed,
            assurance=results.assurance,
            machine=results.machine.words,
            graded_points=score.graded / 100,
            not_graded_points=score.not_graded / 100,
            max_points=score.most / 100,
            files={
                f"{lab.folder}/{exercise.file}": exercise.file_sha256 or "missing"
                for lab in results.labs
                for exercise in lab.exercises
            },
        ),
    )


def _summary(results: Results, score: Score) -> str:
    lines = [f"{score.earned} of {score.graded} points graded here."]
    if score.not_graded:
        lines.append(f"{score.not_graded} of {score.most} points are open: they need a GPU.")
    lines.append(f"{results.machine.words}; tier {results.tier}; grader {results.grader}")
    return "\n".join(lines)


def _tests(results: Results, score: Score) -> Iterator[Test]:
    labs = points.split(score, [lab.items for lab in results.labs])
    for first, (lab, of_lab) in enumerate(zip(results.labs, labs, strict=True), 1):
        scores = points.split(of_lab, [exercise.items for exercise in lab.exercises])
        for second, (exercise, own) in enumerate(zip(lab.exercises, scores, strict=True), 1):
            for kind, items, part in kinds_of(exercise, own):
                number = f"{first}.{second}.{[*KINDS].index(kind) + 1}"
                yield _test(lab, exercise, kind, items, part, number)


def _test(
    lab: LabResult, exercise: ExerciseResult, kind: str, items: list[ItemResult], score: Score, number: str
) -> Test:
    judged = [item for item in items if item.verdict not in UNJUDGED]
    passed = all(item.verdict is Verdict.PASS for item in judged)
    words = [word(item) for item in items]
    return Test(
        name=f"{exercise.name}: {KINDS[kind]}",
        number=number,
        score=score.earned / 100,
        max_score=score.graded / 100,
        status=("passed" if passed else "failed") if judged else None,
        output=_output(lab, exercise, items, score),
        tags=[lab.folder, kind, *(["not graded"] if score.not_graded else [])],
        extra_data=TestDetails(
            not_graded_points=score.not_graded / 100, verdicts={one: words.count(one) for one in words}
        ),
    )


def _output(lab: LabResult, exercise: ExerciseResult, items: list[ItemResult], score: Score) -> str:
    """Return the messages that `grade` prints, without control characters."""
    bad = [item for item in items if item.verdict not in (Verdict.PASS, Verdict.NOT_GRADED)]
    lines = []
    for group in alike(bad, lab.folder, exercise.file):
        lines += [f"{word(group[0])}  {group[0].name}", *details_of(group[0], lab.folder, exercise.file)]
        if len(group) > 1:
            lines.append(f"    the same      {', '.join(item.name for item in group[1:])}")
    for item in items:
        if item.timing:
            percent, baseline = item.timing.percent_of_baseline, item.timing.baseline
            lines.append(f"{percent:.0f} % of {baseline}  {item.name}")
    if score.not_graded:
        why = next((item.where for item in items if item.verdict is Verdict.NOT_GRADED and item.where), "")
        lines.append(f"NOT GRADED  {score.not_graded} points{f': {why}' if why else ''}")
    if not lines:
        lines.append(f"{len(items)} of {len(items)} right")
    text = printable("\n".join(lines))
    return text if len(text) <= MOST_OUTPUT else text[:MOST_OUTPUT] + "\n... cut here"


def _leaderboard(results: Results, score: Score) -> list[Column]:
    """Return the leaderboard: the points, then percent of the baseline of each completely timed exercise."""
    board = [Column(name="points", value=score.earned / 100)]
    for lab in results.labs:
        for exercise in lab.exercises:
            timings = [item.timing for item in exercise.items if item.kind == SPEED]
            percents = [timing.percent_of_baseline for timing in timings if timing]
            if timings and len(percents) == len(timings) and min(percents) > 0:
                value = round(scoring.geometric_mean(percents), 1)
                board.append(Column(name=f"{exercise.name}, % of baseline", value=value))
    return board
