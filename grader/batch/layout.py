"""Where things lie in a run folder; README.md beside this file says what they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """The folder of one class, `OUT`."""

    root: Path

    @property
    def run(self) -> Path:
        """What was asked, of whom, with what: models.RunRecord."""
        return self.root / "run.json"

    @property
    def selftest(self) -> Path:
        """The verdicts of files whose verdict is known: models.SelfTest."""
        return self.root / "selftest.json"

    @property
    def drift(self) -> Path:
        """How far second gradings lie from the first: models.Drift."""
        return self.root / "drift.json"

    @property
    def lock(self) -> Path:
        """Held by the command as long as it works."""
        return self.root / "state" / "lock"

    @property
    def secret(self) -> Path:
        """What all seeds are made from; readable by its owner alone."""
        return self.root / "state" / "secret"

    @property
    def engine(self) -> Path:
        """Logs of the engine, one folder a start; nothing in it is needed later."""
        return self.root / "state" / "engine"

    @property
    def students(self) -> Path:
        """One folder a student."""
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
        """What was handed in, and what of it was taken: models.Intake."""
        return self.root / "intake.json"

    @property
    def files(self) -> Path:
        """The collected files, laid out like labs/, for `grade --from`."""
        return self.root / "files"

    def unit(self, name: str, again: bool = False) -> UnitFolder:
        """The folder of one lab or of the capstone; `again` is its second, blind grading."""
        return UnitFolder(self.root / name / "again" if again else self.root / name)


@dataclass(frozen=True)
class UnitFolder:
    """One graded lab of one student, `OUT/students/<id>/<unit>`."""

    root: Path

    @property
    def task(self) -> Path:
        """Whether it was graded, and how that ended; written last: models.TaskRecord."""
        return self.root / "task.json"

    @property
    def results(self) -> Path:
        """The grader's own results file, unchanged: grader.results.Results."""
        return self.root / "results.json"

    @property
    def receipt(self) -> Path:
        """What a second grading needs to agree or differ: models.Receipt."""
        return self.root / "receipt.json"

    @property
    def log(self) -> Path:
        """What the grader printed."""
        return self.root / "log.txt"
