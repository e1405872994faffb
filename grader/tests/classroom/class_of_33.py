"""A class of 33 hand-ins, each of another shape that platforms and students make, and what becomes of each.

`python -m grader.tests.classroom.class_of_33 FOLDER` writes it, collects it with the stand-in for the grader,
and prints folder by folder what it was taken for, who got which grade, and what a person is told to look at.
"""

from __future__ import annotations

import csv
import datetime
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.classroom import records
from grader.classroom.gradebook.command import Asked as BookAsked
from grader.classroom.gradebook.command import make as make_gradebook
from grader.classroom.grading.run import Asked, grade_class
from grader.classroom.records import Intake
from grader.classroom.run_folder import RunFolder
from grader.tests.classroom import fake_grader
from grader.tests.helpers.course import ROOT

UNIT, FILE = "lab1_elementwise_add", "elementwise_add.py"
COLUMNS = ("id", "name", "email", "Canvas ID", "Identifier", "github_username", "group", "section")
Build = Callable[[Path, str], object]


@dataclass(frozen=True)
class HandIn:
    """One entry: how it is built, whose it is, the state of lab 1, and words that a person must be told."""

    entry: str
    build: Build
    students: tuple[str, ...]  # () for somebody who is not on the roster, or nobody for certain
    state: str
    look: str = ""
    word: str = "right"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def at(*names: str) -> Build:
    """A folder with files of these names."""
    return lambda path, text: [write(path / name, text) for name in names]


def different(*names: str) -> Build:
    """A folder with files that differ."""
    return lambda path, text: [write(path / name, f"{text} {name}") for name in names]


def single(path: Path, text: str) -> None:
    write(path, text)


def zipped(*names: str) -> Build:
    def build(path: Path, text: str) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, text)

    return build


def tarred(path: Path, text: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        one = tarfile.TarInfo(f"./labs/{UNIT}/{FILE}")
        one.size = len(text)
        archive.addfile(one, io.BytesIO(text.encode()))


def repository(path: Path, text: str) -> None:
    write(path / "labs" / UNIT / FILE, text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "work"]):
        subprocess.run(["git", "-C", str(path), *who, *command], check=True, capture_output=True)


def whole_course(path: Path, text: str) -> None:
    for name in ("README.md", "labs/README.md", f"labs/{UNIT}/lab.py", f"labs/{UNIT}/README.md"):
        write(path / name, (ROOT / name).read_text("utf-8"))
    write(path / "labs" / UNIT / FILE, text)


def dated(hour: int) -> Build:
    def build(path: Path, text: str) -> None:
        moment = datetime.datetime(2027, 1, 1, hour, tzinfo=datetime.timezone.utc).timestamp()
        os.utime(write(path / FILE, text), (moment, moment))

    return build


def zipped_now(path: Path, text: str) -> None:
    """A zip whose local times do not say whether it was made before or after a folder of today."""
    moment = datetime.datetime.now(datetime.timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(FILE, moment), f"{text} in a zip")


def damaged(path: Path, _text: str) -> None:
    path.write_bytes(b"PK no zip")


def link(path: Path, _text: str) -> None:
    path.symlink_to("/etc")


