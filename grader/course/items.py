"""Graded items: a case, a code check, a timed shape, or a check of a document; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from grader.course.catalog import Entry
from grader.course.spec import Case, Document, Exercise

CORRECTNESS, CODEGEN, SPEED, DOCUMENT = "correctness", "codegen", "speed", "document"
COMPILES = "compiles"  # name of the codegen item of an exercise without checks that give points


@dataclass(frozen=True, eq=False)
class _Item:
    """One item of a lab, with its points."""

    entry: Entry
    exercise: Exercise | Document
    kind: str
    name: str
    case: Case | None  # None for a document
    points: float

    @property
    def id(self) -> str:
        """The id, such as `softmax_forward/correctness/rows=29,cols=1001,fp16`."""
        return f"{self.exercise.name}/{self.kind}/{self.name}"


@dataclass(frozen=True, eq=False)
class CaseItem(_Item):
    """An item of a function, with the case to run, compile or time."""

    exercise: Exercise
    case: Case


@dataclass(frozen=True, eq=False)
class DocumentItem(_Item):
    """A check of a document; no code is run."""

    exercise: Document
    case: None


Item: TypeAlias = CaseItem | DocumentItem


def graded_items(entry: Entry) -> Iterator[Item]:
    """Yield all items of a lab, exercise by exercise; cases come first, as code and speed depend on them."""
    for exercise in entry.lab.exercises:
        if isinstance(exercise, Document):
            for name, (points, _) in exercise.checks.items():
                yield DocumentItem(entry, exercise, DOCUMENT, name, None, points)
            continue
        share = exercise.points / len(exercise.cases)
        for case in exercise.cases:
            yield CaseItem(entry, exercise, CORRECTNESS, case.name, case, share)
        if exercise.codegen:
            for name, points in (exercise.codegen.checks or {COMPILES: 0.0}).items():
                yield CaseItem(entry, exercise, CODEGEN, name, exercise.codegen.case, points)
        if exercise.speed:
            share = exercise.speed.points / len(exercise.speed.shapes)
            for case in exercise.speed.shapes:
                yield CaseItem(entry, exercise, SPEED, case.name, case, share)
