"""What a student may hand in, from the catalog: nothing else is copied out of a submission."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from grader import catalog
from grader.batch.models import Unit
from grader.spec import Exercise

# Documents of the capstone are checked with the records, plots and sources that they were made from.
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
NEVER = ("lab.py",)  # of the course, wherever it lies


@dataclass(frozen=True)
class Collected:
    """The files of one unit: `files` by name, and for the capstone whatever fits one of `patterns`; both
    below the unit's folder.
    """

    unit: Unit
    files: tuple[str, ...]
    patterns: tuple[str, ...] = ()

    def fits(self, path: str) -> bool:
        """Whether a path below the unit's folder is one that is collected."""
        if path in self.files:
            return True
        pure = PurePosixPath(path)
        if pure.suffix not in SUFFIXES or pure.name in NEVER:
            return False
        return any(
            len(pure.parts) == pattern.count("/") + 1 and pure.match(pattern) for pattern in self.patterns
        )


def units(root: Path = catalog.ROOT) -> list[Collected]:
    """Every lab by its number, then the capstone where the course has one."""
    found = [_lab(entry) for entry in catalog.find(root / "labs")]
    if (root / catalog.CAPSTONE).is_dir():
        found.append(_capstone(catalog.capstone(root)))
    return found


def chosen(labs: str | None, known: list[Collected]) -> list[Collected]:
    """Units by the words of `--lab`, numbers and `capstone`; all labs for None. ValueError for others."""
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
