"""The record of what notebooks show of real tools on a GPU: one entry a recorder, each with its machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grader.grading.progress import Follower
from grader.results.machine import Machine, machine, now
from grader.results.records import Model, Record
from grader.system.gpu import Gpu

LESSONS = Path("solutions/results/h200-lessons.json")


class Told(Model):
    """What a recorder found out: texts of tools by name, and figures by a name that carries the unit."""

    command: str  # what a reader types to see the same
    texts: dict[str, str] = {}
    figures: dict[str, float] = {}


class Entry(Told):
    """The same with when and where."""

    date: str
    machine: Machine


class Lessons(Record):
    """One file for all recorders."""

    made_by: ClassVar[str] = "python -m grader notebooks --record"

    entries: dict[str, Entry] = {}


@dataclass(frozen=True)
class Recorder:
    """One thing to see on a GPU: `record` runs there and raises RuntimeError where it cannot."""

    name: str
    record: Callable[[], Told]


def entry(told: Told, found: Gpu) -> Entry:
    """What was told now, on the GPU that was found."""
    return Entry(**told.model_dump(), date=now(), machine=machine(found, ""))


def run(
    recorders: Sequence[Recorder], path: Path, found: Gpu, follower: Follower
) -> tuple[Lessons, dict[str, str]]:
    """Ask the recorders, put what each told into the file at once, and keep its other entries.

    Returns the record, and what went wrong by the recorder's name: one that fails leaves its entry as it was.
    """
    lessons = Lessons.read(path) if path.exists() else Lessons()
    troubles = {}
    follower.begin(len(recorders))
    for one in recorders:
        follower.running(one.name, "")
        try:
            told = one.record()
        except Exception as error:  # of a tool on another machine: the other recorders can still tell theirs
            troubles[one.name] = f"{type(error).__name__}: {error}"
        else:
            lessons.entries[one.name] = entry(told, found)
            lessons.save(path)
        follower.done()
    return lessons, troubles
