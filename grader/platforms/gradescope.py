"""results.json as Gradescope's autograder reads it: a test a group of items, numbered by lab and exercise."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from grader import scoring
from grader.outcome import printable
from grader.questions import SPEED
from grader.report import KINDS, alike, details_of, word
from grader.results import ExerciseResult, ItemResult, LabResult, Results
from grader.spec import Verdict

UNJUDGED = (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)
MOST_OUTPUT = 20_000  # characters of one test: Gradescope shows all of it, collapsed


class Test(BaseModel):
    """One test case; what Gradescope has no word for is in `extra_data`."""

    name: str
    number: str
    score: float
    max_score: float
    status: str | None = None
    output: str = ""
    output_format: str = "text"
    tags: list[str] = []
    visibility: str = "visible"
    extra_data: dict = {}


def convert(results: Results) -> dict:
    """The object that goes to /autograder/results/results.json.

    Gradescope knows passed and failed alone. What was not graded has no status and no points to be lost, so
    that a test of 20 points on a machine without a GPU shows as 0 of 0, and its text says what is open.
    """
    tests = [test.model_dump(exclude_none=True) for test in _tests(results)]
    machine = results.machine
    return {
        "score": round(results.points, 4),
        "execution_time": max(1, round(results.seconds)),
        "output": _summary(results),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": _leaderboard(results),
        "extra_data": {
            "grader": results.grader,
            "schema_version": results.schema_version,
            "date": results.date,
            "tier": results.tier,
            "seed": results.seed,
            "assurance": results.assurance,
            "machine": machine.words,
            "graded_points": round(results.graded_points, 4),
            "not_graded_points": round(results.not_graded_points, 4),
            "max_points": round(results.max_points, 4),
            "files": {
                f"{lab.folder}/{exercise.file}": exercise.file_sha256 or "missing"
                for lab in results.labs
                for exercise in lab.exercises
            },
        },
    }


def _summary(results: Results) -> str:
    lines = [f"{results.points:.1f} of {results.graded_points:.1f} points graded here."]
    if results.not_graded_points:
        lines.append(
            f"{results.not_graded_points:.1f} of {results.max_points:.1f} points are open: they need a GPU."
        )
    lines.append(f"{results.machine.words}; tier {results.tier}; grader {results.grader}")
    return "\n".join(lines)


def _tests(results: Results) -> Iterator[Test]:
    for first, lab in enumerate(results.labs, 1):
        for second, exercise in enumerate(lab.exercises, 1):
            for third, kind in enumerate(KINDS, 1):
                items = [item for item in exercise.items if item.kind == kind]
                if items:
                    yield _test(lab, exercise, kind, items, f"{first}.{second}.{third}")


def _test(lab: LabResult, exercise: ExerciseResult, kind: str, items: list[ItemResult], number: str) -> Test:
    earned, graded, still_open = scoring.total(items)
    judged = [item for item in items if item.verdict not in UNJUDGED]
    passed = all(item.verdict is Verdict.PASS for item in judged)
    words = [word(item) for item in items]
    return Test(
        name=f"{exercise.name}: {KINDS[kind]}",
        number=number,
        score=round(earned, 4),
        max_score=round(graded, 4),
        status=("passed" if passed else "failed") if judged else None,
        output=_output(lab, exercise, items, still_open),
        tags=[lab.folder, kind, *(["not graded"] if still_open else [])],
        extra_data={
            "not_graded_points": round(still_open, 4),
            "verdicts": {one: words.count(one) for one in words},
        },
    )


def _output(lab: LabResult, exercise: ExerciseResult, items: list[ItemResult], still_open: float) -> str:
    """The words that `grade` prints, without control characters."""
    bad = [item for item in items if item.verdict not in (Verdict.PASS, Verdict.NOT_GRADED)]
    lines = []
    for group in alike(bad, lab.folder, exercise.file):
        lines += [f"{word(group[0])}  {group[0].name}", *details_of(group[0], lab.folder, exercise.file)]
        if len(group) > 1:
            lines.append(f"    the same      {', '.join(item.name for item in group[1:])}")
    for item in items:
        if "percent" in item.figures:
            lines.append(f"{item.figures['percent']:.0f} % of {item.figures['baseline']}  {item.name}")
    if still_open:
        why = next((item.where for item in items if item.verdict is Verdict.NOT_GRADED and item.where), "")
        lines.append(f"NOT GRADED  {still_open:.1f} points{f': {why}' if why else ''}")
    if not lines:
        lines.append(f"{len(items)} of {len(items)} right")
    text = printable("\n".join(lines))
    return text if len(text) <= MOST_OUTPUT else text[:MOST_OUTPUT] + "\n... cut here"


def _leaderboard(results: Results) -> list[dict]:
    """Percent of the baseline of each exercise that was timed whole; first the points."""
    board: list[dict] = [{"name": "points", "value": round(results.points, 2), "order": "desc"}]
    for lab in results.labs:
        for exercise in lab.exercises:
            timed = [item.figures.get("percent") for item in exercise.items if item.kind == SPEED]
            if timed and all(percent is not None and percent > 0 for percent in timed):
                value = round(scoring.geometric_mean(timed), 1)
                board.append({"name": f"{exercise.name}, % of baseline", "value": value, "order": "desc"})
    return board
