"""Try hidden cases before anybody is graded: their inputs are built, and the course's solutions must pass."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from grader.classroom.grading.grade_unit import Task
from grader.classroom.records import TaskRecord, Unit
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.course import catalog, hidden_cases
from grader.course.catalog import Entry
from grader.course.spec import Case, Exercise, Verdict
from grader.results import reading
from grader.system.text import one_line

KEYWORD = "hidden"  # in the name of every hidden case
SOLUTIONS = "solutions"


def unbuilt(path: Path) -> list[str]:
    """Return a line for each hidden case whose inputs cannot be built. Raises HiddenError for a bad file."""
    return [words for entry in _entries(path) for words in _unbuilt_in(path, entry)]


def without_solution(path: Path, units: Sequence[Unit], root: Path = catalog.ROOT) -> list[str]:
    """Return the exercises with hidden cases whose solution this checkout lacks, as a release does."""
    return [
        exercise.name
        for entry in _entries(path)
        if _unit_of(entry) in {unit.name for unit in units}
        for exercise in _with_hidden(entry)
        if not entry.submission(root / SOLUTIONS, exercise).is_file()
    ]


def tasks(run: RunFolder, units: Sequence[Unit], like: Task) -> list[Task]:
    """Return a task for each unit with hidden cases, which grades the solutions on them."""
    asked = {_unit_of(entry) for entry in _entries(Path(like.hidden or ""))}
    made = []
    for unit in units:
        if unit.name not in asked:
            continue
        folder = run.root / "state" / "hidden" / unit.name
        shutil.rmtree(folder, ignore_errors=True)
        files = str(catalog.ROOT / SOLUTIONS)
        made.append(
            dataclasses.replace(
                like, student=SOLUTIONS, unit=unit, keyword=KEYWORD, files=files, folder=str(folder)
            )
        )
    return made


def failed(path: Path, ended: Iterable[tuple[Task, TaskRecord]]) -> tuple[list[str], int]:
    """Return a line for each hidden case that a solution does not pass, and how many need a GPU."""
    wrong, need_gpu = [], 0
    for task, record in ended:
        place = UnitFolder(Path(task.folder))
        if not place.results.exists():
            wrong.append(f"{path}: the solution of {task.unit.name} could not be graded: {record.what}")
            continue
        for _, exercise, item in reading.read(place.results).every_item():
            if item.verdict is Verdict.NOT_GRADED and item.needs_gpu:
                need_gpu += 1
            elif item.verdict is not Verdict.PASS:
                where = hidden_cases.place(path, exercise.name, item.name)
                why = item.where if item.verdict is Verdict.GRADER_FAULT else item.cause
                wrong.append(f"{where}: the course's solution gets {item.label}{why and ': '}{one_line(why)}")
    return wrong, need_gpu


def _entries(path: Path) -> list[Entry]:
    """Return the labs that have hidden cases, with them."""
    cases = hidden_cases.read_known(path)
    entries = [hidden_cases.add(entry, cases) for entry in (*catalog.find(), *catalog.capstone())]
    return [entry for entry in entries if _with_hidden(entry)]


def _with_hidden(entry: Entry) -> list[Exercise]:
    return [one for one in entry.lab.functions if any(case.label for case in one.cases)]


def _unit_of(entry: Entry) -> str:
    """Return the name of the unit that a lab's folder belongs to."""
    inside = catalog.CAPSTONE.name in (entry.folder.name, entry.folder.parent.name)
    return catalog.CAPSTONE.name if inside else entry.folder.name


def _unbuilt_in(path: Path, entry: Entry) -> Iterator[str]:
    for exercise in _with_hidden(entry):
        known = {name for case in exercise.cases if not case.label for name in case.params}
        for case in exercise.cases:
            problem = case.label and (_problem(exercise, case) or _unread(case, known))
            if problem:
                where = hidden_cases.place(path, exercise.name, case.label)
                own = f"params has {_names(case.params)}, the exercise's own cases have {_names(known)}"
                yield f"{where}: {problem}; {own}"


def _problem(exercise: Exercise, case: Case) -> str:
    """Return why the inputs of a case cannot be built, in words; empty if they can."""
    from grader.judge.inputs import draw, output_shapes
    from grader.judge.shapes import shapes_of

    try:
        shapes = shapes_of(exercise, case)
        strangers = set(case.layouts) - {*shapes, *output_shapes(exercise, shapes)}
        if strangers:
            return f"layouts: the exercise has no tensor {sorted(strangers)[0]}"
        if not case.gpu_only:  # such a case may be too large for this machine
            draw(exercise, case, 0, "cpu")
    except Exception as error:  # raised by a lab's own function, from the words of the file
        return f"{type(error).__name__}: {one_line(str(error))}"
    return ""


def _unread(case: Case, known: Collection[str]) -> str:
    """Return in words which of the case's params no other case of the exercise has."""
    strange = [name for name in case.params if name not in known]
    return f"the exercise reads no {strange[0]}" if strange else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
