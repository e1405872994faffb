"""The grades of a class as data: a row a student, a cell a lab; imports no torch."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grader.batch import models
from grader.batch.layout import RunFolder
from grader.batch.models import Intake, RunRecord, State, Unit
from grader.gradebook.facts import Exercise
from grader.gradebook.late import LatePolicy
from grader.gradebook.rubric import Given
from grader.gradebook.tokens import Late

OPEN = "OPEN"  # not graded yet, or again: no task.json, or one whose results.json is another


@dataclass(frozen=True)
class Cell:
    """One lab of one student."""

    unit: Unit
    state: str  # of models.State, or OPEN
    what: str = ""
    exercises: tuple[Exercise, ...] = ()
    points: float = 0.0  # that the grader gave
    not_graded: float = 0.0  # points that stay open
    max_points: float = 0.0
    given: tuple[Given, ...] = ()  # points that a person gave
    late: Late = field(default_factory=Late)
    notes: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()  # what a person should look at
    results: Path | None = None
    sha256: str = ""
    seconds: float = 0.0
    moment: datetime.datetime | None = None  # that counts as the time of hand-in

    @property
    def is_open(self) -> bool:
        """Whether it is too early, or not the student's fault, so that there is no grade."""
        return self.state in (OPEN, State.FAULT.value)

    @property
    def most(self) -> float:
        """Points of the grader and of the rubric that there are."""
        return self.max_points + sum(one.of for one in self.given)

    @property
    def raw(self) -> float:
        """Points before the late policy."""
        return self.points + sum(one.points for one in self.given)

    @property
    def final(self) -> float:
        """Points after it."""
        return self.raw * float(1 - self.late.lost)


@dataclass(frozen=True)
class Row:
    """One student."""

    id: str
    name: str
    roster: Mapping[str, str]
    intake: Intake | None
    cells: tuple[Cell, ...]
    looks: tuple[str, ...] = ()
    tokens_left: int = 0

    @property
    def on_roster(self) -> bool:
        """Whether the course knows the student; without a roster everybody is."""
        return self.intake is None or self.intake.on_roster

    def total(self, field_name: str) -> float:
        """The sum of `raw`, `final`, `not_graded` or `most` over the labs that are not open."""
        return sum(getattr(cell, field_name) for cell in self.cells if not cell.is_open)

    @property
    def needs_a_look(self) -> tuple[str, ...]:
        """Everything a person should look at."""
        return self.looks + tuple(f"{c.unit.title}: {look}" for c in self.cells for look in c.looks)


@dataclass(frozen=True)
class Book:
    """A class: what was run, and its rows by id."""

    folder: RunFolder
    run: RunRecord
    rows: tuple[Row, ...]
    policy: LatePolicy | None = None
    selftest: models.SelfTest | None = None
    drift: models.Drift | None = None