GRADESCOPE = """submission_9:
  :submitters:
  - {":name": Rita Levi, ":sid": r1, ":email": rita@uni.edu}
  - {":name": Sam Ting, ":sid": s1, ":email": sam@uni.edu}
  :created_at: 2027-01-02 10:00:00 Z
"""
HAND_INS = (
    HandIn("an.li", at(FILE), ("an.li",), "GRADED"),
    HandIn("anli.zip", zipped(FILE), ("anli",), "GRADED", word="wrong"),
    HandIn("AN-LI", at(FILE), (), "REFUSED", "this could be the submission of an.li or anli"),
    HandIn("j.doe@uni.edu", at(FILE), ("u1",), "GRADED"),
    HandIn("jd.oe@uni.edu.zip", zipped(f"my work/{FILE}"), ("u2",), "GRADED", word="wrong"),
    HandIn("1-23", at(f"labs/{UNIT}/{FILE}"), ("1-23",), "GRADED"),
    HandIn("12-3.tar.gz", tarred, ("12-3",), "GRADED", word="wrong"),
    HandIn("0012", at(FILE), ("0012",), "GRADED"),
    HandIn("12", at(FILE), (), "GRADED", "not on the roster"),
    HandIn(f"lovelaceada_501_9001_{FILE}", single, ("ada",), "GRADED"),
    HandIn("byronada_LATE_502_9002_elementwise_add-1.py", single, ("byron",), "GRADED", word="wrong"),
    HandIn("studenttest_99_9003_elementwise_add.py", single, (), "GRADED", "not on the roster"),
    HandIn("Zoë Müller_7001_assignsubmission_file_", at(FILE), ("zoe",), "GRADED"),
    HandIn("Zoe Muller_7002_assignsubmission_file_", at(FILE), ("zoe2",), "GRADED", word="wrong"),
    HandIn("lab1-ann", repository, ("ann",), "GRADED"),
    HandIn("lab1-ann-marie", repository, ("marie",), "GRADED", word="wrong"),
    HandIn("submission_9", at(FILE), ("r1", "s1"), "GRADED"),
    HandIn("team 7", at(FILE), ("t1", "t2"), "GRADED", word="wrong"),
    HandIn("c1", at("elementwise_add (1).py"), ("c1",), "GRADED"),
    HandIn("c2", different("elementwise_add (1).py", "elementwise_add (2).py"), ("c2",), "REFUSED",
           "two files of one name"),
    HandIn("c3", at("Elementwise_Add.py"), ("c3",), "REFUSED", "its name is similar"),
    HandIn("n1", at("lab1.ipynb"), ("n1",), "NOT_COLLECTED", "lab1.ipynb"),
    HandIn("n2", at("solution_final.py"), ("n2",), "NOT_COLLECTED", "solution_final.py"),
    HandIn("n3", at("screenshot.png"), ("n3",), "NOT_COLLECTED", "screenshot.png"),
    HandIn("n4", at(".DS_Store"), ("n4",), "MISSING"),
    HandIn("w1", whole_course, ("w1",), "GRADED"),
    HandIn("a1", dated(9), ("a1",), "GRADED", "a1 (handed in more than once", word="wrong"),
    HandIn("a1.git", dated(10), ("a1",), "GRADED"),
    HandIn("a2", at(FILE), ("a2",), "NOT_COLLECTED", "no time says which is the last"),
    HandIn("a2.zip", zipped_now, ("a2",), "NOT_COLLECTED", "no time says which is the last"),
    HandIn("d1.zip", damaged, ("d1",), "REFUSED", "the archive is damaged"),
    HandIn("l1", link, ("l1",), "REFUSED", "is a link"),
    HandIn("d2.zip", zipped(f"../../{FILE}"), ("d2",), "REFUSED", "leads out of the submission"),
)  # fmt: skip
STRAYS = ("grades.xlsx", "submission_metadata.yml")
ROSTER = (
    ("an.li", "An Li", "", "", "", "", "", "A"),
    ("anli", "Anli Berg", "", "", "", "", "", "B"),
    ("u1", "Jane Doe", "j.doe@uni.edu", "", "", "", "", "A"),
    ("u2", "Jd Oe", "jd.oe@uni.edu", "", "", "", "", "B"),
    ("1-23", "", "", "", "", "", "", ""),
    ("12-3", "", "", "", "", "", "", ""),
    ("0012", "", "", "", "", "", "", ""),
    ("ada", "Lovelace, Ada", "", "501", "", "", "", ""),
    ("byron", "Byron, Ada", "", "502", "", "", "", ""),
    ("zoe", "Zoë Müller", "", "", "Participant 7001", "", "", ""),
    ("zoe2", "Zoe Muller", "", "", "Participant 7002", "", "", ""),
    ("ann", "", "", "", "", "ann", "", ""),
    ("marie", "", "", "", "", "Ann-Marie", "", ""),
    ("r1", "Rita Levi", "rita@uni.edu", "", "", "", "", ""),
    ("s1", "Sam Ting", "sam@uni.edu", "", "", "", "", ""),
    ("t1", "", "", "", "", "", "team 7", ""),
    ("t2", "", "", "", "", "", "team 7", ""),
    *((name, "", "", "", "", "", "", "") for name in
      ("c1", "c2", "c3", "n1", "n2", "n3", "n4", "w1", "a1", "a2", "d1", "d2", "l1", "absent")),
)  # fmt: skip


def make(folder: Path) -> None:
    """Write the submissions and the roster."""
    submissions = folder / "submissions"
    submissions.mkdir(parents=True)
    for one in HAND_INS:
        one.build(submissions / one.entry, f"{one.word} {one.entry}")
    for name in STRAYS:
        write(submissions / name, GRADESCOPE if name.endswith(".yml") else "x")
    with open(folder / "roster.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *ROSTER])


def grade(folder: Path, console) -> RunFolder:
    """Grade the class with the stand-in for the grader, and write its gradebook."""
    asked = Asked(
        folder / "submissions", folder / "out", folder / "roster.csv", labs="1", tier="cpu", jobs=2,
        self_test=False, command=(sys.executable, fake_grader.__file__), blind_share=0.0, limit_s=30.0,
    )  # fmt: skip
    grade_class(asked, console)
    make_gradebook(BookAsked(folder / "out", roster=folder / "roster.csv"))
    return RunFolder(folder / "out")


def table(run: RunFolder) -> dict[str, dict[str, str]]:
    """Return the rows of grades.csv by student."""
    text = (run.root / "gradebook" / "grades.csv").read_text("utf-8")
    return {row["student"]: row for row in csv.DictReader(io.StringIO(text))}


def main(folder: Path) -> None:
    """Write, grade and print the class."""
    from rich.console import Console

    os.environ[fake_grader.COUNT] = str(folder / "counts")
    (folder / "counts").mkdir(parents=True)
    make(folder)
    run = grade(folder, Console())
    rows = table(run)
    for place in sorted(run.students.iterdir()):
        intake, row = records.read(place / "intake.json", Intake), rows[place.name]
        state, points = (row[f"elementwise add: {name}"] for name in ("state", "final"))
        print(" | ".join((", ".join(intake.sources) or "-", intake.id, intake.kind, state, points,
                          row["needs a look"])))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
