"""Data model of the gradebook: one row per student, one cell per lab; imports no torch."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom import records
from grader.classroom.gradebook.facts import Exercise
from grader.classroom.gradebook.late import LatePolicy
from grader.classroom.gradebook.rubric import Given
from grader.classroom.gradebook.tokens import Late
from grader.classroom.records import Intake, RunRecord, State, Unit
from grader.classroom.run_folder import RunFolder
from grader.results import points

OPEN = "OPEN"  # to be graded: no task.json, or results.json does not match its hash
EXCUSED = "EXCUSED"  # by the late policy: the lab does not count, whatever was handed in


@dataclass(frozen=True)
class Cell:
    """One lab of one student; points are rounded to two decimals, so that printed columns add up."""

    unit: Unit
    state: str  # a records.State, or OPEN
    what: str = ""
    exercises: tuple[Exercise, ...] = ()
    points: float = 0.0  # from the grader
    not_graded: float = 0.0  # points that stay open
    max_points: float = 0.0
    given: tuple[Given, ...] = ()  # manually graded points
    late: Late = field(default_factory=Late)
    notes: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()  # what a person should review
    results: Path | None = None
    sha256: str = ""
    seconds: float = 0.0
    moment: datetime.datetime | None = None  # hand-in time for the late policy
    counts: str = ""  # which of several attempts counts, and why

    @property
    def is_open(self) -> bool:
        """Whether there is no grade yet: not graded, a fault, or a person has to look first."""
        return self.state in (OPEN, State.FAULT.value, State.NOT_COLLECTED.value)

    @property
    def in_total(self) -> bool:
        """Whether the lab counts in the total: it is neither open nor excused."""
        return not self.is_open and self.state != EXCUSED

    @property
    def partly(self) -> str:
        """How many points the grade is of, if they are fewer than the column has; else an empty string."""
        graded = points.rounded(self.most - self.not_graded)
        column = points.rounded(self.unit.max_points + sum(one.of for one in self.given))
        if self.state != State.GRADED.value or graded >= column:
            return ""
        return f"{self.unit.title}: graded on {points.text(graded)} of {points.text(column)} points"

    @property
    def most(self) -> float:
        """Maximum points, of the grader and of the rubric."""
        return points.rounded(self.max_points + sum(one.of for one in self.given))

    @property
    def prose(self) -> float:
        """Points graded by hand."""
        return points.rounded(sum(one.points for one in self.given))

    @property
    def raw(self) -> float:
        """Points before the late policy."""
        return points.rounded(self.points + self.prose)

    @property
    def final(self) -> float:
        """Points after the late policy."""
        return points.rounded(self.raw * float(1 - self.late.lost))


@dataclass(frozen=True)
class Row:
    """The grades of one student."""

    id: str
    name: str
    roster: Mapping[str, str]
    intake: Intake | None
    cells: tuple[Cell, ...]
    looks: tuple[str, ...] = ()
    tokens_left: int = 0

    @property
    def on_roster(self) -> bool:
        """Whether the student is on the roster; True without a roster."""
        return self.intake is None or self.intake.on_roster

    def total(self, field_name: str) -> float:
        """Return the sum of `raw`, `final`, `not_graded` or `most` over the labs that count."""
        return sum(getattr(cell, field_name) for cell in self.cells if cell.in_total)

    @property
    def needs_a_look(self) -> tuple[str, ...]:
        """Everything that a person should review."""
        return self.looks + tuple(f"{c.unit.title}: {look}" for c in self.cells for look in c.looks)


@dataclass(frozen=True)
class Book:
    """The gradebook of a class: the run, and its rows by student id."""

    folder: RunFolder
    run: RunRecord
    rows: tuple[Row, ...]
    policy: LatePolicy | None = None
    selftest: records.SelfTest | None = None
    drift: records.Drift | None = None
