"""The files of a run folder, each with its schema version; results.json is grader.results.models.Results."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel

from grader.results.machine import Machine
from grader.results.records import Model, Record
from grader.system.files import replace

ROSTER = "roster"  # the source of a hand-in date that no student can set


class State(str, enum.Enum):
    """Grading state of one lab of one student."""

    GRADED = "GRADED"  # results.json has the points
    MISSING = "MISSING"  # no file of this lab was submitted: no points, as for NOT_STARTED
    NOT_COLLECTED = "NOT_COLLECTED"  # what counts is not clear: open until a person has looked
    REFUSED = "REFUSED"  # the submission could not be opened safely: no points, and intake.json says why
    TIMEOUT = "TIMEOUT"  # grading exceeded the hard time limit: no points, and a person should look at it
    FAULT = "FAULT"  # the grader or the machine failed in every attempt: open, no points taken off


class Unit(Model):
    """A lab or the capstone: the part of the course that is graded and shown on its own."""

    name: str  # folder name, in labs/ and in students/<id>/
    lab: str  # argument of `grade --lab`: "2", or "capstone"
    title: str
    max_points: float
    exercises: dict[str, float]  # maximum points by exercise name, all tiers together


class RunRecord(Record):
    """run.json: settings, students and machines of a class run; written at the start and again at the end."""

    grader: str
    grader_sha256: str  # hash of the modules that affect a result
    began: str  # UTC, start of the first command on this folder
    finished: str | None = None  # UTC, end of the last command that completed
    tier: str
    keyword: str | None = None  # -k: only items whose names match
    hidden_sha256: str | None = None  # hash of the file with hidden cases
    seed_commitment: str  # SHA-256 of the secret that all seeds are derived from
    timing_protocol: int = 1  # as in results.json; a run keeps the one that it began with
    seal_commitment: str = ""  # SHA-256 of the key of all seals; empty where the secret is that key too
    units: list[Unit]
    students: list[str]  # sorted ids
    unknown: list[str] = []  # ids made up for submissions that match no student of the roster
    strays: list[str] = []  # files beside the submissions that are nobody's
    gone: list[str] = []  # students of earlier runs whose submission is missing now; their grades are kept
    machines: list[Machine] = []  # all machines that graded


class TakenFile(Model):
    """A file that is graded."""

    path: str  # relative to files/
    sha256: str
    bytes: int
    found: str  # its path in the submission
    changed: str | None = None  # UTC, date of its last commit, else modification date in the submission


class LeftOut(Model):
    """A file that is not graded, and why."""

    found: str
    why: str
    unit: str = ""  # the unit that it would have been collected for
    look: bool = False  # a person should look at it: it may be an answer
    undecided: bool = False  # one of several attempts, and nothing says which one counts


class Intake(Record):
    """intake.json: the submission of one student, the files collected from it and those left out."""

    id: str
    on_roster: bool
    roster: dict[str, str] = {}  # the student's row, by column
    sources: list[str] = []  # entries in the folder of submissions; empty where nothing was submitted
    kind: Literal["nothing", "folder", "zip", "tar", "git", "files"] = "nothing"
    commit: str | None = None  # HEAD of a git repository
    handed_in: str | None = None  # UTC
    handed_in_by: str = ""  # source of that date; a student can forge every source but the roster
    marked_late: bool = False  # by the LMS, in the name of the downloaded file
    problem: str = ""  # why nothing could be collected; empty if the submission could be read
    files: list[TakenFile] = []
    left_out: list[LeftOut] = []
    left_out_more: int = 0  # number of further files that are not listed
    close_match: bool = False  # the submission is named nearly, but not exactly, like this student
    doubtful: list[str] = []  # submissions that could be this student's, and were not collected
    partners: list[str] = []  # students who handed in the same submission
    graded_with: str = ""  # the partner whose grading counts; empty for this student's own

    def changed(self, unit: str) -> str | None:
        """Return the last date of a unit's files, None if one of them has no date."""
        dates = [one.changed for one in self.files if one.path.startswith(f"{unit}/")]
        known = [date for date in dates if date]
        return max(known) if known and len(known) == len(dates) else None

    def could_be_answers(self, unit: str) -> list[LeftOut]:
        """Return the files left out that may be an answer of this unit."""
        return [one for one in self.left_out if one.look and one.unit in ("", unit)]


class TaskRecord(Record):
    """task.json: how the grading of one unit of one student ended; written after all other files."""

    student: str
    unit: str
    state: State
    what: str = ""  # the reason where the state is not GRADED
    fingerprint: str  # hash of everything that affects the result; the unit is graded again if it changes
    attempt: int  # 1 plus earlier gradings and rescorings of this unit; infrastructure failures do not count
    latest: int | None = None  # number of the latest attempt, where another one counts
    counts: str = ""  # why this attempt counts, if there are several
    measured_in: int | None = None  # attempt whose measurements were scored again; None: measured in this one
    files_sha256: str = ""  # hash of the graded files; empty in records of older versions
    handed_in: str | None = None  # UTC, when these files were handed in, where every file has a date
    lost: list[str] = []  # infrastructure failures before this attempt
    exit_code: int | None = None
    seconds: float = 0.0
    accelerator: str = ""  # the GPU that the engine assigned, such as "0", or empty
    results_sha256: str | None = None


class Receipt(Record):
    """receipt.json: the inputs and hashes of one grading, so that it can be repeated and compared."""

    student: str
    unit: Unit
    attempt: int
    blind: bool = False
    date: str
    grader: str
    grader_sha256: str
    lab_sha256: str  # hash of the unit's labs with their points, without texts
    measures_sha256: str = ""  # the same without points and thresholds; empty in receipts of older versions
    hidden_sha256: str | None
    files: dict[str, str]  # SHA-256 by path relative to files/
    tier: str
    keyword: str | None
    arch: int
    seed: int
    seed_commitment: str
    machine: Machine
    assurance: str
    points: float
    results_sha256: str
    rounds_sha256: str  # hash of the raw timing rounds in results.json
    measured_in: int | None = (
        None  # attempt whose measurements these points were computed from; None: this one
    )
    seal_commitment: str = ""  # as in run.json
    seal: str = ""  # HMAC-SHA-256 of all other fields of the file, with the key of the seals


class KnownResult(Model):
    """Result of one file of the self-test."""

    name: str
    expected: list[str]
    got: str
    held: bool
    seconds: float
    accelerator: str = ""  # the GPU that graded it, as in task.json


class SelfTest(Record):
    """selftest.json: the most recent self-test."""

    date: str
    held: bool
    known: list[KnownResult]


class ExerciseDrift(Model):
    """Differences between first and second gradings of one exercise."""

    unit: str
    exercise: str
    compared: int
    verdicts_changed: list[str]  # "<student>: <item> PASS, then WRONG", without timed items; should be empty
    most_points: float  # largest difference, in points
    most_percent: float | None  # largest difference of a timed shape, in percent of its baseline


class Drift(Record):
    """drift.json: comparison of the submissions that were graded a second time, blind."""

    regraded: list[str]  # "<student>/<unit>"
    exercises: list[ExerciseDrift]


M = TypeVar("M", bound=BaseModel)


def read(path: Path, model: type[M]) -> M:
    """Read a record. Raises FileNotFoundError if there is none, ValueError if it does not fit the model."""
    return model.model_validate_json(path.read_bytes())


def write(path: Path, record: BaseModel) -> None:
    """Write a record atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, record.model_dump_json(indent=1) + "\n")
