"""Find labs by their folders, and the file to grade for each exercise; imports no torch."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from grader.course.spec import FOLDER, Document, Exercise, Lab

ROOT = Path(__file__).resolve().parents[2]
CAPSTONE, CAPSTONE_NUMBER = Path("gpu-programming"), 5


class LabError(ValueError):
    """A lab.py cannot be loaded; the message names the file and, where one is known, the line."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A lab: its folder below labs/, its number, and its definition."""

    folder: Path
    number: int
    lab: Lab

    @property
    def lab_file(self) -> Path:
        """The path of lab.py; the reference worker imports it, too."""
        return self.folder / "lab.py"

    @property
    def given(self) -> tuple[Path, ...]:
        """The course's own modules and headers that the lab's files may import or include."""
        modules = [f"{name}.py" for name in self.lab.given]
        return tuple(self.folder / name for name in (*modules, *self.lab.headers))

    def submission(self, source: Path, exercise: Exercise | Document) -> Path:
        """Return the path of the exercise's file in `source`, a tree laid out like labs/.

        The capstone's folder is beside labs/, and in any other tree inside it.
        """
        if self.folder.name == CAPSTONE.name:
            return capstone_in(source) / exercise.file
        if self.folder.parent.name == CAPSTONE.name:
            source = capstone_in(source)
        return source / self.folder.name / exercise.file


def capstone_in(source: Path) -> Path:
    """Return the capstone's folder for a tree laid out like labs/: beside labs/, inside any other tree."""
    return (source.parent if source.name == "labs" else source) / CAPSTONE


def load(lab_file: Path) -> Entry:
    """Load the lab that a lab.py defines; LabError if its folder or the file is not valid."""
    folder = lab_file.resolve().parent
    match = FOLDER.fullmatch(folder.name)
    if not match:
        raise LabError(f"{folder.name}: a lab's folder needs a name like lab5_row_sum")
    name = f"labs_{folder.name}"
    specification = importlib.util.spec_from_file_location(name, lab_file)
    if specification is None or specification.loader is None:
        raise LabError(f"{lab_file}: the name does not end in .py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # name the lab, whatever its code raised
        line = _line(error, specification.origin)
        place = f"{_shown(lab_file)}:{line}" if line else _shown(lab_file)
        raise LabError(f"{place}: {type(error).__name__}: {error}") from error
    if not isinstance(getattr(module, "LAB", None), Lab):
        raise LabError(f"{_shown(lab_file)}: defines no LAB of type grader.course.spec.Lab")
    files = {one.file for one in module.LAB.exercises}
    for file, others in module.LAB.imports.items():
        if unknown := {file, *others} - files:
            raise ValueError(f"{lab_file}: imports names {sorted(unknown)[0]!r}, which is no exercise's file")
    return Entry(folder, int(match[1] or CAPSTONE_NUMBER), module.LAB)


def _shown(lab_file: Path) -> str:
    path = lab_file.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _line(error: Exception, file: str | None) -> int | None:
    """Return the line of the file that raised the error, or called what did; None if no line did."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return lines[-1] if lines else None


def capstone(root: Path = ROOT) -> list[Entry]:
    """Return the graded parts of the capstone, folder by folder.

    Raises FileNotFoundError if there are none, and LabError if one cannot be loaded.
    """
    found = [load(path) for path in sorted((root / CAPSTONE).rglob("lab.py"))]
    if not found:
        raise FileNotFoundError(f"no lab.py below {root / CAPSTONE}")
    return found


def folders(root: Path = ROOT / "labs") -> list[tuple[int, str]]:
    """Return number and folder name of every lab below `root`, by number; loads none."""
    named = [(FOLDER.fullmatch(path.parent.name), path.parent.name) for path in root.glob("*/lab.py")]
    return sorted((int(match[1]), name) for match, name in named if match and match[1])


def find(root: Path = ROOT / "labs") -> list[Entry]:
    """Return every lab below `root`, by number.

    Raises FileNotFoundError if there is none, and LabError if one cannot be loaded.
    """
    found = sorted((load(path) for path in root.glob("*/lab.py")), key=lambda entry: entry.number)
    if not found:
        raise FileNotFoundError(f"no lab.py below {root}")
    return found
