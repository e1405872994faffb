"""Write the zip for a Gradescope autograder: the course without solutions, and two scripts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from grader.classroom import records
from grader.classroom.platforms.merge import keyed
from grader.classroom.records import RunRecord, State, TaskRecord
from grader.classroom.release import answers, token_search
from grader.classroom.release.build import check
from grader.classroom.release.contents import File, choose
from grader.classroom.release.source import ReleaseError
from grader.classroom.run_folder import RunFolder
from grader.course import catalog
from grader.course.skeleton import COPIES
from grader.results import reading
from grader.results.models import ExerciseResult
from grader.system.files import read_bytes, replace

COURSE = "course"  # folder in the zip
ASKED, HIDDEN, GPU = "autograder.json", "hidden.toml", "gpu.json"  # in that folder
TREES = ("grader", "labs", "gpu-programming")
FILES = ("pyproject.toml", "constraints.txt", "LICENSE")
NEVER = ("__pycache__", "grader/tests", "grader/site/figures", "gpu-programming/results", "labs/results")
SCRIPTS = ("setup.sh", "run_autograder")
WHEN = (1980, 1, 1, 0, 0, 0)  # date of every file, so that the same course gives the same bytes
LIMIT_S = 540.0  # of Gradescope's ten minutes; the rest is for writing the results


class Asked(BaseModel):
    """autograder.json: what the container grades."""

    model_config = ConfigDict(extra="forbid")
    labs: str  # argument of `grade --lab`
    limit_s: float = LIMIT_S


class Scored(BaseModel):
    """GPU result of one exercise, for every submission of the same file."""

    model_config = ConfigDict(extra="forbid")
    folder: str
    exercise: ExerciseResult


class GpuScores(BaseModel):
    """gpu.json: GPU results by file hash, without names."""

    model_config = ConfigDict(extra="forbid")
    scored: list[Scored]

    @property
    def keyed(self):
        """The results in the form that merge.merged expects."""
        return {(s.folder, s.exercise.name, s.exercise.code_sha256): s.exercise for s in self.scored}


class AutograderError(Exception):
    """The zip cannot be made; the message is for an instructor."""


def write(out: Path, labs: list[catalog.Entry], hidden: Path | None = None, gpu: Path | None = None) -> int:
    """Write the zip; return the number of exercises with GPU scores. `gpu` is the folder of a class run.

    Raises AutograderError if `gpu` has no scores, or if a file of the course holds an answer.
    """
    files = course()
    scores = gpu_scores(gpu, {entry.folder.name for entry in labs}) if gpu else None
    asked = Asked(labs=",".join(str(entry.number) for entry in labs))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in SCRIPTS:
            _add(archive, name, (Path(__file__).with_name("container") / name).read_bytes(), 0o755)
        _add(archive, f"{COURSE}/{ASKED}", asked.model_dump_json().encode())
        if hidden:
            _add(archive, f"{COURSE}/{HIDDEN}", read_bytes(hidden), 0o600)
        if scores:
            _add(archive, f"{COURSE}/{GPU}", scores.model_dump_json().encode(), 0o600)
        for path, file in files.items():
            _add(archive, f"{COURSE}/{path}", file.data)
    replace(out, data.getvalue())
    return len(scores.scored) if scores else 0


def course(root: Path = catalog.ROOT) -> dict[str, File]:
    """Return the files of grader and labs as students get them, with skeletons in place of what labs/ has.

    Solutions, tests, results and pages for course staff stay out. Raises AutograderError for an answer.
    """
    files = {path.relative_to(root).as_posix(): File(path.read_bytes()) for path in _lying(root)}
    chosen, _ = choose(files)
    copies = f"{COPIES.as_posix()}/"
    skeletons = {path.removeprefix(copies): file for path, file in chosen.items() if path.startswith(copies)}
    chosen |= skeletons
    try:
        check(chosen, answers.collect(root), token_search.collect(root))
    except (ReleaseError, FileNotFoundError) as error:
        raise AutograderError(str(error)) from None
    return dict(sorted(chosen.items()))


def _lying(root: Path) -> Iterator[Path]:
    """Yield the files of the zip as they lie in the checkout."""
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            inside = f"/{path.relative_to(root).as_posix()}/"
            if path.is_file() and not path.is_symlink() and not any(f"/{name}/" in inside for name in NEVER):
                yield path
    yield from (root / name for name in FILES)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = zipfile.ZipInfo(name, WHEN)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
    entry.create_system = 3  # Unix: the mode counts
    archive.writestr(entry, data)


def gpu_scores(run_folder: Path, labs: set[str]) -> GpuScores:
    """Return the GPU results of a class run by file. Raises AutograderError if it has none of these labs."""
    run = RunFolder(run_folder)
    try:
        record = records.read(run.run, RunRecord)
    except (OSError, ValueError):
        raise AutograderError(f"{run_folder}: no class run in this folder; make class makes one") from None
    found: dict = {}
    for student in record.students:
        for unit in record.units:
            place = run.student(student).unit(unit.name)
            if (
                unit.name in labs
                and place.task.exists()
                and records.read(place.task, TaskRecord).state is State.GRADED
            ):
                results = reading.read(place.results)
                if results.tier == "gpu":
                    found |= keyed(results)
    if not found:
        raise AutograderError(f"{run_folder}: none of these labs was graded on a GPU there")
    return GpuScores(
        scored=[
            Scored(folder=folder, exercise=found[folder, name, sha]) for folder, name, sha in sorted(found)
        ]
    )
