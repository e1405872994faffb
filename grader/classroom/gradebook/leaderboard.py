"""Rank students with a nickname in the roster by percent of the baseline's speed."""

from __future__ import annotations

from dataclasses import dataclass

from grader.classroom.gradebook.book import Book
from grader.classroom.gradebook.people import NICKNAMES, cell
from grader.course.items import SPEED


@dataclass(frozen=True)
class Place:
    """One entry of a leaderboard; equal percentages share a rank."""

    rank: int
    nickname: str
    percent: float


@dataclass(frozen=True)
class Board:
    """The leaderboard of one exercise, fastest first."""

    lab: str
    exercise: str
    baseline: str
    places: tuple[Place, ...]


def boards(book: Book) -> list[Board]:
    """Return one board per timed exercise; percentages above 100 rank although they earn no more points."""
    nicknames = {row.id: cell(row.roster, *NICKNAMES) for row in book.rows}
    found: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for row in book.rows:
        for one in row.cells if nicknames[row.id] else ():
            for exercise in one.exercises:
                if exercise.percent is not None:
                    baseline = next(item.baseline for item in exercise.items if item.kind == SPEED)
                    key = (one.unit.title, exercise.name, baseline)
                    found.setdefault(key, []).append((exercise.percent, nicknames[row.id]))
    return [Board(*key, _ranked(percents)) for key, percents in found.items()]


def _ranked(percents: list[tuple[float, str]]) -> tuple[Place, ...]:
    ordered = sorted(percents, key=lambda one: (-round(one[0], 1), one[1]))
    shown = [round(percent, 1) for percent, _ in ordered]
    return tuple(
        Place(shown.index(value) + 1, nickname, value)
        for value, (_, nickname) in zip(shown, ordered, strict=True)
    )
