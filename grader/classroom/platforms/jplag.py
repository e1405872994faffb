"""Export the collected files for a similarity checker: one folder per student, and the skeletons.

JPlag compares the folders below one root and ignores matches with the base code:
`jplag -l python3 -bc lab2_online_softmax/base lab2_online_softmax/submissions`
"""

from __future__ import annotations

import shutil
from pathlib import Path

from grader.classroom import records
from grader.classroom.intake import expected_files
from grader.classroom.records import Intake, RunRecord
from grader.classroom.run_folder import RunFolder
from grader.course import catalog
from grader.course.skeleton import COPIES
from grader.system.files import read_bytes

SUBMISSIONS, BASE = "submissions", "base"
CODE = (".py", ".cu", ".cuh")  # plots and records are similar because the same command makes them


def write(run_folder: Path, out: Path) -> dict[str, int]:
    """Write the folders; return the number of students by lab. Raises FileExistsError for a folder in use.

    The base code is the skeletons as released, so that given code does not count as copied.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out}: has files in it already; name a new folder")
    run = RunFolder(run_folder)
    record = records.read(run.run, RunRecord)
    counts = {}
    for unit in record.units:
        counts[unit.name] = sum(_student(run, unit.name, student, out) for student in record.students)
        _base(unit.name, out / unit.name / BASE)
    return counts


def _student(run: RunFolder, unit: str, student: str, out: Path) -> bool:
    folder = run.student(student)
    if not folder.intake.exists():
        return False
    paths = [Path(one.path) for one in records.read(folder.intake, Intake).files]
    code = [path for path in paths if path.parts[0] == unit and path.suffix in CODE]
    for path in code:
        target = out / unit / SUBMISSIONS / student / path.relative_to(unit)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_bytes(folder.files / path))
    return bool(code)


def _base(unit: str, out: Path) -> None:
    copies = catalog.ROOT / COPIES  # as released; the files in labs/ may have been changed
    root = copies if unit == catalog.CAPSTONE.name else copies / "labs"
    (collected,) = (one for one in expected_files.units() if one.unit.name == unit)
    for name in collected.files:
        source = root / unit / name
        if source.suffix in CODE and source.is_file():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, out / name)
