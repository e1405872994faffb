"""The results file: one model of a graded run, its JSON Schema, and the machine it ran on."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import grader
from grader import scoring
from grader.error_map import ErrorMap
from grader.outcome import Outcome
from grader.questions import SPEED, Question
from grader.spec import Verdict

SCHEMA_VERSION = 2  # 2: a wrong item may have an error_map, a timed one has the lines of its score
MOST_BYTES = 64 << 20  # of a results.json: a whole run, with every failing case's output, is far below


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ItemResult(_Model):
    """One case, codegen check or timed shape."""

    id: str
    kind: str
    name: str
    verdict: Verdict
    reason: str = ""
    points: float
    max_points: float
    where: str = ""
    pattern: str = ""
    cause: str = ""
    hint: int | None = None
    frames: list[dict[str, Any]] = []
    printed: str = ""
    tolerance_used: float | None = None
    figures: dict[str, Any] = {}
    error_map: ErrorMap | None = None
    seconds: float


class ExerciseResult(_Model):
    """One graded function, with the file it was read from and the hash of that file."""

    name: str
    file: str
    file_sha256: str | None
    items: list[ItemResult]


class LabResult(_Model):
    """One lab: what was earned, what was graded, and what this machine could not grade."""

    folder: str
    number: int
    title: str
    points: float
    graded_points: float
    not_graded_points: float
    max_points: float
    exercises: list[ExerciseResult]


class Machine(_Model):
    """Where and with what a run was made."""

    gpu: dict[str, Any] | None
    gpu_missing: str = ""
    platform: str
    python: str
    torch: str
    triton: str
    numpy: str

    @property
    def words(self) -> str:
        """GPU, driver and versions, for the line under a table."""
        gpu = f"{self.gpu['name']}, driver {self.gpu['driver']}" if self.gpu else "no GPU"
        return f"{gpu}, torch {self.torch}, triton {self.triton}"


class Results(_Model):
    """A graded run; the only truth from which every other report is made."""

    schema_version: int = SCHEMA_VERSION
    grader: str
    date: str
    seconds: float
    command: str
    tier: str
    source: str
    seed: int
    arch: int
    assurance: str
    machine: Machine
    points: float
    graded_points: float
    not_graded_points: float
    max_points: float
    labs: list[LabResult]


def schema() -> dict:
    """JSON Schema of results.json."""
    return Results.model_json_schema()


def now() -> str:
    """The date of a record: UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def machine(gpu, missing: str) -> Machine:
    """This machine, without importing torch or triton."""

    def version(package):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "missing"

    return Machine(
        gpu=gpu.as_dict() if gpu else None,
        gpu_missing=missing,
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=version("torch"),
        triton=version("triton"),
        numpy=version("numpy"),
    )


def collect(
    answered: list[tuple[Question, Outcome, float]], run, files, *, command, seconds, gpu_missing
) -> Results:
    """Everything a run found, scored. `files` maps a question to the path that was graded."""
    labs = []
    for folder in dict.fromkeys(q.entry.folder for q, _, _ in answered):
        mine = [entry for entry in answered if entry[0].entry.folder == folder]
        labs.append(_lab(mine, files))
    earned, graded, open_points = (
        sum(getattr(lab, field) for lab in labs) for field in ("points", "graded_points", "not_graded_points")
    )
    return Results(
        grader=grader.__version__,
        date=now(),
        seconds=round(seconds, 1),
        command=command,
        tier=run.tier,
        source=str(run.source),
        seed=run.seed,
        arch=run.arch,
        assurance=run.assurance,
        machine=machine(run.gpu, gpu_missing),
        points=earned,
        graded_points=graded,
        not_graded_points=open_points,
        max_points=sum(lab.max_points for lab in labs),
        labs=labs,
    )


def _lab(answered, files) -> LabResult:
    entry = answered[0][0].entry
    exercises = []
    for exercise in dict.fromkeys(q.exercise for q, _, _ in answered):
        mine = [answer for answer in answered if answer[0].exercise is exercise]
        path: Path = files(mine[0][0])
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        exercises.append(
            ExerciseResult(
                name=exercise.name, file=path.name, file_sha256=digest, items=_items(exercise, mine)
            )
        )
    items = [item for exercise in exercises for item in exercise.items]
    earned, graded, open_points = scoring.total(items)
    return LabResult(
        folder=entry.folder.name,
        number=entry.number,
        title=entry.lab.title,
        points=earned,
        graded_points=graded,
        not_graded_points=open_points,
        max_points=sum(item.max_points for item in items),
        exercises=exercises,
    )


def _items(exercise, answered) -> list[ItemResult]:
    timed = [
        o
        for q, o, _ in answered
        if q.kind == SPEED and o.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE)
    ]
    percents = [outcome.figures["percent"] for outcome in timed if "percent" in outcome.figures]
    failed = any(
        q.kind == SPEED and o.verdict not in (Verdict.NOT_GRADED, Verdict.GRADER_FAULT) and o not in timed
        for q, o, _ in answered
    )
    share = scoring.speed_share(percents, exercise.speed) if exercise.speed and not failed else 0.0
    items = []
    for question, outcome, seconds in answered:
        earned = share if question.kind == SPEED and outcome in timed else outcome.share
        items.append(item_of(question, outcome, earned, seconds))
    return items


def item_of(question: Question, outcome: Outcome, earned: float = 0.0, seconds: float = 0.0) -> ItemResult:
    """One outcome as the results file holds it; `earned` is the share of the question's points."""
    return ItemResult(
        id=question.id,
        kind=question.kind,
        name=question.name,
        verdict=outcome.verdict,
        reason=outcome.reason,
        points=question.points * earned,
        max_points=question.points,
        where=outcome.where,
        pattern=outcome.pattern,
        cause=outcome.cause,
        hint=outcome.hint,
        frames=list(outcome.frames),
        printed=outcome.printed,
        tolerance_used=outcome.used,
        figures=outcome.figures,
        error_map=outcome.error_map,
        seconds=0.0 if question.case is not None and question.case.label else round(seconds, 3),
    )
