"""The record of tool output on a GPU that notebooks show: one entry for each recorder, with its machine."""

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
    """The result of a recorder: texts of tools by name, and figures by a name that includes the unit."""

    command: str  # what a reader types to get the same output
    texts: dict[str, str] = {}
    figures: dict[str, float] = {}


class Entry(Told):
    """The result of a recorder with its date and machine."""

    date: str
    machine: Machine


class Lessons(Record):
    """The record of all recorders, one file."""

    made_by: ClassVar[str] = "python -m grader notebooks --record"

    entries: dict[str, Entry] = {}


@dataclass(frozen=True)
class Recorder:
    """One measurement on a GPU: `record` runs there, and raises RuntimeError if it cannot."""

    name: str
    record: Callable[[], Told]


def entry(result: Told, found: Gpu) -> Entry:
    """Return the result of a recorder with the current date and this machine."""
    return Entry(**result.model_dump(), date=now(), machine=machine(found, ""))


def run(
    recorders: Sequence[Recorder], path: Path, found: Gpu, follower: Follower
) -> tuple[Lessons, dict[str, str]]:
    """Run the recorders, save each result at once, and keep the other entries of the file.

    Returns the record, and the errors by recorder. A recorder that fails leaves its earlier entry unchanged.
    """
    lessons = Lessons.read(path) if path.exists() else Lessons()
    troubles = {}
    follower.begin(len(recorders))
    for one in recorders:
        follower.running(one.name, "")
        try:
            result = one.record()
        except Exception as error:  # whatever one tool raises, the other recorders still run
            troubles[one.name] = f"{type(error).__name__}: {error}"
        else:
            lessons.entries[one.name] = entry(result, found)
            lessons.save(path)
        follower.done()
    return lessons, troubles
