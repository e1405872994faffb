"""A class that the fake grader grades in this process, one student after the other."""

import dataclasses
import io
import sys
from pathlib import Path

from rich.console import Console

from grader.classroom import records
from grader.classroom.gradebook import reading as gradebook
from grader.classroom.grading import run
from grader.classroom.grading.run import Asked, grade_class
from grader.classroom.records import TaskRecord
from grader.classroom.run_folder import RunFolder
from grader.tests.classroom import fake_grader
from grader.tests.classroom.one_by_one import OneByOne
from grader.tests.helpers.course import ROOT

LAB = "lab1_elementwise_add"


class AClass:
    """A class whose students' files say what the fake grader makes of them."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder, self.out = folder, RunFolder(folder / "out")
        (folder / "counts").mkdir()
        monkeypatch.setenv(fake_grader.COUNT, str(folder / "counts"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setattr(run, "Engine", OneByOne)

    def hand_in(self, student: str, word: str) -> None:
        path = self.folder / "in" / student / "elementwise_add.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(word)

    def grade(self, **options) -> tuple[int, str]:
        console = Console(width=300, record=True, file=io.StringIO())
        asked = Asked(
            self.folder / "in", self.out.root, labs="1", tier="cpu", jobs=1, self_test=False, blind_share=0.0,
            command=(sys.executable, fake_grader.__file__), limit_s=30.0,
        )  # fmt: skip
        code = grade_class(dataclasses.replace(asked, **options), console)
        return code, console.export_text()

    def unit(self, student: str):
        return self.out.student(student).unit(LAB)

    def task(self, student: str) -> TaskRecord:
        return records.read(self.unit(student).task, TaskRecord)

    def points(self, student: str) -> float:
        book = gradebook.read(self.out)
        return next(row for row in book.rows if row.id == student).cells[0].raw
