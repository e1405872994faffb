"""Parts of an outcome: lines of a file, open TODOs, the first wrong element, what blocks an item."""

from __future__ import annotations

from pathlib import PurePosixPath

from grader.course.spec import Verdict
from grader.results.base import Model


class Frame(Model):
    """One line of the student's file that an error or a broken rule points to."""

    line: int  # from 1; 0 if it is not known
    function: str  # its name; with " in " and a name of a file if it is in another of the student's
    code: str

    @property
    def other_file(self) -> str:
        """The name of the file, in the same folder, where that is not the graded one; else ""."""
        return self.function.partition(" in ")[2]

    def file(self, graded: str) -> str:
        """Return the path of the line's file, from that of the graded one."""
        return PurePosixPath(graded).with_name(self.other_file).as_posix() if self.other_file else graded


class OpenTodo(Model):
    """An open TODO of the student's file, with the line of its placeholder, from 1."""

    number: int
    text: str
    line: int


class FirstWrong(Model):
    """The first wrong element of an output: its index, and both values with six digits."""

    output: str
    index: tuple[int, ...]
    yours: str
    expected: str
    while_timed: bool = False
    first_call: bool = False  # only the first call with these sizes is wrong, the next one is right

    @property
    def place(self) -> str:
        """The output and index, such as `out[3, 17]`."""
        when = "while timed, " if self.while_timed else "in the first call, " if self.first_call else ""
        return f"{when}{self.output}[{', '.join(map(str, self.index))}]"

    @property
    def words(self) -> str:
        """Place and values in one line."""
        return f"{self.place}   yours {self.yours}   expected {self.expected}"


class Blocked(Model):
    """The failed exercise, with the verdict, because of which code or speed was not checked."""

    exercise: str
    verdict: Verdict
    reason: str = ""

    @property
    def words(self) -> str:
        """The sentence for a report."""
        return f"not looked at {self.until}"

    @property
    def until(self) -> str:
        """What it waits for."""
        return f"until every case of {self.exercise} is right"
