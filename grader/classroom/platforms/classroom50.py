"""Convert results.json for Classroom 50, `classroom50/result/v1`: one test per exercise.

The format takes whole numbers only, so every score and maximum is in hundredths of a point: 4375 is 43.75.

Environment variables of the runner identify the submission. The autograder exits with 0 for any score;
another exit code means that the infrastructure failed.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field

from grader.course.spec import Verdict
from grader.report.terminal import word
from grader.results import points, scoring
from grader.results.models import ExerciseResult, Results
from grader.results.points import Score

SCHEMA = "classroom50/result/v1"
# Environment variables by field, in order of preference.
IDENTITY = {
    "classroom": ("CLASSROOM",),
    "assignment": ("ASSIGNMENT",),
    "assignment_type": ("ASSIGNMENT_TYPE",),
    "owner": ("OWNER", "USERNAME"),
    "submission": ("SUBMISSION_TAG",),
    "commit": ("COMMIT_URL",),
    "release": ("RELEASE_URL",),
    "review": ("REVIEW_URL", "COMMIT_URL"),
}
DEFAULTS = {"assignment_type": "individual"}


class IdentityError(Exception):
    """The runner did not identify the submission; the message names the missing variables."""


class _Hyphenated(BaseModel):
    """Base of models whose fields have hyphens in JSON."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True)


class Test(_Hyphenated):
    """One exercise; score and maximum in hundredths of a point."""

    test_name: str
    passed: bool
    score: int
    max_score: int
    not_graded_points: float
    message: str


class Classroom50Result(_Hyphenated):
    """The object in ./result.json."""

    format: str = Field(SCHEMA, alias="schema")
    classroom: str
    assignment: str
    assignment_type: str = Field(alias="assignment_type")
    owner: str
    submission: str
    commit: str
    release: str
    review: str
    datetime: str  # hand-in time: the runner replaces it by the commit's date
    graded_at: str = Field(alias="graded_at")
    score: int
    max_score: int
    tests: list[Test]

    def as_json(self) -> str:
        """Return the text of the file."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"


def convert(results: Results, environment: Mapping[str, str]) -> Classroom50Result:
    """Return the object for ./result.json. Raises IdentityError outside the runner.

    The tests add up to the printed total. Points that were not graded are excluded from both sums and listed
    separately.
    """
    identity = {
        field: next((environment[name] for name in names if environment.get(name)), DEFAULTS.get(field, ""))
        for field, names in IDENTITY.items()
    }
    missing = [IDENTITY[field][0] for field, value in identity.items() if not value]
    if missing:
        raise IdentityError(
            f"not set: {', '.join(missing)}; Classroom 50's runner sets them for its autograder"
        )
    tests = [*_tests(results)]
    moment = _utc(results.date)
    return Classroom50Result(
        **identity,
        datetime=moment,
        graded_at=moment,
        score=sum(test.score for test in tests),
        max_score=sum(test.max_score for test in tests),
        tests=tests,
    )


def _tests(results: Results) -> Iterator[Test]:
    labs = points.split(points.score_of(results.items), [lab.items for lab in results.labs])
    for lab, of_lab in zip(results.labs, labs, strict=True):
        scores = points.split(of_lab, [exercise.items for exercise in lab.exercises])
        for exercise, score in zip(lab.exercises, scores, strict=True):
            yield _test(lab.folder, exercise, score)


def _test(folder: str, exercise: ExerciseResult, score: Score) -> Test:
    judged = [item for item in exercise.items if not scoring.is_open(item)]
    words = [word(item) for item in exercise.items if item.verdict is not Verdict.PASS]
    return Test(
        test_name=f"{folder}/{exercise.name}",
        # A test without a judged item must not count as passed.
        passed=bool(judged) and all(item.verdict is Verdict.PASS for item in judged),
        score=score.earned,
        max_score=score.graded,
        not_graded_points=score.not_graded / 100,
        message=", ".join(f"{words.count(one)} {one}" for one in dict.fromkeys(words)),
    )


def _utc(date: str) -> str:
    moment = datetime.datetime.fromisoformat(date.replace("Z", "+00:00"))
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
