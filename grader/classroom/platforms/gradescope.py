"""Convert results.json for Gradescope: one test per exercise and kind of item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel

from grader.course.items import SPEED
from grader.course.spec import Verdict
from grader.report.failures import Told
from grader.report.terminal import KINDS, UNDECIDED, kinds_of, word
from grader.results import points, scoring
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.results.points import Score
from grader.system.text import printable

MOST_OUTPUT = 20_000  # characters of one test: Gradescope shows all of it, collapsed


class TestDetails(BaseModel):
    """Facts of a test that Gradescope has no field for."""

    not_graded_points: float
    verdicts: dict[str, int]


class Test(BaseModel):
    """One test case."""

    name: str
    number: str
    score: float | None = None
    max_score: float | None = None
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

    Gradescope knows only passed and failed, and without a status it decides by the points: 0 of 0 is passed.
    What was not graded is therefore a test of its own, with neither status nor points; its text says how many
    points are open.
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
        staff = any(item.undecided for item in results.items)
        need = "another run or a decision of the course staff" if staff else "a GPU"
        lines.append(f"{score.not_graded} of {score.most} points are open: they need {need}.")
    lines.append(f"{results.machine.words}; tier {results.tier}; grader {results.grader}")
    return "\n".join(lines)


def _tests(results: Results, score: Score) -> Iterator[Test]:
    labs, told = points.split(score, [lab.items for lab in results.labs]), Told()
    for first, (lab, of_lab) in enumerate(zip(results.labs, labs, strict=True), 1):
        scores = points.split(of_lab, [exercise.items for exercise in lab.exercises])
        for second, (exercise, own) in enumerate(zip(lab.exercises, scores, strict=True), 1):
            for kind, items, part in kinds_of(exercise, own):
                number = f"{first}.{second}.{[*KINDS].index(kind) + 1}"
                judged = [item for item in items if not scoring.is_open(item)]
                waiting = [item for item in items if scoring.is_open(item)]
                graded, still_open = points.split(part, [judged, waiting])
                if judged:
                    output = _output(lab, exercise, judged, told, number)
                    yield _judged(_facts(lab, exercise, kind, judged, output, number, graded), judged, graded)
                if waiting:
                    output = _why_open(lab, exercise, waiting, still_open, told, number)
                    facts = _facts(lab, exercise, kind, waiting, output, f"{number}.0", still_open)
                    name = f"{facts.name}, not graded here"
                    yield facts.model_copy(update={"name": name, "tags": [*facts.tags, "not graded"]})


def _facts(
    lab: LabResult,
    exercise: ExerciseResult,
    kind: str,
    items: list[ItemResult],
    output: list[str],
    number: str,
    score: Score,
) -> Test:
    """Return a test without a status and without points."""
    words = [word(item) for item in items]
    text = printable("\n".join(output))
    return Test(
        name=f"{exercise.name}: {KINDS[kind]}",
        number=number,
        output=text if len(text) <= MOST_OUTPUT else text[:MOST_OUTPUT] + "\n... cut here",
        tags=[lab.folder, kind],
        extra_data=TestDetails(
            not_graded_points=score.not_graded / 100, verdicts={one: words.count(one) for one in words}
        ),
    )


def _judged(test: Test, items: list[ItemResult], score: Score) -> Test:
    passed = all(item.verdict is Verdict.PASS for item in items)
    status = "passed" if passed else "failed"
    points = {"score": score.earned / 100, "max_score": score.graded / 100}
    return test.model_copy(update={"status": status, **points})


def _output(
    lab: LabResult, exercise: ExerciseResult, items: list[ItemResult], told: Told, number: str
) -> list[str]:
    """Return the messages that `grade` prints."""
    bad = [item for item in items if item.verdict is not Verdict.PASS]
    lines = [*told.lines(bad, lab.folder, exercise.file, number)]
    for item in items:
        if item.timing:
            percent, baseline = item.timing.percent_of_baseline, item.timing.baseline
            lines.append(f"{percent:.0f} % of {baseline}  {item.name}")
    return lines or [f"{len(items)} of {len(items)} right"]


def _why_open(
    lab: LabResult,
    exercise: ExerciseResult,
    items: list[ItemResult],
    score: Score,
    told: Told,
    number: str,
) -> list[str]:
    faults = [item for item in items if item.verdict is Verdict.GRADER_FAULT]
    lines = [*told.lines(faults, lab.folder, exercise.file, number)]
    why = next((item.where for item in items if item.verdict is Verdict.NOT_GRADED and item.where), "")
    noisy = [item for item in items if item.verdict is Verdict.INCONCLUSIVE]
    if noisy:
        lines += _output(lab, exercise, noisy, told, number)
        why = why or UNDECIDED
    return [*lines, f"NOT GRADED  {score.not_graded} points{f': {why}' if why else ''}"]


def _leaderboard(results: Results, score: Score) -> list[Column]:
    """Return the leaderboard: the points, then percent of the baseline of each completely timed exercise."""
    board = [Column(name="points", value=score.earned / 100)]
    for lab in results.labs:
        for exercise in lab.exercises:
            timings = [item.timing for item in exercise.items if item.kind == SPEED]
            undecided = any(item.undecided for item in exercise.items)
            percents = [timing.percent_of_baseline for timing in timings if timing and not undecided]
            if timings and len(percents) == len(timings) and min(percents) > 0:
                value = round(scoring.geometric_mean(percents), 1)
                board.append(Column(name=f"{exercise.name}, % of baseline", value=value))
    return board
