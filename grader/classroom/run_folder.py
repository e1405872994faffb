"""Paths in a run folder; grading/README.md describes the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """The run folder of one class, `OUT`."""

    root: Path

    @property
    def run(self) -> Path:
        """Settings, students and machines of the run: records.RunRecord."""
        return self.root / "run.json"

    @property
    def selftest(self) -> Path:
        """Verdicts of files with known verdicts: records.SelfTest."""
        return self.root / "selftest.json"

    @property
    def drift(self) -> Path:
        """Differences between first and second gradings: records.Drift."""
        return self.root / "drift.json"

    @property
    def lock(self) -> Path:
        """Lock file, held by the command while it runs."""
        return self.root / "state" / "lock"

    @property
    def secret(self) -> Path:
        """Secret that all seeds are derived from; readable by its owner, and published after the term."""
        return self.root / "state" / "secret"

    @property
    def sealing_key(self) -> Path:
        """Key of the seals of all receipts, which is never published; runs of older versions have none."""
        return self.root / "state" / "sealing-key"

    @property
    def engine(self) -> Path:
        """Logs of the engine, one folder per start; not needed afterwards."""
        return self.root / "state" / "engine"

    @property
    def students(self) -> Path:
        """Parent of the students' folders."""
        return self.root / "students"

    def student(self, name: str) -> StudentFolder:
        """The folder of one student."""
        return StudentFolder(self.students / name)


@dataclass(frozen=True)
class StudentFolder:
    """The folder of one student, `OUT/students/<id>`."""

    root: Path

    @property
    def intake(self) -> Path:
        """What was submitted and which files were collected: records.Intake."""
        return self.root / "intake.json"

    @property
    def files(self) -> Path:
        """The collected files, laid out like labs/, for `grade --from`."""
        return self.root / "files"

    def unit(self, name: str, again: bool = False) -> UnitFolder:
        """The folder of one lab or of the capstone; with `again`, that of its second, blind grading."""
        return UnitFolder(self.root / name / "again" if again else self.root / name)


@dataclass(frozen=True)
class UnitFolder:
    """The folder of one unit of one student, `OUT/students/<id>/<unit>`, or of one attempt in it."""

    root: Path

    @property
    def attempts(self) -> Path:
        """Parent of the folders of single attempts; there is none until a unit is graded a second time."""
        return self.root / "attempts"

    def every_attempt(self) -> list[UnitFolder]:
        """The folders of single attempts, by number."""
        return [UnitFolder(self.attempts / str(number)) for number in self.numbers()]

    def numbers(self) -> list[int]:
        """Return the numbers of the attempts with a folder of their own."""
        return sorted(int(path.name) for path in self.attempts.glob("*") if path.name.isdigit())

    @property
    def changed(self) -> Path:
        """Results and receipt that somebody changed after grading, kept for a person to look at."""
        return self.root / "changed"

    def attempt(self, number: int) -> UnitFolder:
        """The folder of one attempt, with the same four files."""
        return UnitFolder(self.attempts / str(number))

    @property
    def task(self) -> Path:
        """Outcome of the grading, written last: records.TaskRecord."""
        return self.root / "task.json"

    @property
    def results(self) -> Path:
        """The grader's results file, unchanged: grader.results.models.Results."""
        return self.root / "results.json"

    @property
    def receipt(self) -> Path:
        """Inputs and hashes for repeating the grading: records.Receipt."""
        return self.root / "receipt.json"

    @property
    def log(self) -> Path:
        """Output of the grader."""
        return self.root / "log.txt"
