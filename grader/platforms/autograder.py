"""The zip that Gradescope builds its container from: the course without solutions, and two scripts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from grader import catalog
from grader.batch import models
from grader.batch.layout import RunFolder
from grader.batch.models import RunRecord, State, TaskRecord
from grader.files import read_bytes, replace
from grader.platforms.merge import keyed
from grader.results import MOST_BYTES, ExerciseResult, Results

COURSE = "course"  # folder in the zip
ASKED, HIDDEN, GPU = "autograder.json", "hidden.toml", "gpu.json"  # in that folder
TREES = ("grader", "labs", "gpu-programming")
FILES = ("pyproject.toml", "constraints.txt", "LICENSE")
NEVER = {"__pycache__", "tests", "results", "figures"}
SCRIPTS = ("setup.sh", "run_autograder")
WHEN = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same course gives the same bytes
LIMIT_S = 540.0  # of Gradescope's ten minutes, the rest is for writing down what became of it


class Asked(BaseModel):
    """autograder.json: what the container is to grade."""

    model_config = ConfigDict(extra="forbid")
    labs: str  # as `grade --lab` takes it
    limit_s: float = LIMIT_S


class Scored(BaseModel):
    """One exercise that a GPU graded, for whoever hands in the very same file."""

    model_config = ConfigDict(extra="forbid")
    folder: str
    exercise: ExerciseResult


class GpuScores(BaseModel):
    """gpu.json: no names, as the hash of a file says whose it is."""

    model_config = ConfigDict(extra="forbid")
    scored: list[Scored]

    @property
    def keyed(self):
        """As merge.merged takes them."""
        return {(s.folder, s.exercise.name, s.exercise.file_sha256): s.exercise for s in self.scored}


class AutograderError(Exception):
    """There is nothing to make the zip of, in one line."""


def write(out: Path, labs: list[catalog.Entry], hidden: Path | None = None, gpu: Path | None = None) -> int:
    """Write the zip; the number of its exercises with GPU scores. `gpu` is the folder of a class run."""
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
        for path in _course():
            _add(archive, f"{COURSE}/{path.relative_to(catalog.ROOT).as_posix()}", path.read_bytes())
    replace(out, data.getvalue())
    return len(scores.scored) if scores else 0


def _course() -> Iterator[Path]:
    """What grades, and what is asked; no solution, and nothing that a run has left."""
    for tree in TREES:
        for path in sorted((catalog.ROOT / tree).rglob("*")):
            parts = path.relative_to(catalog.ROOT).parts
            if path.is_file() and not path.is_symlink() and not NEVER & set(parts):
                yield path
    yield from (catalog.ROOT / name for name in FILES)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = zipfile.ZipInfo(name, WHEN)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
    entry.create_system = 3  # Unix: the mode counts
    archive.writestr(entry, data)


def gpu_scores(run_folder: Path, labs: set[str]) -> GpuScores:
    """What a class run on a GPU found, by file; AutograderError where it has nothing of these labs."""
    run = RunFolder(run_folder)
    try:
        record = models.read(run.run, RunRecord)
    except (OSError, ValueError):
        raise AutograderError(f"{run_folder}: no class run lies there; make class makes one") from None
    found: dict = {}
    for student in record.students:
        for unit in record.units:
            place = run.student(student).unit(unit.name)
            if (
                unit.name in labs
                and place.task.exists()
                and models.read(place.task, TaskRecord).state is State.GRADED
            ):
                results = Results.model_validate_json(read_bytes(place.results, MOST_BYTES))
                if results.tier == "gpu":
                    found |= keyed(results)
    if not found:
        raise AutograderError(f"{run_folder}: none of these labs was graded on a GPU there")
    return GpuScores(
        scored=[
            Scored(folder=folder, exercise=found[folder, name, sha]) for folder, name, sha in sorted(found)
        ]
    )
