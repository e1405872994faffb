"""The path of a submission: the rooms that a graded run of lab 1 enters, and the calls between them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from grader.course import catalog
from grader.grading.options import RunOptions
from grader.site.architecture import traced
from grader.site.architecture.rooms import room_of

OPTIONS = RunOptions(labs="1", source="solutions", tier="cpu")
COMMAND = OPTIONS.arguments()
LIMIT_S = 300.0


class WayError(RuntimeError):
    """The graded run failed; the message has its exit code and its last output."""


@dataclass(frozen=True)
class Step:
    """The calls of a run in one room."""

    room: str
    first_module: str  # below the room
    entered_from: str  # the module that called it first; empty for the first room
    modules: int
    calls_in: int  # from other rooms
    calls_between: int  # from one of its modules to another


@dataclass(frozen=True)
class Way:
    """The path of a run through the grader; modules are named without the leading `grader.`."""

    first: dict[str, str]  # each module, in the order in which it was entered, with the one that called it
    calls: Counter[tuple[str, str]]  # from one module to another one

    @property
    def between_rooms(self) -> Counter[tuple[str, str]]:
        """Calls from one room to another."""
        counted: Counter[tuple[str, str]] = Counter()
        for (caller, called), count in self.calls.items():
            rooms = _room(caller), _room(called)
            if rooms[0] and rooms[0] != rooms[1]:
                counted[rooms] += count
        return counted

    @property
    def steps(self) -> list[Step]:
        """The rooms in the order in which they were entered."""
        modules: dict[str, list[str]] = {}
        for module in self.first:
            modules.setdefault(_room(module), []).append(module)
        return [
            Step(
                room,
                inside[0].removeprefix(f"{room}."),
                self.first[inside[0]],
                len(inside),
                sum(count for (_, called), count in self.between_rooms.items() if called == room),
                sum(count for (a, b), count in self.calls.items() if a != b and _room(a) == _room(b) == room),
            )
            for room, inside in modules.items()
        ]


def trace(root: Path = catalog.ROOT) -> Way:
    """Grade the course's solution of lab 1 in a separate process and count calls; WayError if it fails."""
    with tempfile.TemporaryDirectory(prefix="grader-way-") as folder:
        out = Path(folder, "calls.json")
        arguments = replace(OPTIONS, results=Path(folder)).arguments()
        command = [sys.executable, "-m", traced.HERE, str(out), *arguments]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT_S
        )
        if done.returncode or not out.is_file():
            raise WayError(f"{' '.join(COMMAND)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return read(out.read_text("utf-8"))


def read(counted: str) -> Way:
    """Return the way from the JSON that `traced` wrote."""
    data = json.loads(counted)
    first = {_short(module): _short(caller) for module, caller in data["first"].items()}
    return Way(first, Counter({(_short(a), _short(b)): count for a, b, count in data["calls"]}))


def _short(module: str) -> str:
    return module.removeprefix("grader.").removesuffix(".__init__")


def _room(module: str) -> str:
    return room_of(f"grader.{module}") if module else ""
