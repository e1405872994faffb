"""The files of a run folder, each with the version of its schema; results.json is grader.results.Results."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from grader.files import replace
from grader.results import Machine

ROSTER = "roster"  # where a date of hand-in is from that no student can set


class Model(BaseModel):
    """A part of a record; a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


class State(str, enum.Enum):
    """How the grading of one lab of one student stands."""

    GRADED = "GRADED"  # results.json has the points
    MISSING = "MISSING"  # no file of this lab was handed in: no points, as NOT_STARTED
    REFUSED = "REFUSED"  # what was handed in could not be opened safely: no points, and intake.json says why
    TIMEOUT = "TIMEOUT"  # the grader was still at it after the hard limit: no points, for a person to look at
    FAULT = "FAULT"  # grader or machine at fault, however often it was tried: open, no points taken off


class Unit(Model):
    """What is graded and shown on its own: a lab, or the capstone."""

    name: str  # of its folder, and of the folder in students/<id>/
    lab: str  # as `grade --lab` takes it: "2", or "capstone"
    title: str
    max_points: float
    exercises: dict[str, float]  # points of each, tiers together, by name


class RunRecord(Model):
    """run.json: what was asked, of whom, and with what. Written at the start and again at the end."""

    schema_version: Literal[1] = 1
    grader: str
    grader_sha256: str  # of the modules that grade
    began: str  # UTC, when this folder was begun
    finished: str | None = None  # UTC, when a command last came to its end
    tier: str
    keyword: str | None = None  # -k: only items whose names match
    hidden_sha256: str | None = None  # of the file with hidden cases
    seed_commitment: str  # SHA-256 of the secret that all seeds are made from
    units: list[Unit]
    students: list[str]  # ids, sorted: one row each
    unknown: list[str] = []  # submissions that no student of the roster made; graded under their own names
    gone: list[str] = []  # students of earlier runs of whom no submission was found now; grades were kept
    machines: list[Machine] = []  # every one that graded


class TakenFile(Model):
    """A file that is graded."""

    path: str  # below files/
    sha256: str
    bytes: int
    found: str  # where it lay in the submission
    changed: str | None = None  # UTC, as the submission has it: of its last commit, or its own date


class LeftOut(Model):
    """A file that is not graded, and why."""

    found: str
    why: str
    unit: str = ""  # where it would have been a collected file: its unit


class Intake(Model):
    """intake.json: one student, what was handed in, and what of it was taken."""

    schema_version: Literal[1] = 1
    id: str
    on_roster: bool
    roster: dict[str, str] = {}  # the student's line, by column
    sources: list[str] = []  # what was handed in, below the folder of submissions; empty: nothing
    kind: Literal["nothing", "folder", "zip", "git", "files"] = "nothing"
    commit: str | None = None  # of a git repository
    handed_in: str | None = None  # UTC
    handed_in_by: str = ""  # where that date is from; the student can have set every one but the roster's
    marked_late: bool = False  # by the LMS, in the name of the download
    problem: str = ""  # why nothing could be taken; empty where it could
    files: list[TakenFile] = []
    left_out: list[LeftOut] = []
    left_out_more: int = 0  # beyond those that are listed


class TaskRecord(Model):
    """task.json: how the grading of one unit of one student ended. The last file that is written."""

    schema_version: Literal[1] = 1
    student: str
    unit: str
    state: State
    what: str = ""  # in words, where the state is not GRADED
    fingerprint: str  # of all that decides the result; another one means to grade again
    attempt: int  # counts what was graded again on purpose; infrastructure losses do not count
    lost: list[str] = []  # infrastructure losses on the way, in words
    exit_code: int | None = None
    seconds: float = 0.0
    accelerator: str = ""  # as the engine pinned it, "0", or empty
    results_sha256: str | None = None


class Receipt(Model):
    """receipt.json: what a second grading needs to agree or differ."""

    schema_version: Literal[1] = 1
    student: str
    unit: Unit
    attempt: int
    blind: bool = False
    date: str
    grader: str
    grader_sha256: str
    lab_sha256: str
    hidden_sha256: str | None
    files: dict[str, str]  # SHA-256 by path below files/
    tier: str
    keyword: str | None
    arch: int
    seed: int
    seed_commitment: str
    machine: Machine
    assurance: str
    points: float
    results_sha256: str
    rounds_sha256: str  # of the raw rounds of all timed shapes, which are in results.json
    seal: str = ""  # HMAC-SHA-256 of all the rest under the secret of the run


class KnownResult(Model):
    """One file of the self-test."""

    name: str
    expected: list[str]
    got: str
    held: bool
    seconds: float
    accelerator: str = ""  # that it was graded on, as in task.json


class SelfTest(Model):
    """selftest.json: the last self-test."""

    schema_version: Literal[1] = 1
    date: str
    held: bool
    known: list[KnownResult]


class ExerciseDrift(Model):
    """How far second gradings of one exercise lie from the first."""

    unit: str
    exercise: str
    compared: int
    verdicts_changed: list[str]  # "<student>: <item> PASS, then WRONG"; but for speed there must be none
    most_points: float  # largest difference, in points
    most_percent: float | None  # largest difference of a timed shape, in percent of its baseline


class Drift(Model):
    """drift.json: the submissions that were graded a second time, blind."""

    schema_version: Literal[1] = 1
    regraded: list[str]  # "<student>/<unit>"
    exercises: list[ExerciseDrift]


M = TypeVar("M", bound=BaseModel)


def read(path: Path, model: type[M]) -> M:
    """The file; FileNotFoundError where there is none, ValueError where it is not what it must be."""
    return model.model_validate_json(path.read_bytes())


def write(path: Path, record: BaseModel) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, record.model_dump_json(indent=1) + "\n")
