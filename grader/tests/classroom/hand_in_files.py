"""Writes hand-ins and rosters, and collects them."""

import gzip
import io
import tarfile
import zipfile

from grader.classroom.intake import entries, expected_files, intake
from grader.classroom.intake import roster as rosters
from grader.classroom.intake.roster import Roster
from grader.classroom.run_folder import RunFolder

UNIT, FILE = "lab1_elementwise_add", "elementwise_add.py"
UNITS = expected_files.units()


def write(path, text="mine"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def roster_of(folder, text):
    return rosters.read(write(folder.parent / "roster.csv", text))


def collected(folder, student, roster=None):
    roster = roster or Roster()
    handed_in = entries.by_student(folder, roster).found[student]
    return intake.collect(handed_in, roster, UNITS, RunFolder(folder.parent / "out"))


def zip_of(path, *names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "mine")


def tarred(path, *members, before=b""):
    with gzip.open(path, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        file.write(before)
        for name, data, *more in members:
            one = tarfile.TarInfo(name)
            one.size, one.mtime = len(data), 1_800_000_000
            for key, value in more:
                setattr(one, key, value)
            archive.addfile(one, io.BytesIO(data))
