"""Choose the next hint: for a failure of the last run, else for the next open TODO; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from grader.course.catalog import Entry
from grader.course.hints import hint_of_todo, todo_hints
from grader.course.spec import Verdict
from grader.course.submission import Submission
from grader.report.terminal import readme_of, word
from grader.results import reading
from grader.results.models import Results
from grader.system.files import finding, sha256
from grader.system.text import one_line

FINE = (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED, Verdict.GRADER_FAULT)


@dataclass(frozen=True)
class Pointer:
    """A hint and the failure or open TODO that it is for; `hint` is None if the README has none for it."""

    entry: Entry
    hint: int | None
    why: str
    cause: str = ""  # in the words of the report; it may name another hint for another case

    @property
    def readme(self) -> Path:
        """The file with the hint."""
        return self.entry.folder / "README.md"


def last_results(folder: Path) -> tuple[Results | None, str]:
    """Return the last graded run, or None, and what is wrong with its file, if anything."""
    try:
        return reading.read(folder / "results.json"), ""
    except FileNotFoundError:
        return None, ""
    except ValidationError as error:
        return None, finding(error)
    except (OSError, ValueError) as error:
        return None, str(error)


def pointers(entries: Sequence[Entry], runs: Sequence[Results], keyword: str, source: Path) -> list[Pointer]:
    """Return pointers to hints: first for failures of these runs, the last one first, then for open TODOs.

    Of a lab in several runs only the first counts. Of its failures those for which there is a hint come
    first. `keyword` keeps those with this word in the name of the case, the function or the file.
    """
    failed: list[Pointer] = []
    seen: set[str] = set()
    for results in runs:
        if results.source != str(source):  # a run of the solutions
            continue
        for lab in results.labs:
            if lab.folder not in seen:
                seen.add(lab.folder)
                of_lab = list(_failures(entries, lab, keyword, source))
                failed += sorted(of_lab, key=lambda one: one.hint is None)
    return [*failed, *_open(entries, keyword, source)]


def _failures(entries, lab, keyword, source) -> Iterator[Pointer]:
    known = {entry.folder.name: entry for entry in entries}
    entry = known.get(lab.folder)
    if entry:
        for exercise in lab.exercises:
            asked = next((one for one in entry.lab.exercises if one.name == exercise.name), None)
            if asked is None:
                continue
            file = entry.submission(source, asked)
            digest = sha256(file)
            since = "" if digest == exercise.file_sha256 else "; the file has changed since"
            for item in exercise.items:
                known_as = f"{item.id} {exercise.file}"
                if item.verdict not in FINE and not item.blocked and keyword in known_as:
                    why = f"{word(item)} in {one_line(item.id)}, in the last run{since}"
                    yield Pointer(entry, item.hint, why, one_line(item.cause))


def _open(entries, keyword, source) -> Iterator[Pointer]:
    for entry in entries:
        readme = entry.folder / "README.md"
        hints = todo_hints(readme.read_text("utf-8", errors="replace") if readme.is_file() else "")
        seen = set()
        for exercise in entry.lab.exercises:
            file = entry.submission(source, exercise)
            if file.suffix not in (".py", ".cu") or not file.is_file():
                continue
            submission = Submission.read(file)
            todos = submission.open_todos
            if keyword and keyword not in exercise.file:
                if keyword not in exercise.name:
                    continue
                # In a file with several functions, only the TODOs that this one needs.
                todos = submission.open_todos_of(exercise.name)
            for todo in todos:
                if todo.number and (exercise.file, todo.number) not in seen:
                    seen.add((exercise.file, todo.number))
                    why = f"{exercise.file}:{todo.line}, TODO {todo.number}: {one_line(todo.text)}"
                    yield Pointer(entry, hint_of_todo(hints, exercise.file, todo.number), why)


def place_of(pointer: Pointer) -> str:
    """Return the path of the README as messages and reports show it."""
    return readme_of(pointer.entry.folder.name)
