"""The files that are collected for each lab and the capstone; nothing else is copied from a submission."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from grader.classroom.records import Unit
from grader.course import catalog
from grader.course.spec import Exercise

# The capstone's documents are checked against the records, plots and sources that they were made from.
CAPSTONE = (
    "KERNEL_LOG.md",
    "kernel-log/*/*",
    "hardware-survey/README.md",
    "hardware-survey/*.json",
    "hardware-survey/*.svg",
    "cuda-kernels/bench.json",
    "cuda-kernels/plots/*.svg",
    "cuda-kernels/*/*.cu",
    "cuda-kernels/*/*.cuh",
    "triton-kernels/bench.json",
    "triton-kernels/plots/*.svg",
    "triton-kernels/*.py",
)
SUFFIXES = (".py", ".cu", ".cuh", ".json", ".md", ".svg")
NEVER = ("lab.py",)  # belongs to the course, never to a student


@dataclass(frozen=True)
class Collected:
    """The files collected for one unit, by name and by pattern, relative to the unit's folder."""

    unit: Unit
    files: tuple[str, ...]
    patterns: tuple[str, ...] = ()

    def fits(self, path: str) -> bool:
        """Whether a path, relative to the unit's folder, is collected."""
        if path in self.files:
            return True
        pure = PurePosixPath(path)
        if pure.suffix not in SUFFIXES or pure.name in NEVER:
            return False
        return any(
            len(pure.parts) == pattern.count("/") + 1 and pure.match(pattern) for pattern in self.patterns
        )


def units(root: Path = catalog.ROOT) -> list[Collected]:
    """Return all labs by number, then the capstone if the course has one."""
    found = [_lab(entry) for entry in catalog.find(root / "labs")]
    if (root / catalog.CAPSTONE).is_dir():
        found.append(_capstone(catalog.capstone(root)))
    return found


def chosen(labs: str | None, known: list[Collected]) -> list[Collected]:
    """Return the units that `--lab` names, all labs for None. Raises ValueError for an unknown name."""
    if not labs:
        return [one for one in known if one.unit.lab != "capstone"]
    by_word = {one.unit.lab: one for one in known}
    words = list(dict.fromkeys(labs.replace(",", " ").split()))
    wrong = [word for word in words if word not in by_word]
    if wrong or not words:
        raise ValueError(f"--lab {labs}: what can be graded is {', '.join(by_word)}")
    return [by_word[word] for word in words]


def _lab(entry: catalog.Entry) -> Collected:
    files = tuple(dict.fromkeys(exercise.file for exercise in entry.lab.exercises))
    return Collected(_unit(entry.folder.name, str(entry.number), entry.lab.title, [entry]), files)


def _capstone(entries: list[catalog.Entry]) -> Collected:
    source, top = Path("files"), Path("files") / catalog.CAPSTONE
    files = tuple(
        dict.fromkeys(
            entry.submission(source, exercise).relative_to(top).as_posix()
            for entry in entries
            for exercise in entry.lab.exercises
        )
    )
    unit = _unit(catalog.CAPSTONE.name, "capstone", "capstone", entries)
    return Collected(unit, files, CAPSTONE)


def _unit(name: str, lab: str, title: str, entries: list[catalog.Entry]) -> Unit:
    points = {one.name: _points(one) for entry in entries for one in entry.lab.exercises}
    return Unit(name=name, lab=lab, title=title, max_points=sum(points.values()), exercises=points)


def _points(exercise) -> float:
    if not isinstance(exercise, Exercise):
        return exercise.points
    speed = exercise.speed.points if exercise.speed else 0.0
    return exercise.points + speed + (sum(exercise.codegen.checks.values()) if exercise.codegen else 0.0)
