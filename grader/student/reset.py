"""Replace a student's file by its skeleton, after saving a copy of the work; imports no torch.

The skeletons are the copies in grader/course/skeletons/: git would restore what the student has committed,
and students have no solutions to render skeletons from.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.course import catalog
from grader.course.skeleton import COPIES
from grader.system.files import read_bytes, replace
from grader.system.text import one_line

KEPT = "kept"  # in the folder for results; `make clean` does not delete it
_STAMP = re.compile(r"-(\d{8}-\d{6})(?:-(\d+))?$")


class ResetError(ValueError):
    """A file cannot be reset or restored; the message, for a student, says why."""


@dataclass(frozen=True)
class StudentFile:
    """A file that a student completes: its path, its skeleton, its lab's folder, and the functions in it."""

    path: Path
    skeleton: Path
    lab: str
    name: str  # as in lab.py, `matmul/01_naive.cu`
    functions: tuple[str, ...]

    def matches(self, word: str) -> bool:
        """Whether a student may mean this file by `word`."""
        return word in (self.name, self.path.name, self.path.stem, *self.functions)


def student_files(entries: Iterable[catalog.Entry], root: Path = catalog.ROOT) -> list[StudentFile]:
    """Return every file of these labs that starts as a skeleton, in the order of the exercises."""
    found = []
    for entry in entries:
        for name in dict.fromkeys(exercise.file for exercise in entry.lab.exercises):
            asked = [exercise for exercise in entry.lab.exercises if exercise.file == name]
            path = entry.submission(root / "labs", asked[0])
            skeleton = root / COPIES / path.relative_to(root)
            if skeleton.is_file():
                functions = tuple(exercise.name for exercise in asked)
                found.append(StudentFile(path, skeleton, entry.folder.name, name, functions))
    return found


def current(file: StudentFile) -> bytes | None:
    """Return the content of the file, None if it is missing; ResetError if it is not a regular file."""
    try:
        return read_bytes(file.path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ResetError(f"{error}: nothing was changed, check the file yourself") from None
    except OSError as error:
        raise ResetError(f"{file.path.name} cannot be read: {error.strerror}") from None


def keep(file: StudentFile, data: bytes, results: Path) -> Path:
    """Write a copy under a new name, read it back and return its path; ResetError if that fails."""
    folder = results / KEPT / file.lab / Path(file.name).parent
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            again = f"-{number}" if number > 1 else ""
            path = folder / f"{file.path.stem}-{stamp}{again}{file.path.suffix}"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                break
            except FileExistsError:
                number += 1
        with open(descriptor, "wb") as copy:
            copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
        if path.read_bytes() != data:
            raise ResetError(f"the copy {path} differs from what was written; {file.path.name} is unchanged")
    except OSError as error:
        words = f"no copy can be saved in {results} ({error.strerror}); {file.path.name} is unchanged"
        raise ResetError(words) from None
    return path


def kept(file: StudentFile, results: Path) -> list[Path]:
    """Return the paths of the saved copies of the file, the oldest first."""
    folder = results / KEPT / file.lab / Path(file.name).parent
    found = []
    for path in folder.glob(f"*{file.path.suffix}"):
        stamp = _STAMP.search(path.stem)
        if stamp and path.stem[: stamp.start()] == file.path.stem:
            found.append((stamp[1], int(stamp[2] or 1), path))
    return [path for _, _, path in sorted(found)]


def reset(file: StudentFile, results: Path) -> Path | None:
    """Put the skeleton back; return the path of the saved copy, None if there was no work to save."""
    return _put(file, file.skeleton.read_bytes(), results)


def restore(file: StudentFile, which: str | None, results: Path) -> tuple[Path, Path | None]:
    """Restore a saved copy, the newest unless `which` names one; return its path and that of the new copy.

    The new copy, of the file's content until then, is None if there was no work to save. ResetError if there
    is no such copy.
    """
    copies = kept(file, results)
    chosen = [path for path in copies if which in (None, path.name, str(path))]
    if not chosen:
        what = f"no copy of {file.name} named {one_line(which)}" if which else f"no copy of {file.name}"
        names = ", ".join(path.name for path in copies)
        raise ResetError(f"{what} in {results / KEPT / file.lab}" + (f"; there are {names}" if names else ""))
    return chosen[-1], _put(file, _copy(chosen[-1]), results)


def _copy(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except (OSError, ValueError) as error:
        raise ResetError(f"{path.name} cannot be read: {error}") from None


def _put(file: StudentFile, data: bytes, results: Path) -> Path | None:
    """Replace the file in one step, after its content is saved; return the path of that copy, if any."""
    before = current(file)
    copy = None
    if before == data:
        return None
    if before not in (None, file.skeleton.read_bytes()):
        same = [path for path in kept(file, results) if _copy(path) == before]
        copy = same[-1] if same else keep(file, before, results)
    if current(file) != before:
        raise ResetError(f"{file.path.name} was saved again meanwhile; nothing was changed, try again")
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        replace(file.path, data)
    except OSError as error:
        raise ResetError(f"{file.path.name} cannot be written: {error.strerror}") from None
    return copy
