"""Test coverage of each room: a record of the output of `coverage json`, and its table."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from grader.course import catalog
from grader.results.machine import now

RECORD = Path("solutions", "results", "coverage.json")
# Those processes get a fresh environment, in which coverage does not start.
UNSEEN = "what runs in a worker or in the fork server: they are processes without coverage"


class RoomCoverage(BaseModel):
    """One room: its statements as coverage counts them, and those that a test ran."""

    model_config = ConfigDict(extra="forbid")

    room: str
    statements: int
    run: int


class CoverageRecord(BaseModel):
    """One measurement over all rooms."""

    model_config = ConfigDict(extra="forbid")

    date: str
    tests: str  # the selected tests, as pytest's options name them
    unseen: str
    python: str
    coverage: str
    pytest: str
    rooms: list[RoomCoverage]


def record(counted: Path, tests: str) -> CoverageRecord:
    """Return the record of a file by `coverage json`; ValueError if it has no file of the grader."""
    files = json.loads(counted.read_text("utf-8"))["files"]
    rooms: dict[str, RoomCoverage] = {}
    for name, one in sorted(files.items()):
        parts = Path(name).parts
        if parts[0] != "grader" or len(parts) < 3:
            continue
        room = rooms.setdefault(parts[1], RoomCoverage(room=parts[1], statements=0, run=0))
        room.statements += one["summary"]["num_statements"]
        room.run += one["summary"]["covered_lines"]
    if not rooms:
        raise ValueError(f"{counted} has no file of the grader")
    return CoverageRecord(
        date=now(),
        tests=tests,
        unseen=UNSEEN,
        python=platform.python_version(),
        coverage=version("coverage"),
        pytest=version("pytest"),
        rooms=list(rooms.values()),
    )


def save(found: CoverageRecord, root: Path = catalog.ROOT) -> Path:
    """Write the record to RECORD below `root`, and return its path."""
    (root / RECORD).write_text(found.model_dump_json(indent=1) + "\n", "utf-8")
    return root / RECORD


def table(path: Path) -> str:
    """Return one row for each room, and the processes that are not measured."""
    found = CoverageRecord.model_validate_json(path.read_text("utf-8"))
    statements, run = (sum(getattr(one, name) for one in found.rooms) for name in ("statements", "run"))
    total = RoomCoverage(room="all", statements=statements, run=run)
    lines = ["| room | statements | run by a test | percent |", "|---|---:|---:|---:|"]
    lines += [
        f"| {one.room} | {one.statements:,} | {one.run:,} | {100 * one.run / max(1, one.statements):.0f} |"
        for one in [*found.rooms, total]
    ]
    words = (
        f"pytest {found.tests}; Python {found.python}, coverage {found.coverage}, pytest {found.pytest}, "
        f"{found.date[:10]}. Not seen: {found.unseen}."
    )
    return "\n".join([*lines, "", words, ""])
