"""The collected files of a class as a similarity checker takes them: a folder a student, and the skeletons.

JPlag compares the folders below one root, and leaves out what is in its base code too:
`jplag -l python3 -bc lab2_online_softmax/base lab2_online_softmax/submissions`
"""

from __future__ import annotations

import shutil
from pathlib import Path

from grader import catalog
from grader.batch import models, wanted
from grader.batch.layout import RunFolder
from grader.batch.models import Intake, RunRecord
from grader.files import read_bytes
from grader.skeleton import COPIES

SUBMISSIONS, BASE = "submissions", "base"
CODE = (".py", ".cu", ".cuh")  # plots and records are alike because they are made by the same command


def write(run_folder: Path, out: Path) -> dict[str, int]:
    """Students by lab, with the files that were collected of them; FileExistsError for a folder in use.

    The base code is the skeletons as they are handed out, so that what the course gave is nobody's copy.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out}: has files in it already; name a folder that is not there yet")
    run = RunFolder(run_folder)
    record = models.read(run.run, RunRecord)
    counts = {}
    for unit in record.units:
        counts[unit.name] = sum(_student(run, unit.name, student, out) for student in record.students)
        _base(unit.name, out / unit.name / BASE)
    return counts


def _student(run: RunFolder, unit: str, student: str, out: Path) -> bool:
    folder = run.student(student)
    if not folder.intake.exists():
        return False
    paths = [Path(one.path) for one in models.read(folder.intake, Intake).files]
    mine = [path for path in paths if path.parts[0] == unit and path.suffix in CODE]
    for path in mine:
        target = out / unit / SUBMISSIONS / student / path.relative_to(unit)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_bytes(folder.files / path))
    return bool(mine)


def _base(unit: str, out: Path) -> None:
    copies = catalog.ROOT / COPIES  # as they were handed out, whatever stands in labs/ here
    root = copies if unit == catalog.CAPSTONE.name else copies / "labs"
    (collected,) = (one for one in wanted.units() if one.unit.name == unit)
    for name in collected.files:
        source = root / unit / name
        if source.suffix in CODE and source.is_file():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, out / name)
