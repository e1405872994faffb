"""results.json as Classroom 50's runner reads it, `classroom50/result/v1`: whole points, a test an exercise.

Who and what it is of the runner tells in the environment. The autograder's exit code is 0 whatever the score:
another one means that the infrastructure failed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from grader import scoring
from grader.report import word
from grader.results import ExerciseResult, Results
from grader.spec import Verdict

SCHEMA = "classroom50/result/v1"
# By the field, the variables that may have it, the best first.
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
    """The runner did not say whose work it is; with the variables."""


def convert(results: Results, environment: Mapping[str, str]) -> dict:
    """The object for ./result.json; IdentityError outside of the runner.

    The points of an exercise are rounded to whole ones, down: the sum must not exceed what was earned. Points
    that were not graded are left out of both sums, and stand beside them.
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
    tests = [_test(lab.folder, exercise) for lab in results.labs for exercise in lab.exercises]
    moment = _utc(results.date)
    return {
        "schema": SCHEMA,
        **identity,
        "datetime": moment,  # of the hand-in: the runner puts the commit's date here
        "graded_at": moment,
        "score": sum(test["score"] for test in tests),
        "max-score": sum(test["max-score"] for test in tests),
        "tests": tests,
    }


def _test(folder: str, exercise: ExerciseResult) -> dict:
    earned, graded, still_open = scoring.total(exercise.items)
    judged = [i for i in exercise.items if i.verdict not in (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)]
    words = [word(item) for item in exercise.items if item.verdict is not Verdict.PASS]
    most = int(graded + 1e-6)
    return {
        "test-name": f"{folder}/{exercise.name}",
        # Whatever nobody judged must not look as if it had passed.
        "passed": bool(judged) and all(item.verdict is Verdict.PASS for item in judged),
        "score": min(int(earned + 1e-6), most),
        "max-score": most,
        "not-graded-points": round(still_open, 2),
        "message": ", ".join(f"{words.count(one)} {one}" for one in dict.fromkeys(words)),
    }


def _utc(date: str) -> str:
    moment = datetime.datetime.fromisoformat(date.replace("Z", "+00:00"))
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
