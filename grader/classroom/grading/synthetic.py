"""A synthetic class with known verdicts: solutions, wrong answers, cheats, faults, bad archives.

`make` writes submissions/, roster.csv and expected.json; `check` compares a graded run folder with the last.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import random
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom import records
from grader.classroom.records import State, TaskRecord
from grader.classroom.run_folder import RunFolder
from grader.course import catalog, specimens
from grader.course.items import CORRECTNESS
from grader.course.spec import Verdict
from grader.course.submission import Submission
from grader.results import reading
from grader.results.models import Results
from grader.screen import file_check
from grader.screen.screen import screen
from grader.system.processes import run_tool

POOLS = {
    "wrong": ("solutions/lab*/wrong/*", "solutions/lab*/variants/*"),
    "cheat": ("grader/tests/cheats/*",),
    "fault": ("grader/tests/faults/*",),
}
LINKS = ("d10_link_as_submission",)  # links have a container of their own below
DATE = "2026-01-15T12:00:00+00:00"  # of all commits and archives, so that a class is reproducible


@dataclass(frozen=True)
class HandIn:
    """Files of one student, relative to labs/, and the expected outcome."""

    about: str
    files: dict[str, bytes] = field(default_factory=dict)
    expected: dict[str, dict] = field(default_factory=dict)  # by unit: state, and verdicts by function


def make(folder: Path, count: int, seed: int = 0, slow: bool = False) -> None:
    """Write a class of `count` students; `slow` includes those that hit a time limit, a minute per case."""
    submissions = folder / "submissions"
    submissions.mkdir(parents=True)
    chosen = random.Random(seed)
    expected, roster = {}, []
    containers = itertools.cycle(CONTAINERS)
    for number, hand_in in enumerate(itertools.islice(_hand_ins(chosen, slow), count), 1):
        student, name = f"student-{number:03}", f"Student {_letters(number)}"
        roster.append({"id": student, "name": name, "canvas id": str(10_000 + number)})
        expected[student] = {"about": hand_in.about, "units": hand_in.expected}
        how = BROKEN.get(hand_in.about) or next(containers)
        expected[student]["container"] = how.__name__.removeprefix("_")
        if how in FLAT and _other_answers(hand_in):
            units = {entry.folder.name: {"state": "NOT_COLLECTED"} for entry in catalog.find()}
            expected[student]["units"] = units | hand_in.expected
        how(submissions, student, name, str(10_000 + number), hand_in.files)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "name", "canvas id"])
    writer.writeheader()
    writer.writerows(roster)
    (folder / "roster.csv").write_text(text.getvalue(), "utf-8")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), "utf-8")


def check(folder: Path, out: Path) -> list[str]:
    """Return one line per difference between the run folder `out` and the expected CPU-tier verdicts."""
    wrong = []
    run = RunFolder(out)
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    units = [unit.name for unit in records.read(run.run, records.RunRecord).units]
    for student, made in expected.items():
        for unit in units:
            want = made["units"].get(unit, {"state": "MISSING"})
            place = run.student(student).unit(unit)
            if not place.task.exists():
                wrong.append(f"{student}/{unit}: no record")
                continue
            record = records.read(place.task, TaskRecord)
            about = f"{student}/{unit} ({made['about']}, {made['container']})"
            if record.state.value != want["state"]:
                wrong.append(f"{about}: {record.state.value} {record.what}, not {want['state']}")
            elif record.state is State.GRADED:
                results = reading.read(place.results)
                wrong += [f"{about}: {words}" for words in _differences(results, want["verdicts"])]
    return wrong


def _other_answers(hand_in: HandIn) -> bool:
    """Return whether it has Python files with names that no lab asks for.

    Without their folder, each may be the answer to a lab of which nothing was handed in.
    """
    asked = {exercise.file for entry in catalog.find() for exercise in entry.lab.exercises}
    names = {name.split("/")[-1] for name in hand_in.files}
    return any(name.endswith(".py") for name in names - asked)


def _differences(results: Results, verdicts: dict[str, list[str]]) -> Iterator[str]:
    for function, allowed in verdicts.items():
        items = [
            item
            for lab in results.labs
            for exercise in lab.exercises
            if exercise.name == function
            for item in exercise.items
            if item.kind == CORRECTNESS and item.verdict is not Verdict.NOT_GRADED
        ]
        first = next((item for item in items if item.verdict is not Verdict.PASS), None)
        got = "PASS" if first is None else first.label
        if not items or got not in allowed:
            yield f"{function} got {got if items else 'nothing'}, not {' or '.join(allowed)}"


def _hand_ins(chosen: random.Random, slow: bool) -> Iterator[HandIn]:
    """Yield one hand-in of each kind in turn, endlessly; each kind is shuffled and repeats when used up."""
    entries = catalog.find()
    of_labs = {exercise.name for entry in entries for exercise in entry.lab.exercises}
    pools = [
        [_of(one, entries) for one in _specimens(patterns, slow) if one.functions[0] in of_labs]
        for patterns in POOLS.values()
    ]
    pools += [list(_solutions(entries)), [_broken(name, entries) for name in BROKEN]]
    for pool in pools:
        chosen.shuffle(pool)
    for turn in itertools.count():
        for pool in pools:
            yield pool[turn % len(pool)]


def _specimens(patterns: tuple[str, ...], slow: bool) -> list[specimens.Specimen]:
    """Return the specimens that the CPU tier can detect by correctness alone."""
    return [
        one
        for one in specimens.find(*patterns)
        if one.where != "GPU"
        and one.kind == CORRECTNESS
        and one.path.name not in LINKS
        and (slow or "TIMEOUT" not in one.screened)
    ]


def _of(one: specimens.Specimen, entries: list[catalog.Entry]) -> HandIn:
    homes = [
        (entry, exercise)
        for entry in entries
        for exercise in entry.lab.exercises
        if exercise.name == one.functions[0]
    ]
    entry, exercise = ([home for home in homes if home[0].folder.name in one.path.parts] or homes)[0]
    unit = entry.folder.name
    own = [each.file for each in entry.lab.exercises if each.name in one.functions]
    files = {f"{unit}/{name}": one.file.read_bytes() for name in own}
    for name in {name for file in own for name in entry.lab.imports.get(file, ())} - set(own):
        files[f"{unit}/{name}"] = (catalog.ROOT / "solutions" / unit / name).read_bytes()
    if one.path.is_dir():  # the other files of the folder must not be collected
        for path in one.path.rglob("*"):
            if path.is_file() and not path.is_symlink() and path != one.file:
                files.setdefault(f"{unit}/{path.relative_to(one.path).as_posix()}", path.read_bytes())
    # The verdict in line one of a fault holds without the screen, but a class is graded with it.
    refused = "faults" in one.path.parts and _screened(one, entry, exercise)
    verdicts = {function: ["POLICY"] if refused else list(one.screened) for function in one.functions}
    return HandIn(one.name, files, {unit: {"state": "GRADED", "verdicts": verdicts}})


def _screened(one: specimens.Specimen, entry: catalog.Entry, exercise) -> bool:
    submission = Submission.read(one.file)
    if file_check.check(submission, exercise):
        return False  # decided before the screen reads it
    return screen(submission, entry.lab, exercise) is not None


def _solutions(entries: list[catalog.Entry]) -> Iterator[HandIn]:
    """Yield the solution of each lab, an untouched skeleton, and all solutions together."""
    everything, verdicts = {}, {}
    for entry in entries:
        unit, source = entry.folder.name, catalog.ROOT / "solutions"
        names = dict.fromkeys(exercise.file for exercise in entry.lab.exercises)
        files = {f"{unit}/{name}": (source / unit / name).read_bytes() for name in names}
        passed = {exercise.name: ["PASS"] for exercise in entry.lab.exercises}
        graded = {unit: {"state": "GRADED", "verdicts": passed}}
        yield HandIn(f"solution of {unit}", files, graded)
        everything, verdicts = everything | files, verdicts | graded
        if entry.number == 1:
            skeleton = {f"{unit}/{name}": (entry.folder / name).read_bytes() for name in names}
            open_ones = {exercise.name: ["NOT_STARTED"] for exercise in entry.lab.exercises}
            yield HandIn("skeleton", skeleton, {unit: {"state": "GRADED", "verdicts": open_ones}})
    yield HandIn("all solutions", everything, verdicts)


def _broken(name: str, entries: list[catalog.Entry]) -> HandIn:
    """Return a correct solution in a container that cannot be opened or has other contents."""
    entry = entries[0]
    unit, file = entry.folder.name, entry.lab.exercises[0].file
    files = {f"{unit}/{file}": (catalog.ROOT / "solutions" / unit / file).read_bytes()}
    if name in ("nothing", "empty folder"):
        return HandIn(name, files)
    everywhere = [one.folder.name for one in entries] if name.startswith("archive") else [unit]
    return HandIn(name, files, {one: {"state": "REFUSED"} for one in everywhere})


def _folder(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _write(root / student, files)


def _flat_folder(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _write(root / student, _flat(files))


def _zip(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _pack(root / f"{student}.zip", {f"my work/labs/{name}": data for name, data in files.items()})


def _flat_zip(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _pack(root / f"{student}.zip", _flat(files))


def _git(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    folder = root / student
    _write(folder / "labs", files)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE,
    }  # fmt: skip
    who = ["-c", "user.name=student", "-c", "user.email=student@example.org", "-c", "core.autocrlf=false"]
    for words in (["init", "-q"], ["add", "-Af"], [*who, "commit", "-qm", "my work"]):
        done = run_tool(["git", *words], None, cwd=folder, env=environment)
        if done.code:
            raise RuntimeError(f"git {words[0]}: {done.complaint}")


def _canvas(root: Path, _student, name: str, number: str, files: dict[str, bytes]) -> None:
    for file, data in _flat(files).items():
        (root / f"{name.lower().replace(' ', '')}_{number}_{900_000 + int(number)}_{file}").write_bytes(data)


def _moodle(root: Path, _student, name: str, number: str, files: dict[str, bytes]) -> None:
    _pack(root / f"{name}_{number}_assignsubmission_file_" / "work.zip", files)


def _truncated(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _pack(root / f"{student}.zip", files)
    path = root / f"{student}.zip"
    path.write_bytes(path.read_bytes()[:-30])


def _encrypted(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    path = root / f"{student}.zip"
    _pack(path, files)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the encryption bit, in both headers
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 4)
    path.write_bytes(data)


def _link(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    name = next(iter(files))
    link = zipfile.ZipInfo(name)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(root / f"{student}.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")


def _two_of_one_name(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _write(root / student / "a", files)
    _write(root / student / "b", {name: data + b"\n# again\n" for name, data in files.items()})


def _empty(root: Path, student: str, *_) -> None:
    (root / student).mkdir()


def _nothing(*_) -> None:
    """A student of the roster without a submission."""


CONTAINERS = (_folder, _zip, _git, _canvas, _moodle, _flat_folder, _flat_zip)
FLAT = (_canvas, _flat_folder, _flat_zip)  # without the folder of a lab
BROKEN = {
    "archive truncated": _truncated,
    "archive encrypted": _encrypted,
    "link": _link,
    "two of one name": _two_of_one_name,
    "empty folder": _empty,
    "nothing": _nothing,
}


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _pack(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 15, 12, 0, 0)), data)


def _flat(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name.split("/")[-1]: data for name, data in files.items()}


def _letters(number: int) -> str:
    """Return a surname of letters: 1 is A, 27 is AA."""
    text = ""
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(65 + digit) + text
    return text
